// The processor `sandboxed` of the oracle: a file that BullMQ runs in a process (or thread) of its own.
//
// CommonJS, because BullMQ loads it with `require`. The environment says how the process starts.

const { existsSync, rmSync, writeFileSync } = require('node:fs');
const { createRequire } = require('node:module');
const path = require('node:path');

const root = process.env.BULLMQ_CONFORMANCE_MODULES || __dirname;
const bullmq = createRequire(path.join(path.resolve(root), 'driver.cjs'))('bullmq');
const mark = process.env.BULLMQ_SANDBOX_STARTED;

switch (process.env.BULLMQ_SANDBOX_START) {
  case 'throw-once':
    if (!existsSync(mark)) {
      writeFileSync(mark, '');
      throw new Error('cannot start yet');
    }
    rmSync(mark);
    break;
  case 'exit-once':
    if (!existsSync(mark)) {
      writeFileSync(mark, '');
      process.exit(3);
    }
    rmSync(mark);
    break;
  case 'chat':
    process.send?.({ cmd: 999, value: 'a message of the processor' });
    break;
}

module.exports = async (job, token) => {
  const { followSteps } = await import('./steps.mjs');
  return followSteps(job, token, bullmq);
};
