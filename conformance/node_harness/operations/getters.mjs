// Reading a queue (queue-getters.ts).

import { jobView, maybeJob, orNull } from '../views.mjs';
import { count, onQueue } from './registry.mjs';

onQueue('getJob', async (queue, a) => maybeJob(await queue.getJob(a.job)));
onQueue('getJobs', async (queue, a) => {
  const jobs = await queue.getJobs(a.types, a.start ?? 0, a.end ?? -1, a.asc ?? false);
  return { jobs: jobs.map(job => (job ? jobView(job) : null)) };
});
onQueue('getJobCounts', async (queue, a) => ({ counts: await queue.getJobCounts(...a.types) }));
onQueue('getJobCountByTypes', async (queue, a) => count(await queue.getJobCountByTypes(...a.types)));
onQueue('count', async queue => count(await queue.count()));
onQueue('getCountsPerPriority', async (queue, a) => ({ counts: await queue.getCountsPerPriority(a.priorities) }));
onQueue('getJobState', async (queue, a) => ({ state: await queue.getJobState(a.job) }));
onQueue('getJobLogs', async (queue, a) => {
  const { logs, count: total } = await queue.getJobLogs(a.job, a.start ?? 0, a.end ?? -1, a.asc ?? true);
  return { logs, count: total };
});
onQueue('getMetrics', async (queue, a) => {
  const { meta, data, count: points } = await queue.getMetrics(a.type, a.start ?? 0, a.end ?? -1);
  return { meta, data: data.map(Number), count: points };
});
onQueue('getGlobalConcurrency', async queue => ({ value: orNull(await queue.getGlobalConcurrency()) }));
onQueue('getGlobalRateLimit', async queue => {
  const limit = await queue.getGlobalRateLimit();
  return { max: orNull(limit?.max), duration_ms: orNull(limit?.duration) };
});
onQueue('getRateLimitTtl', async (queue, a) => count(await queue.getRateLimitTtl(a.max_jobs ?? undefined)));
onQueue('isMaxed', async queue => ({ value: await queue.isMaxed() }));
onQueue('getMeta', async queue => {
  const { paused, concurrency, max, duration, maxLenEvents, version } = await queue.getMeta();
  return {
    paused,
    concurrency: orNull(concurrency),
    max: orNull(max),
    duration_ms: orNull(duration),
    max_len_events: orNull(maxLenEvents),
    version: orNull(version),
  };
});
onQueue('exportPrometheusMetrics', async (queue, a) => ({
  value: await queue.exportPrometheusMetrics(a.variables ?? undefined),
}));
onQueue('getVersion', async queue => ({ value: orNull(await queue.getVersion()) }));
onQueue('getDeduplicationJobId', async (queue, a) => ({ value: orNull(await queue.getDeduplicationJobId(a.id)) }));
onQueue('getWorkers', async queue => {
  // The connection is called `prefix:base64(queue)`, with `:w:name` behind it if the worker has a name (worker.ts).
  const workers = await queue.getWorkers();
  return { names: workers.map(({ rawname = '' }) => rawname.split(':w:').slice(1).join(':w:')) };
});
onQueue('getWorkersCount', async queue => count(await queue.getWorkersCount()));
