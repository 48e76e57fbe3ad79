// Adding to a queue, and control of the whole queue (queue.ts).

import { bullmq } from '../bullmq.mjs';
import { newJob } from '../views.mjs';
import { count, ids, nothing, onQueue } from './registry.mjs';

onQueue('add', async (queue, a) => {
  const { name, data, opts } = newJob(a);
  const job = await queue.add(name, data, opts);
  // Old versions return nothing for a repeat that has ended, and do not refuse it.
  return { id: String(job?.id ?? '') };
});
onQueue('addBulk', async (queue, a) => ids(await queue.addBulk(a.jobs.map(newJob))));
onQueue('pause', queue => queue.pause().then(nothing));
onQueue('resume', queue => queue.resume().then(nothing));
onQueue('isPaused', async queue => ({ value: await queue.isPaused() }));
onQueue('drain', (queue, a) => queue.drain(a.delayed ?? false).then(nothing));
onQueue('clean', async (queue, a) => {
  const removed = await queue.clean(a.grace_ms, a.limit, a.type ?? 'completed');
  return { ids: removed.map(String) };
});
onQueue('obliterate', (queue, a) =>
  queue.obliterate({ force: a.force ?? false, count: a.count ?? 1000 }).then(nothing),
);
onQueue('remove', async (queue, a) => count(await queue.remove(a.job, { removeChildren: a.remove_children ?? true })));
onQueue('retryJobs', (queue, a) => {
  const { count: batch = 1000, state = 'failed', timestamp } = a;
  return queue.retryJobs({ count: batch, state, timestamp: timestamp ?? undefined }).then(nothing);
});
onQueue('promoteJobs', (queue, a) => queue.promoteJobs({ count: a.count ?? 1000 }).then(nothing));
onQueue('trimEvents', async (queue, a) => count(await queue.trimEvents(a.max_length)));
onQueue('setGlobalConcurrency', (queue, a) => queue.setGlobalConcurrency(a.concurrency).then(nothing));
onQueue('removeGlobalConcurrency', queue => queue.removeGlobalConcurrency().then(nothing));
onQueue('setGlobalRateLimit', (queue, a) => queue.setGlobalRateLimit(a.max, a.duration_ms).then(nothing));
onQueue('removeGlobalRateLimit', queue => queue.removeGlobalRateLimit().then(nothing));
onQueue('rateLimit', (queue, a) => queue.rateLimit(a.expire_ms).then(nothing));
onQueue('removeRateLimitKey', queue => queue.removeRateLimitKey().then(nothing));
onQueue('removeDeduplicationKey', async (queue, a) => count(await queue.removeDeduplicationKey(a.id)));
onQueue('removeOrphanedJobs', async (queue, a) => count(await queue.removeOrphanedJobs(a.count ?? 1000, a.limit ?? 0)));
onQueue('publishEvent', publishEvent, 'QueueEventsProducer#publishEvent');

async function publishEvent(queue, a) {
  const producer = new bullmq.QueueEventsProducer(queue.name, queue.opts);
  try {
    await producer.publishEvent({ ...a.fields, eventName: a.event_name }, a.max_length ?? 1000);
  } finally {
    await producer.close();
  }
  return {};
}
