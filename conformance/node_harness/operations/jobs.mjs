// One job (job.ts).

import { Job } from '../bullmq.mjs';
import { Refusal, errorCode, messageOf } from '../errors.mjs';
import { handleNamed } from '../handles.mjs';
import { RawJson, requiredText } from '../raw_json.mjs';
import { texts } from '../views.mjs';
import { count, define, findJob, nothing, onJob } from './registry.mjs';

onJob('updateData', (job, a) => job.updateData(new RawJson(a.data_raw)).then(nothing));
define('job.updateProgress', ['queue', 'worker'], 'Job#updateProgress', async (handle, a) => {
  const value = new RawJson(a.value_raw);
  // A user of a queue has the id, and one of a worker the job. Releases before 3.0 have no `updateJobProgress`.
  await (handle.object.updateJobProgress?.(a.job, value) ?? (await findJob(handle, a.job)).updateProgress(value));
  return {};
});
define('job.log', ['queue', 'worker'], 'Job.addJobLog', async ({ object }, a) =>
  count(await Job.addJobLog(object, a.job, a.row, a.keep_logs ?? undefined)),
);
onJob('clearLogs', (job, a) => job.clearLogs(a.keep_logs ?? undefined).then(nothing));
onJob('promote', job => job.promote().then(nothing));
onJob('changeDelay', (job, a) => job.changeDelay(a.delay_ms).then(nothing));
onJob('changePriority', (job, a) => job.changePriority({ priority: a.priority, lifo: a.lifo ?? false }).then(nothing));
onJob('retry', (job, a) => {
  const reset = { resetAttemptsMade: a.reset_attempts_made, resetAttemptsStarted: a.reset_attempts_started };
  return job.retry(a.state ?? 'failed', reset).then(nothing);
});
onJob('remove', (job, a) => job.remove({ removeChildren: a.remove_children ?? true }).then(nothing));
onJob('getState', async job => ({ state: await job.getState() }));
onJob('isFinished', async job => ({ value: (await job.isCompleted()) || (await job.isFailed()) }), 'Job#isCompleted');
onJob('waitUntilFinished', async (job, a) => {
  const events = handleNamed(a.events);
  if (events.role !== 'events') {
    throw new Refusal('invalid-argument', `${a.events} is not an events handle`);
  }
  await events.ready;
  return { value_raw: requiredText(await finishedValue(job, events.object, a.ttl_ms ?? undefined)) };
});
onJob('getDependencies', async job => {
  const found = await job.getDependencies();
  return {
    processed: texts(found.processed, requiredText),
    unprocessed: found.unprocessed ?? [],
    ignored: texts(found.ignored, String),
    failed: found.failed ?? [],
  };
});
onJob('getDependenciesCount', async job => {
  const wanted = { processed: true, unprocessed: true, ignored: true, failed: true };
  // Older releases do not know of children that are ignored or have failed.
  const { processed, unprocessed, ignored = 0, failed = 0 } = await job.getDependenciesCount(wanted);
  return { processed, unprocessed, ignored, failed };
});
onJob('getChildrenValues', async job => ({ values: texts(await job.getChildrenValues(), requiredText) }));
onJob('getIgnoredChildrenFailures', async job => ({ values: texts(await job.getIgnoredChildrenFailures(), String) }));
onJob('removeChildDependency', async job => ({ value: await job.removeChildDependency() }));
onJob('removeUnprocessedChildren', job => job.removeUnprocessedChildren().then(nothing));
onJob('removeDeduplicationKey', async job => ({ value: Boolean(await job.removeDeduplicationKey()) }));

/** The promise rejects with the job's own failure reason; only timeouts and missing jobs have fixed texts. */
async function finishedValue(job, queueEvents, ttl) {
  try {
    return await job.waitUntilFinished(queueEvents, ttl);
  } catch (error) {
    const code = errorCode(error);
    const fixed = ['timeout', 'missing-job', 'connection-lost'].includes(code);
    throw fixed ? error : new Refusal('job-failed', messageOf(error));
  }
}
