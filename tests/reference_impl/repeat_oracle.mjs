// Calls methods of a Queue of real BullMQ that the driver protocol has no operations for, with a clock that stands still.
// Arguments: the folder that holds `node_modules`, and JSON {port, prefix, now, calls: [[method, ...arguments], ...]}.
// Prints the answers as JSON.

import { createRequire } from 'node:module';
import path from 'node:path';

const { port, prefix, now, calls } = JSON.parse(process.argv[3]);
Date.now = () => now;

const { Queue } = createRequire(path.join(path.resolve(process.argv[2]), 'repeat.cjs'))('bullmq');
const queue = new Queue('q', { prefix, connection: { host: '127.0.0.1', port } });
await queue.waitUntilReady();

const answers = [];
for (const [method, ...given] of calls) {
  const answer = await queue[method](...given);
  answers.push(method === 'add' ? answer.id : answer);
}
await queue.close();
process.stdout.write(JSON.stringify(answers));
