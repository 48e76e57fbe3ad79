// The oracle's own driver with one planted defect in something that BullMQ 5.62.0, and so the reference, does not have.

const harness = process.env.BULLMQ_CONFORMANCE_HARNESS;
const { bullmq } = await import(`${harness}/bullmq.mjs`);
const { Job, Queue, UnrecoverableError, Worker } = bullmq;

/** Replace a method; `make` gets the healthy one. */
function change(owner, name, make) {
  owner.prototype[name] = make(owner.prototype[name]);
}

const DEFECTS = {
  'cancel.answers-only': () => change(Worker, 'cancelJob', () => () => true),
  'cancel.without-reason': () => change(Worker, 'cancelJob', cancel => function (id) { return cancel.call(this, id); }),
  'cancel.knows-every-job': () =>
    change(Worker, 'cancelJob', cancel => function (...args) { return cancel.apply(this, args) || true; }),
  'cancel.all-but-one': () =>
    change(Worker, 'cancelAllJobs', () => function (reason) {
      const [first] = this.lockManager.trackedJobs.keys();
      this.cancelJob(first, reason);
    }),
  'cancel.never-retried': () =>
    change(Job, 'moveToFailed', fail => function (error, ...args) {
      return fail.call(this, error.message === 'cancelled' ? new UnrecoverableError(error.message) : error, ...args);
    }),
  'meta.without-limit': () =>
    change(Queue, 'getMeta', getMeta => async function () { return { ...(await getMeta.call(this)), max: undefined }; }),
  'orphans.kept': () => change(Queue, 'removeOrphanedJobs', () => async () => 0),
  'orphans.without-limit': () =>
    change(Queue, 'removeOrphanedJobs', remove => function (count) { return remove.call(this, count); }),
  'dedup.frees-foreign-id': () =>
    change(Job, 'removeDeduplicationKey', () => async function () {
      return (await this.queue.removeDeduplicationKey(this.deduplicationId)) > 0;
    }),
  'retry.resets-both': () =>
    change(Job, 'retry', retry => function (state, opts = {}) {
      const reset = Boolean(opts.resetAttemptsMade || opts.resetAttemptsStarted);
      return retry.call(this, state, { resetAttemptsMade: reset, resetAttemptsStarted: reset });
    }),
  'locks.lost-in-silence': () =>
    change(Worker, 'emit', emit => function (name, ...args) {
      return name === 'lockRenewalFailed' ? false : emit.call(this, name, ...args);
    }),
};

DEFECTS[process.argv[2]]();
await import(`${harness}/driver.mjs`);
