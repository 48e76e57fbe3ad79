// Adds jobs with real BullMQ in batches of 1000, and prints the seconds that it takes, without the start of Node.
// Arguments: host, port, prefix, queue, jobs. BullMQ is below the folder named in BULLMQ_CONFORMANCE_MODULES.

import { createRequire } from 'node:module';
import path from 'node:path';

const require = createRequire(path.join(process.env.BULLMQ_CONFORMANCE_MODULES, 'package.json'));
const { Queue } = require('bullmq');

const BATCH = 1000;
const [host, port, prefix, name, jobs] = process.argv.slice(2);

const queue = new Queue(name, { connection: { host, port: Number(port) }, prefix });
await queue.waitUntilReady();
const started = performance.now();
for (let left = Number(jobs); left > 0; left -= BATCH) {
  await queue.addBulk(Array.from({ length: Math.min(left, BATCH) }, () => ({ name: 'job', data: {} })));
}
console.log((performance.now() - started) / 1000);
await queue.close();
