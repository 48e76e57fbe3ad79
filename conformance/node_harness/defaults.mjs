// Prints the options that the objects of a bullmq package give themselves: {"WorkerOptions": {"drainDelay": 5, ...}, ...}.
// The argument is the folder that holds `node_modules`. Nothing connects.

import { createRequire } from 'node:module';
import path from 'node:path';

const { FlowProducer, Queue, QueueEvents, Worker } = createRequire(
  path.join(path.resolve(process.argv[2]), 'defaults.cjs'),
)('bullmq');
const connection = { host: '127.0.0.1', port: 1, lazyConnect: true, retryStrategy: () => null };
const objects = {
  QueueOptions: () => new Queue('q', { connection }),
  WorkerOptions: () => new Worker('q', undefined, { connection }),
  QueueEventsOptions: () => new QueueEvents('q', { connection, autorun: false }),
  FlowProducerOptions: () => new FlowProducer({ connection }),
};

const found = {};
for (const [name, made] of Object.entries(objects)) {
  const object = made();
  object.on('error', () => {});
  const plain = Object.entries(object.opts).filter(([, value]) => ['boolean', 'number', 'string'].includes(typeof value));
  found[name] = Object.fromEntries(plain);
}
process.stdout.write(JSON.stringify(found), () => process.exit(0));
