// Processors of managed workers. Each entry creates the function that BullMQ calls as (job, token).

import { fileURLToPath } from 'node:url';

import { Worker, bullmq } from './bullmq.mjs';
import { Refusal } from './errors.mjs';
import { sendEvent } from './lines.mjs';
import { RawJson } from './raw_json.mjs';
import { followSteps, pause } from './steps.mjs';
import { jobView } from './views.mjs';

const SANDBOXED = fileURLToPath(new URL('./sandboxed.cjs', import.meta.url));

/** The path of the processor file. Its processes inherit the environment of this one, and read how to start there. */
function sandboxedProcessor(start) {
  process.env.BULLMQ_SANDBOX_START = start;
  return SANDBOXED;
}

/** The processes after the first one start normally, if `start` is for the first one: it has failed a job then. */
export function startNormallyLater(worker, { start = '' }) {
  if (start.endsWith('-once')) {
    worker.once('failed', () => {
      process.env.BULLMQ_SANDBOX_START = '';
    });
  }
}

export const PROCESSORS = {
  // Three parameters: BullMQ makes a signal only for processors that take one (worker.ts).
  ask: handle => (job, token, signal) => askKit(handle, job, token, signal),
  noop: () => async () => null,
  echo: () => async job => job.data,
  sleep: (handle, { ms = 0 }) => async () => {
    await pause(ms);
    return null;
  },
  fail: (handle, { times = 1, message = 'failed on request' }) => async job => {
    if (job.attemptsMade < times) {
      throw new Error(message);
    }
    return null;
  },
  throw: (handle, { message = 'failed on request' }) => async () => {
    throw new Error(message);
  },
  progress: (handle, { values = [] }) => async job => {
    for (const value of values) {
      await job.updateProgress(value);
    }
    return null;
  },
  steps: () => (job, token) => followSteps(job, token, bullmq),
  sandboxed: (handle, { start = '' }) => sandboxedProcessor(start),
};

async function askKit(handle, job, token, signal) {
  signal?.addEventListener('abort', () => {
    const reason = typeof signal.reason === 'string' ? signal.reason : null;
    sendEvent(handle, 'cancelled', { job: String(job.id), reason });
  });
  const answer = await new Promise(resolve => {
    const id = String(job.id);
    // Before the event: the kit may resolve the job at once. A list, because a stalled job may run twice.
    handle.asked.set(id, [...(handle.asked.get(id) ?? []), resolve]);
    sendEvent(handle, 'job', { job: jobView(job), token: String(token) });
  });
  return OUTCOMES[answer.outcome](answer, job, token, handle);
}

const OUTCOMES = {
  complete: async answer => new RawJson(answer.value_raw ?? 'null'),
  fail: async answer => {
    throw new Error(answer.message);
  },
  unrecoverable: async answer => {
    throw new bullmq.UnrecoverableError(answer.message);
  },
  delay: async (answer, job, token) => {
    await job.moveToDelayed(Date.now() + (answer.ms ?? 0), token);
    throw new bullmq.DelayedError();
  },
  wait: async (answer, job, token) => {
    await job.moveToWait(token);
    throw new bullmq.WaitingError();
  },
  'waiting-children': async (answer, job, token) => {
    if (await job.moveToWaitingChildren(token)) {
      throw new bullmq.WaitingChildrenError();
    }
    // Nothing was pending: the job goes on, and here that means that it ends.
    return new RawJson(answer.value_raw ?? 'null');
  },
  'rate-limit': async (answer, job, token, handle) => {
    await handle.object.rateLimit(answer.ms ?? 0);
    throw Worker.RateLimitError();
  },
};

export function resolveAsked(handle, args) {
  if (!OUTCOMES[args.outcome]) {
    throw new Refusal('invalid-argument', `no such outcome: ${args.outcome}`);
  }
  const waiting = handle.asked.get(args.job) ?? [];
  const settle = waiting.shift();
  if (!settle) {
    throw new Refusal('invalid-argument', `job ${args.job} does not wait for an answer at ${handle.name}`);
  }
  if (waiting.length === 0) {
    handle.asked.delete(args.job);
  }
  settle(args);
  return {};
}
