// Every operation: the roles of handle that it works on, the BullMQ method that must exist, and what it does.

import { Job, bullmq } from '../bullmq.mjs';

export const operations = new Map();

export function define(name, roles, needs, run) {
  operations.set(name, { roles, needs, run });
}

export function onQueue(name, run, needs = `Queue#${name}`) {
  define(`queue.${name}`, ['queue'], needs, ({ object }, args) => run(object, args));
}

/** A job operation works on a queue handle, and on a worker handle for jobs that are bound to the worker. */
export function onJob(name, run, needs = `Job#${name}`) {
  const onFound = async (handle, args) => run(await findJob(handle, args.job), args, handle);
  define(`job.${name}`, ['queue', 'worker'], needs, onFound);
}

export function onWorker(name, run, needs = `Worker#${name}`) {
  define(`worker.${name}`, ['worker'], needs, (handle, args) => run(handle.object, args, handle));
}

/** A worker's operations on a job that it holds. When its work on the job ends, the driver forgets the job. */
export function onHeldJob(name, run) {
  define(`worker.${name}`, ['worker'], `Job#${name}`, async (handle, args) => {
    const job = await findJob(handle, args.job);
    if (name !== 'extendLock') {
      handle.claimed.delete(args.job);
    }
    return run(job, args, handle);
  });
}

/**
 * A job without a hash still gets a Job object, as a user holds one whose hash has gone since: it is the script that
 * must say that the job is missing.
 */
export async function findJob(handle, id) {
  const held = handle.claimed.get(id) ?? (await Job.fromId(handle.object, id));
  return held ?? new Job(handle.object, '', {}, {}, id);
}

export const nothing = () => ({});
export const count = value => ({ count: Number(value) });
export const ids = jobs => ({ ids: jobs.map(job => String(job.id)) });



/** Is the method (`Class#method`, or `Class.method` for a static one) in this version of BullMQ? */
function available(needs) {
  if (needs === null) {
    return true;
  }
  const [, className, kind, method] = /^(\w+)([#.])(\w+)$/.exec(needs);
  const owner = kind === '#' ? bullmq[className]?.prototype : bullmq[className];
  return typeof owner?.[method] === 'function';
}

/** Names of the operations that this version of BullMQ can do. */
export function declaredOperations() {
  return [...operations.keys()].filter(name => available(operations.get(name).needs)).sort();
}
