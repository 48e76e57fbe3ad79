// Real BullMQ as a peer of the benchmarks: one JSON request per line in, one JSON answer per line out (peers.py).
//
// BullMQ is taken from the `node_modules` below the folder named in BULLMQ_CONFORMANCE_MODULES. Times are in seconds
// and taken here, so that starting Node and talking to it is not counted.

import { createRequire } from 'node:module';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';

const require = createRequire(path.join(process.env.BULLMQ_CONFORMANCE_MODULES, 'package.json'));
const { Queue, Worker } = require('bullmq');

const BATCH = 1000;
const PAUSE_MS = 20;

const seconds = () => performance.now() / 1000;

const options = ({ host, port, prefix }) => ({ connection: { host, port }, prefix });

async function withQueue(args, act) {
  const queue = new Queue(args.queue, options(args));
  try {
    await queue.waitUntilReady();
    return await act(queue);
  } finally {
    await queue.close();
  }
}

async function withWorker(args, processor, act) {
  const worker = new Worker(args.queue, processor, {
    ...options(args),
    concurrency: args.concurrency ?? 1,
    maxStalledCount: args.maxStalledCount ?? 1,
    autorun: false,
  });
  worker.on('error', (error) => process.stderr.write(`${error.stack}\n`));
  try {
    await worker.waitUntilReady();
    return await act(worker);
  } finally {
    await worker.close();
  }
}

/** Add jobs in batches of 1000; answers the time it took. */
function addBulk(args) {
  return withQueue(args, async (queue) => {
    const started = seconds();
    for (let left = args.jobs; left > 0; left -= BATCH) {
      const batch = Array.from({ length: Math.min(left, BATCH) }, () => ({ name: 'job', data: {} }));
      await queue.addBulk(batch);
    }
    return seconds() - started;
  });
}

/** Add jobs one after the other; answers the time it took. */
function add(args) {
  return withQueue(args, async (queue) => {
    const started = seconds();
    for (let left = args.jobs; left > 0; left -= 1) {
      await queue.add('job', {});
    }
    return seconds() - started;
  });
}

/** Process the jobs that wait, with `result` as their results; answers the time from the start of the loop to the last `completed`. */
function work(args) {
  return withWorker(args, async () => args.result, async (worker) => {
    let left = args.jobs;
    const done = new Promise((resolve) => {
      worker.on('completed', () => {
        left -= 1;
        if (left === 0) resolve();
      });
    });
    const started = seconds();
    worker.run();
    await done;
    return seconds() - started;
  });
}

/**
 * Add single jobs while the worker waits for one; returns the times from the call of add to the processor. The pause
 * before each job lets the worker finish the last one and wait again; not every library has an event for that.
 */
async function pickup(args) {
  let picked;
  return withWorker(args, async () => picked(), (worker) =>
    withQueue(args, async (queue) => {
      worker.run();
      const times = [];
      for (let left = args.jobs; left > 0; left -= 1) {
        await sleep(PAUSE_MS);
        const seen = new Promise((resolve) => {
          picked = () => resolve(seconds());
        });
        const started = seconds();
        await queue.add('job', {});
        times.push((await seen) - started);
      }
      return times;
    }),
  );
}

const tasks = { add, addBulk, pickup, work };

for await (const line of createInterface({ input: process.stdin })) {
  const { task, args } = JSON.parse(line);
  let answer;
  try {
    answer = { value: await tasks[task](args) };
  } catch (error) {
    answer = { error: String(error.stack ?? error) };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
process.exit(0);
