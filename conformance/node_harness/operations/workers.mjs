// Workers, one step at a time (worker.ts, job.ts).

import { bullmq, scriptsOf } from '../bullmq.mjs';
import { RawJson } from '../raw_json.mjs';
import { maybeJob } from '../views.mjs';
import { nothing, onHeldJob, onWorker } from './registry.mjs';

onWorker('getNextJob', async (worker, a, handle) => {
  // Without blocking: the call must be answered within the kit's deadline, whether there is a job or not.
  const job = await worker.getNextJob(a.token, { block: false });
  return maybeJob(hold(handle, job));
});
onHeldJob('moveToCompleted', async (job, a, handle) => {
  const value = new RawJson(a.value_raw ?? 'null');
  return fetched(handle, a.token, await job.moveToCompleted(value, a.token, a.fetch_next ?? false));
});
onHeldJob('moveToFailed', async (job, a, handle) => {
  const error = a.unrecoverable ? new bullmq.UnrecoverableError(a.message) : new Error(a.message);
  return fetched(handle, a.token, await job.moveToFailed(error, a.token, a.fetch_next ?? false));
});
onHeldJob('moveToDelayed', (job, a) => job.moveToDelayed(a.timestamp, a.token).then(nothing));
onHeldJob('moveToWait', (job, a) => job.moveToWait(a.token).then(nothing));
onHeldJob('moveToWaitingChildren', async (job, a) => ({ value: await job.moveToWaitingChildren(a.token) }));
onHeldJob('extendLock', async (job, a) => ({ value: Boolean(await job.extendLock(a.token, a.duration_ms)) }));
onWorker(
  'extendLocks',
  async (worker, a) => {
    const lost = await scriptsOf(worker).extendLocks(a.jobs, a.tokens, a.duration_ms);
    return { ids: (lost ?? []).map(String) };
  },
  null,
);
onWorker('checkStalled', checkStalled, 'Worker#moveStalledJobsToWait');
onWorker('pause', (worker, a) => worker.pause(a.do_not_wait_active ?? false).then(nothing));
onWorker('resume', worker => nothing(worker.resume()));
onWorker('isPaused', worker => ({ value: worker.isPaused() }));
onWorker('isRunning', worker => ({ value: worker.isRunning() }));
onWorker('cancelJob', (worker, a) => ({ value: worker.cancelJob(a.job, a.reason ?? undefined) }));
onWorker('cancelAllJobs', (worker, a) => nothing(worker.cancelAllJobs(a.reason ?? undefined)));
onWorker('rateLimit', (worker, a) => worker.rateLimit(a.expire_ms).then(nothing));

function hold(handle, job) {
  if (job) {
    handle.claimed.set(String(job.id), job);
  }
  return job;
}

/** The reply of a finish is [hash, id, rate limit, next due]; the worker makes the next job of it as its loop would. */
async function fetched(handle, token, reply) {
  const [hash, id] = reply ?? [];
  return maybeJob(hash ? hold(handle, await handle.object.nextJobFromJobData(hash, id, token)) : null);
}

/** The worker's method reports recovered jobs only by its local events. */
async function checkStalled(worker) {
  const recovered = [];
  const note = id => recovered.push(String(id));
  worker.on('stalled', note);
  try {
    await worker.moveStalledJobsToWait();
  } finally {
    // In `finally`: a listener that stays would add to the answer of the next check.
    worker.off('stalled', note);
  }
  return { ids: recovered };
}
