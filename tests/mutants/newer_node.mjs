// The oracle's own driver with one planted defect in something that BullMQ 5.62.0, and so the reference, does not have.

const harness = process.env.BULLMQ_CONFORMANCE_HARNESS;
const { bullmq, ioredis } = await import(`${harness}/bullmq.mjs`);
const { Job, Queue, Relay, UnrecoverableError, Worker } = bullmq;

/** Replace a method; `make` gets the healthy one. */
function change(owner, name, make) {
  owner.prototype[name] = make(owner.prototype[name]);
}

/** Change the text of the scripts whose names start so. */
function changeScript(name, from, to) {
  change(ioredis.Redis, 'defineCommand', define => function (command, definition) {
    const changed = command.startsWith(name) ? definition.lua.replace(from, to) : definition.lua;
    return define.call(this, command, { ...definition, lua: changed });
  });
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
  'dedup.last-of-a-failure-lost': () =>
    change(Job, 'moveToFailed', fail => async function (...args) {
      if (this.deduplicationId) await (await this.queue.backend.client).del(this.queue.toKey(`dn:${this.deduplicationId}`));
      return fail.apply(this, args);
    }),
  'retry.resets-both': () =>
    change(Job, 'retry', retry => function (state, opts = {}) {
      const reset = Boolean(opts.resetAttemptsMade || opts.resetAttemptsStarted);
      return retry.call(this, state, { resetAttemptsMade: reset, resetAttemptsStarted: reset });
    }),
  'meter.only-ends': () =>
    change(Job, 'recordJobMetrics', record => function (state) {
      return ['completed', 'failed'].includes(state) ? record.call(this, state) : undefined;
    }),
  'meter.without-state': () =>
    changeMeter(meter => ({
      createCounter: name => ({
        add: (value, { 'bullmq.job.state': _state, ...others }) => meter.createCounter(name).add(value, others),
      }),
    })),
  'meter.seconds': () =>
    changeMeter(meter => ({
      createHistogram: name => ({ record: (ms, others) => meter.createHistogram(name).record(ms / 1000, others) }),
    })),
  'locks.lost-in-silence': () =>
    change(Worker, 'emit', emit => function (name, ...args) {
      return name === 'lockRenewalFailed' ? false : emit.call(this, name, ...args);
    }),
  'relay.delivers-twice': () =>
    change(Relay, 'deliver', deliver => function (...args) {
      deliver.apply(this, args);
      deliver.apply(this, args);
    }),
  'relay.star-without-end': () =>
    change(Relay, 'subscribe', subscribe => function (pattern, listener) {
      return subscribe.call(this, pattern.replace(/\*$/, '>'), listener);
    }),
  'relay.repairs-topics': () =>
    change(Relay, 'publish', publish => function (topic, ...args) {
      return publish.call(this, topic.replaceAll(' ', '-'), ...args);
    }),
  'relay.one-namespace': () =>
    change(Relay, 'start', start => function () {
      this.backend.baseKey = this.backend.namespaceKey('default');
      this.backend.nodesKey = `${this.backend.baseKey}:nodes`;
      return start.call(this);
    }),
  'relay.any-layout': () => change(Relay, 'register', register => function () { return register.call(this).catch(() => {}); }),
  'relay.endless-inbox': () =>
    changeScript('relayPublish', 'rcall("XTRIM", inboxKey, "MAXLEN", nodeMaxLen - 1)', '0'),
  'relay.behind-in-silence': () =>
    change(Relay, 'emit', emit => function (name, ...args) { return name !== 'lag' && emit.call(this, name, ...args); }),
  'relay.endless-keys': () =>
    changeScript('relay', 'rcall("PEXPIREAT", routingKeys[i], nodesUntil)', 'rcall("PERSIST", routingKeys[i])'),
  'relay.recovers-alone': () =>
    change(Relay, 'recover', () => async function () {
      await this.register();
      this.emit('recovered');
    }),
  'relay.sweeps-no-index': () => changeScript('relaySweep', 'pruneRelayNodes(baseKey, 100)', ''),
  'relay.retained-unmarked': () =>
    change(Relay, 'deliver', deliver => function (endpoint, message) {
      return deliver.call(this, endpoint, { ...message, retained: false });
    }),
  'relay.never-unsubscribes': () => change(Relay, 'removeEndpoint', () => async () => {}),
  'relay.counts-patterns': () =>
    change(Relay, 'getCounts', counts => async function () {
      const found = await counts.call(this);
      return { ...found, subscriptions: found.patterns };
    }),
};

/** Record a job's state with another meter, which changes what a `kind` of instrument is given. */
function changeMeter(change) {
  const record = Job.prototype.recordJobMetrics;
  Job.prototype.recordJobMetrics = function (state) {
    const { meter } = this.queue.opts.telemetry ?? {};
    if (!meter) {
      return record.call(this, state);
    }
    const changed = { ...meter, ...change(meter) };
    return record.call({ __proto__: this, queue: { __proto__: this.queue, opts: { telemetry: { meter: changed } } } }, state);
  };
}

DEFECTS[process.argv[2]]();
await import(`${harness}/driver.mjs`);
