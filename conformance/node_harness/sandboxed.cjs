// The processor `sandboxed` of the oracle: a file that BullMQ runs in a process (or thread) of its own.
//
// CommonJS, because BullMQ loads it with `require`. The environment says how the process starts.

const { createRequire } = require('node:module');
const path = require('node:path');

const root = process.env.BULLMQ_CONFORMANCE_MODULES || __dirname;
const bullmq = createRequire(path.join(path.resolve(root), 'driver.cjs'))('bullmq');

switch (process.env.BULLMQ_SANDBOX_START) {
  case 'throw-once':
    throw new Error('cannot start yet');
  case 'exit-once':
    process.exit(3);
    break;
  case 'chat':
    process.send?.({ cmd: 999, value: 'a message of the processor' });
    break;
}

module.exports = async (job, token) => {
  const { followSteps } = await import('./steps.mjs');
  return followSteps(job, token, bullmq);
};
