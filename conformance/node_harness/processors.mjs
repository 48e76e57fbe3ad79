// Processors of managed workers. Each entry creates the function that BullMQ calls as (job, token).

import { Worker, bullmq } from './bullmq.mjs';
import { Refusal } from './errors.mjs';
import { sendEvent } from './lines.mjs';
import { RawJson } from './raw_json.mjs';
import { jobView } from './views.mjs';

const pause = milliseconds => new Promise(resolve => setTimeout(resolve, milliseconds));

export const PROCESSORS = {
  ask: handle => (job, token) => askKit(handle, job, token),
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
  steps: () => followSteps,
};

async function followSteps(job) {
  for (const step of job.data?.steps ?? []) {
    switch (step.do) {
      case 'progress':
        await job.updateProgress(step.value);
        break;
      case 'log':
        await job.log(step.row);
        break;
      case 'sleep':
        await pause(step.ms);
        break;
      case 'fail':
        if (job.attemptsMade < (step.until_attempt ?? Infinity)) {
          throw new Error(step.message);
        }
        break;
      case 'unrecoverable':
        throw new bullmq.UnrecoverableError(step.message);
      case 'return':
        return step.value;
      default:
        throw new Error(`unknown step: ${step.do}`);
    }
  }
  return null;
}

async function askKit(handle, job, token) {
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
