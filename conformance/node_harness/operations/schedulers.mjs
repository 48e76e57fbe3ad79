// Job schedulers (job-scheduler.ts).

import { bullmq } from '../bullmq.mjs';
import { RawJson } from '../raw_json.mjs';
import { maybeJob, schedulerView } from '../views.mjs';
import { count, onQueue } from './registry.mjs';

onQueue('upsertJobScheduler', async (queue, a) => {
  const template = {
    ...(a.name === null || a.name === undefined ? {} : { name: a.name }),
    ...(a.data_raw === null || a.data_raw === undefined ? {} : { data: new RawJson(a.data_raw) }),
    ...(a.opts ? { opts: a.opts } : {}),
  };
  return maybeJob(await queue.upsertJobScheduler(a.id, a.repeat, template));
});
onQueue('getJobScheduler', async (queue, a) => {
  const scheduler = await queue.getJobScheduler(a.id);
  return { scheduler: scheduler ? schedulerView(scheduler) : null };
});
onQueue('getJobSchedulers', async (queue, a) => {
  const schedulers = await queue.getJobSchedulers(a.start ?? 0, a.end ?? -1, a.asc ?? false);
  return { schedulers: schedulers.filter(Boolean).map(schedulerView) };
});
onQueue('getJobSchedulersCount', async queue => count(await queue.getJobSchedulersCount()));

// Versions before job schedulers remove a repeat by its key.
const remove = ['removeJobScheduler', 'removeRepeatableByKey'].find(name => name in bullmq.Queue.prototype);
onQueue('removeJobScheduler', async (queue, a) => ({ value: await queue[remove](a.id) }), `Queue#${remove}`);
