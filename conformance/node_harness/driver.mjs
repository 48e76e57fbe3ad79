// The oracle: real BullMQ behind the driver protocol, version 1 (conformance/driver/messages.py and ops/).
//
// JSON lines come in on stdin and go out on stdout; stderr is the log. End of stdin ends the process at once.
// BullMQ is taken from the `node_modules` below the folder named in BULLMQ_CONFORMANCE_MODULES (default: this file's
// folder), so that one file drives 5.62.0 and later versions alike: an operation whose method the package does not
// have is not declared.
//
// Comments name the upstream file (src/classes/*.ts) where a choice here only makes sense with knowledge of it.

import { Console } from 'node:console';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const PROTOCOL_VERSION = 1;
const MAX_LINE_BYTES = 16 * 1024 * 1024;
const CAPABILITIES = ['clock', 'manual-worker', 'managed-worker', 'cluster', 'raw-data'];
/** The part of a call's deadline after which it is answered as undecided. */
const ANSWER_BY = 0.9;
/** How long `reset` waits (real ms) for one handle to let go of its sockets. */
const FORCE_CLOSE_MS = 1000;

// ---------------------------------------------------------------------------------------------------------- stdout
// Only protocol lines may reach stdout. BullMQ and ioredis print warnings (eviction policy, old Redis) with console.

const writeOut = process.stdout.write.bind(process.stdout);
process.stdout.write = process.stderr.write.bind(process.stderr);
globalThis.console = new Console({ stdout: process.stderr, stderr: process.stderr });

function log(message) {
  process.stderr.write(`driver: ${message}\n`);
}

// ----------------------------------------------------------------------------------------------------------- clock
// BullMQ takes job times, delays and back-off from Date. Installed before BullMQ is loaded, so that no module keeps the
// real one. Timers (setTimeout) are never touched: only what the clock shows stands still, not the event loop.

const clock = {
  realNow: Date.now.bind(Date),
  frozenAt: null,
  now() {
    return clock.frozenAt ?? clock.realNow();
  },
  freeze(nowMs) {
    clock.frozenAt = nowMs;
  },
  run() {
    clock.frozenAt = null;
  },
};

function installClock() {
  const RealDate = Date;
  const ClockDate = new Proxy(RealDate, {
    construct(target, args, newTarget) {
      const instant = args.length === 0 ? [clock.now()] : args;
      return Reflect.construct(target, instant, newTarget === ClockDate ? target : newTarget);
    },
    apply() {
      return new RealDate(clock.now()).toString();
    },
  });
  RealDate.now = clock.now;
  globalThis.Date = ClockDate;
}

/** Back-off jitter is the one thing that BullMQ draws at random and that the kit can see: make it repeatable. */
function seedRandom(seed) {
  let state = seed >>> 0;
  Math.random = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

// -------------------------------------------------------------------------------------------------------- raw JSON
// JSON.parse would lose what a text says exactly (large numbers, key order, spaces). BullMQ turns data, progress and
// return values into text with one top-level JSON.stringify each (job.ts, scripts.ts, job-scheduler.ts), so a value
// that carries its own text passes through it unchanged.

class RawJson {
  constructor(text) {
    this.text = text;
  }
}

const stringifyValue = JSON.stringify.bind(JSON);

function installRawJson() {
  JSON.stringify = (value, ...rest) => (value instanceof RawJson ? value.text : stringifyValue(value, ...rest));
}

/** JSON text of what BullMQ hands to its user; null where it has no value at all. */
function jsonText(value) {
  if (value instanceof RawJson) {
    return seenByUser(value.text);
  }
  return stringifyValue(value) ?? null;
}

/** The same where the protocol wants a text: undefined reads as null. */
function requiredText(value) {
  return jsonText(value) ?? 'null';
}

/** A job that was just made still holds the text that was sent; its user would see the parsed value. */
function seenByUser(text) {
  try {
    return stringifyValue(JSON.parse(text));
  } catch {
    return text;
  }
}

// ---------------------------------------------------------------------------------------------------------- BullMQ

installClock();
installRawJson();

const modules = process.env.BULLMQ_CONFORMANCE_MODULES || path.dirname(fileURLToPath(import.meta.url));
const { bullmq, ioredis, version } = loadBullMQ(modules);
const { FlowProducer, Job, Queue, QueueEvents, Worker } = bullmq;

function loadBullMQ(root) {
  try {
    const fromRoot = createRequire(path.join(path.resolve(root), 'driver.cjs'));
    const entry = fromRoot.resolve('bullmq');
    const packageRoot = entry.slice(0, entry.lastIndexOf(`${path.sep}dist${path.sep}`));
    // BullMQ's own ioredis, or else `instanceof` would fail between two copies of it.
    const fromPackage = createRequire(entry);
    return {
      bullmq: fromPackage(entry),
      ioredis: fromPackage('ioredis'),
      version: JSON.parse(readFileSync(path.join(packageRoot, 'package.json'), 'utf8')).version,
    };
  } catch (error) {
    log(`cannot load bullmq from ${root}: ${error.message}`);
    return process.exit(3);
  }
}

/** The scripts behind a Queue, Worker or Job: `scripts` in 5.x, `backend` from 6.0 on. */
function scriptsOf(owner) {
  return owner.scripts ?? owner.backend;
}

// ----------------------------------------------------------------------------------------------------------- lines

function send(message) {
  let line = `${stringifyValue(message)}\n`;
  if (Buffer.byteLength(line) > MAX_LINE_BYTES) {
    log(`a ${message.type} line of ${line.length} characters is longer than the protocol allows`);
    if (message.type !== 'result') {
      return;
    }
    const error = { code: 'other', definite: false, message: 'the answer is longer than a line may be' };
    line = `${stringifyValue({ type: 'result', id: message.id, status: 'info', error })}\n`;
  }
  writeOut(line);
}

function sendEvent(handle, name, args = {}) {
  send({ type: 'event', handle: handle.name, name, args });
}

/** Cuts stdin into lines. A line over the limit is never held in memory as a whole, and never parsed. */
class LineReader {
  constructor(onLine, onTooLong) {
    this.onLine = onLine;
    this.onTooLong = onTooLong;
    this.chunks = [];
    this.size = 0;
  }

  push(chunk) {
    let start = 0;
    for (let end = chunk.indexOf(10); end !== -1; end = chunk.indexOf(10, start)) {
      this.keep(chunk.subarray(start, end));
      this.finish();
      start = end + 1;
    }
    this.keep(chunk.subarray(start));
  }

  keep(part) {
    this.size += part.length;
    if (this.size >= MAX_LINE_BYTES) {
      this.chunks.length = Math.min(this.chunks.length, 1);
    } else if (part.length > 0) {
      this.chunks.push(part);
    }
  }

  finish() {
    const bytes = Buffer.concat(this.chunks);
    const tooLong = this.size >= MAX_LINE_BYTES;
    this.chunks = [];
    this.size = 0;
    if (tooLong) {
      this.onTooLong(bytes.toString('utf8', 0, 256));
    } else if (bytes.length > 0) {
      this.onLine(bytes.toString('utf8'));
    }
  }
}

// ---------------------------------------------------------------------------------------------------------- errors

/** Negative replies of the scripts (src/enums/error-code.ts) as names of the driver protocol. */
const SCRIPT_ERRORS = new Map([
  [-1, 'missing-job'],
  [-2, 'missing-lock'],
  [-3, 'wrong-state'],
  [-4, 'pending-dependencies'],
  [-5, 'missing-parent'],
  [-6, 'lock-mismatch'],
  [-7, 'parent-replaced'],
  [-8, 'scheduler-job'],
  [-9, 'failed-children'],
  [-10, 'scheduler-collision'],
  [-11, 'scheduler-collision'],
]);

const CONNECTION_CODES = new Set(['ECONNREFUSED', 'ECONNRESET', 'EPIPE', 'ETIMEDOUT', 'ENOTFOUND', 'EHOSTUNREACH']);
const CONNECTION_NAMES = new Set(['MaxRetriesPerRequestError', 'ClusterAllFailedError', 'AbortError']);
const CONNECTION_TEXT = /Connection is closed|Stream isn't writeable|ECONNREFUSED|ECONNRESET/i;

/** Texts of errors without a code that BullMQ throws after it has asked Redis. */
const TEXT_ERRORS = [
  [/^Job wait .* timed out before finishing/s, 'timeout'],
  [/^Missing key for job .*\. isFinished$/s, 'missing-job'],
  [/could not be removed because it is locked/, 'lock-mismatch'],
  [/^Cannot obliterate /, 'other'],
  [/same slot/, 'other'],
  [/^Redis version needs to be/, 'other'],
];

/** An error that the driver itself decides on. */
class Refusal extends Error {
  constructor(code, message) {
    super(message);
    this.refusal = code;
  }
}

/** The call has not ended, and may still. */
class Overdue extends Error {}

function messageOf(error) {
  return String(error?.message ?? error);
}

function errorCode(error) {
  if (error instanceof Refusal) {
    return error.refusal;
  }
  if (SCRIPT_ERRORS.has(error?.code)) {
    return SCRIPT_ERRORS.get(error.code);
  }
  const { code, name } = error ?? {};
  if (CONNECTION_CODES.has(code) || CONNECTION_NAMES.has(name) || CONNECTION_TEXT.test(messageOf(error))) {
    return 'connection-lost';
  }
  if (error instanceof Overdue) {
    return 'timeout';
  }
  for (const [pattern, meaning] of TEXT_ERRORS) {
    if (pattern.test(messageOf(error))) {
      return meaning;
    }
  }
  if (name === 'ReplyError' || error instanceof SyntaxError || typeof code === 'number') {
    return 'other';
  }
  // What remains is thrown by BullMQ's own checks of arguments, before anything is sent.
  return 'invalid-argument';
}

/** `definite` is false where Redis may have acted: the connection broke, or a claimed job could not be read. */
function failure(id, error, operation) {
  const code = errorCode(error);
  const claimedButUnreadable = error instanceof SyntaxError && operation.startsWith('worker.');
  const definite = code !== 'connection-lost' && !(error instanceof Overdue) && !claimedButUnreadable;
  const status = definite ? 'fail' : 'info';
  return { type: 'result', id, status, error: { code, definite, message: messageOf(error) } };
}

// ----------------------------------------------------------------------------------------------------------- views

function orNull(value) {
  return value ?? null;
}

function jobView(job) {
  return {
    id: String(job.id),
    name: String(job.name ?? ''),
    data_raw: jsonText(job.data) ?? '',
    opts: job.opts ?? {},
    timestamp: orNull(job.timestamp),
    delay: orNull(job.delay),
    priority: orNull(job.priority),
    attempts_made: orNull(job.attemptsMade),
    attempts_started: orNull(job.attemptsStarted),
    stalled_counter: orNull(job.stalledCounter),
    progress_raw: jsonText(job.progress),
    returnvalue_raw: jsonText(job.returnvalue),
    failed_reason: orNull(job.failedReason),
    stacktrace_length: orNull(job.stacktrace?.length),
    processed_on: orNull(job.processedOn),
    finished_on: orNull(job.finishedOn),
    processed_by: orNull(job.processedBy),
    parent_key: orNull(job.parentKey),
    deduplication_id: orNull(job.deduplicationId),
  };
}

function maybeJob(job) {
  return { job: job ? jobView(job) : null };
}

function schedulerView(scheduler) {
  return {
    key: String(scheduler.key),
    name: String(scheduler.name ?? ''),
    next: orNull(scheduler.next),
    every: orNull(scheduler.every),
    pattern: orNull(scheduler.pattern),
    tz: orNull(scheduler.tz),
    limit: orNull(scheduler.limit),
    start_date: orNull(scheduler.startDate),
    end_date: orNull(scheduler.endDate),
    iteration_count: orNull(scheduler.iterationCount),
    offset: orNull(scheduler.offset),
    template_data_raw: jsonText(scheduler.template?.data),
    template_opts: orNull(scheduler.template?.opts),
  };
}

/** flow-producer.ts leaves holes among the children where a child's hash is gone. */
function flowView(node) {
  const children = (node.children ?? []).filter(Boolean).map(flowView);
  return { id: String(node.job.id), queue: node.job.queueName, children };
}

function flowNode(node) {
  return {
    name: node.name,
    queueName: node.queue,
    data: new RawJson(node.data_raw ?? '{}'),
    opts: node.opts ?? {},
    children: (node.children ?? []).map(flowNode),
  };
}

function newJob({ name, data_raw: dataRaw, opts }) {
  return { name, data: new RawJson(dataRaw ?? '{}'), opts: opts ?? {} };
}

function texts(values, convert) {
  return Object.fromEntries(Object.entries(values ?? {}).map(([key, value]) => [key, convert(value)]));
}

// --------------------------------------------------------------------------------------------------------- handles

/** One BullMQ object that the kit has opened, with the little that the driver must remember about it. */
class Handle {
  constructor(name, role) {
    this.name = name;
    this.role = role;
    this.object = null;
    this.cluster = null;
    /** What the error listener was told last, and when (real ms): why a call does not come to an end. */
    this.lastError = null;
    /** Jobs that a manual worker holds, by id: finishing acts on the job as it was claimed, like a user would. */
    this.claimed = new Map();
    /** Jobs of processor `ask` that wait for `resolve`: by id, the oldest first. */
    this.asked = new Map();
  }

  /** Close as the client's user would. */
  async close(force) {
    await (this.role === 'worker' ? this.object.close(force) : this.object.close());
    await this.cluster?.quit().catch(() => this.cluster.disconnect());
  }

  /** Drop the sockets, whatever state they are in. */
  async abandon() {
    const ignore = error => log(`while abandoning ${this.name}: ${messageOf(error)}`);
    if (this.role === 'worker') {
      await this.object?.close(true).catch(ignore);
    } else if (this.role !== 'events' && this.object?.connection?.close) {
      await this.object.connection.close(true).catch(ignore);
    } else {
      // QueueEvents.close disconnects at once, and tells its reading loop to end.
      await this.object?.close().catch(ignore);
    }
    this.cluster?.disconnect();
  }
}

const handles = new Map();

function handleNamed(name) {
  const handle = handles.get(name);
  if (!handle) {
    throw new Refusal('invalid-argument', `no handle is called ${name}`);
  }
  return handle;
}

async function within(milliseconds, promise, onExpiry) {
  let timer;
  const expiry = new Promise((resolve, reject) => {
    timer = setTimeout(() => Promise.resolve().then(onExpiry).then(resolve, reject), milliseconds);
  });
  try {
    return await Promise.race([promise, expiry]);
  } finally {
    clearTimeout(timer);
  }
}

// ----------------------------------------------------------------------------------------------- connecting handles

function addressParts(address) {
  const separator = address.lastIndexOf(':');
  return { host: address.slice(0, separator), port: Number(address.slice(separator + 1)) };
}

function credentials(redis) {
  return {
    ...(redis.username ? { username: redis.username } : {}),
    ...(redis.password ? { password: redis.password } : {}),
    ...(redis.tls ? { tls: {} } : {}),
  };
}

/** Connection options for BullMQ, or a Cluster object: BullMQ cannot make one by itself (redis-connection.ts). */
function connectionFor(handle, redis) {
  const nodes = redis.nodes.map(addressParts);
  if (redis.mode === 'standalone') {
    return { ...nodes[0], db: redis.db ?? 0, ...credentials(redis) };
  }
  const redisOptions = { ...credentials(redis), maxRetriesPerRequest: null };
  handle.cluster = new ioredis.Cluster(nodes, { redisOptions });
  handle.cluster.on('error', error => log(`cluster of ${handle.name}: ${messageOf(error)}`));
  return handle.cluster;
}

async function openHandle(name, args) {
  if (!name || handles.has(name)) {
    throw new Refusal('invalid-argument', name ? `handle ${name} is already open` : 'open needs a handle');
  }
  const handle = new Handle(name, args.role);
  handles.set(name, handle);
  try {
    handle.ready = connect(handle, args);
    await handle.ready;
  } catch (error) {
    handles.delete(name);
    void within(FORCE_CLOSE_MS, handle.abandon(), () => undefined);
    throw error;
  }
}

async function connect(handle, args) {
  const connection = connectionFor(handle, args.redis);
  const options = { ...args.options, prefix: args.prefix, connection };
  const open = { queue: openQueue, worker: openWorker, events: openEvents, flow: openFlow }[args.role];
  if (!open) {
    throw new Refusal('invalid-argument', `no such role: ${args.role}`);
  }
  await open(handle, args, options);
}

function listenForErrors(handle) {
  handle.object.on('error', error => {
    handle.lastError = { message: messageOf(error), at: clock.realNow() };
    sendEvent(handle, 'error', { message: messageOf(error) });
  });
}

async function openQueue(handle, args, options) {
  handle.object = new Queue(args.queue, options);
  listenForErrors(handle);
  await handle.object.waitUntilReady();
  // The constructor writes `meta` without being awaited (queue.ts). A read on the same connection comes after it.
  await handle.object.getVersion();
}

async function openFlow(handle, args, options) {
  handle.object = new FlowProducer(options);
  listenForErrors(handle);
  await handle.object.waitUntilReady();
}

async function openWorker(handle, args, options) {
  const processor = args.processor ?? 'manual';
  if (processor !== 'manual' && !PROCESSORS[processor]) {
    throw new Refusal('invalid-argument', `no such processor: ${processor}`);
  }
  const run = processor === 'manual' ? null : PROCESSORS[processor](handle, args.processor_args ?? {});
  const manual = processor === 'manual' ? { autorun: false } : {};
  handle.object = new Worker(args.queue, run, { ...options, ...manual });
  listenForErrors(handle);
  listenForWorkerEvents(handle);
  await handle.object.waitUntilReady();
}

function listenForWorkerEvents(handle) {
  const worker = handle.object;
  for (const name of ['active', 'completed', 'failed']) {
    worker.on(name, job => sendEvent(handle, name, { job: String(job?.id ?? '') }));
  }
  worker.on('stalled', id => sendEvent(handle, 'stalled', { job: String(id) }));
  for (const name of ['drained', 'paused', 'resumed', 'closed']) {
    worker.on(name, () => sendEvent(handle, name));
  }
}

async function openEvents(handle, args, options) {
  const { autorun = true, ...rest } = options;
  handle.object = new QueueEvents(args.queue, { ...rest, autorun: false });
  listenForErrors(handle);
  forwardStreamEntries(handle);
  await handle.object.waitUntilReady();
  // `$` would mean "from the moment that XREAD arrives", which is some time after this call is answered.
  handle.object.opts.lastEventId ??= await lastStreamId(handle, args);
  if (autorun) {
    handle.object.run().catch(error => handle.object.emit('error', error));
  }
}

async function lastStreamId(handle, args) {
  const client = handle.cluster ?? new ioredis.Redis(connectionFor(handle, args.redis));
  try {
    const [last] = await client.xrevrange(`${args.prefix}:${args.queue}:events`, '+', '-', 'COUNT', 1);
    return last ? last[0] : '0-0';
  } finally {
    if (client !== handle.cluster) {
      client.disconnect();
    }
  }
}

/** queue-events.ts emits an entry under its event name first, then again as `name:jobId`; names are not known ahead. */
function forwardStreamEntries(handle) {
  const events = handle.object;
  const emit = events.emit.bind(events);
  let lastId = null;
  events.emit = (name, ...args) => {
    const id = args.at(-1);
    if (typeof id === 'string' && /^\d+-\d+$/.test(id) && id !== lastId) {
      lastId = id;
      const fields = args.length > 1 ? args[0] : {};
      sendEvent(handle, 'queue-event', { name: String(name), event_id: id, fields });
    }
    return emit(name, ...args);
  };
}

// ------------------------------------------------------------------------------------------------------ processors
// What a managed worker does with a job. Each entry makes the function that BullMQ calls as (job, token).

const pause = milliseconds => new Promise(resolve => setTimeout(resolve, milliseconds));

const PROCESSORS = {
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

function resolveAsked(handle, args) {
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

// ------------------------------------------------------------------------------------------------------ operations
// Every operation: the roles of handle that it works on, the BullMQ method that must exist, and what it does.

const operations = new Map();

function define(name, roles, needs, run) {
  operations.set(name, { roles, needs, run });
}

function onQueue(name, run, needs = `Queue#${name}`) {
  define(`queue.${name}`, ['queue'], needs, ({ object }, args) => run(object, args));
}

/** A job operation works on a queue handle, and on a worker handle for jobs that are bound to the worker. */
function onJob(name, run, needs = `Job#${name}`) {
  const onFound = async (handle, args) => run(await findJob(handle, args.job), args, handle);
  define(`job.${name}`, ['queue', 'worker'], needs, onFound);
}

function onWorker(name, run, needs = `Worker#${name}`) {
  define(`worker.${name}`, ['worker'], needs, (handle, args) => run(handle.object, args, handle));
}

/** A worker's operations on a job that it holds. Whatever ends its work on the job makes the driver forget the job. */
function onHeldJob(name, run) {
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
async function findJob(handle, id) {
  const held = handle.claimed.get(id) ?? (await Job.fromId(handle.object, id));
  return held ?? new Job(handle.object, '', {}, {}, id);
}

const nothing = () => ({});
const count = value => ({ count: Number(value) });
const ids = jobs => ({ ids: jobs.map(job => String(job.id)) });

// Queue: adding, and control of the whole queue (queue.ts)

onQueue('add', async (queue, a) => {
  const { name, data, opts } = newJob(a);
  return { id: String((await queue.add(name, data, opts)).id) };
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

// Queue: reading (queue-getters.ts)

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
onQueue('getVersion', async queue => ({ value: orNull(await queue.getVersion()) }));
onQueue('getDeduplicationJobId', async (queue, a) => ({ value: orNull(await queue.getDeduplicationJobId(a.id)) }));
onQueue('getWorkers', async queue => {
  // The connection is called `prefix:base64(queue)`, with `:w:name` behind it if the worker has a name (worker.ts).
  const workers = await queue.getWorkers();
  return { names: workers.map(({ rawname = '' }) => rawname.split(':w:').slice(1).join(':w:')) };
});
onQueue('getWorkersCount', async queue => count(await queue.getWorkersCount()));

// Job schedulers (job-scheduler.ts)

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
onQueue('removeJobScheduler', async (queue, a) => ({ value: await queue.removeJobScheduler(a.id) }));

// One job (job.ts)

onJob('updateData', (job, a) => job.updateData(new RawJson(a.data_raw)).then(nothing));
onJob('updateProgress', (job, a) => job.updateProgress(new RawJson(a.value_raw)).then(nothing));
define('job.log', ['queue', 'worker'], 'Job.addJobLog', async ({ object }, a) =>
  count(await Job.addJobLog(object, a.job, a.row, a.keep_logs ?? undefined)),
);
onJob('clearLogs', (job, a) => job.clearLogs(a.keep_logs ?? undefined).then(nothing));
onJob('promote', job => job.promote().then(nothing));
onJob('changeDelay', (job, a) => job.changeDelay(a.delay_ms).then(nothing));
onJob('changePriority', (job, a) => job.changePriority({ priority: a.priority, lifo: a.lifo ?? false }).then(nothing));
onJob('retry', (job, a) => job.retry(a.state ?? 'failed').then(nothing));
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
  const { processed, unprocessed, ignored, failed } = await job.getDependenciesCount(wanted);
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

// Workers, one step at a time (worker.ts, job.ts)

onWorker('getNextJob', async (worker, a, handle) => {
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

/** The method of the worker tells what it recovered only by its local events. */
async function checkStalled(worker) {
  const recovered = [];
  const note = id => recovered.push(String(id));
  worker.on('stalled', note);
  try {
    await worker.moveStalledJobsToWait();
  } finally {
    worker.off('stalled', note);
  }
  return { ids: recovered };
}

// Flows (flow-producer.ts)

define('flow.add', ['flow'], 'FlowProducer#add', async ({ object }, a) => flowView(await object.add(flowNode(a.flow))));
define('flow.addBulk', ['flow'], 'FlowProducer#addBulk', async ({ object }, a) => {
  return { flows: (await object.addBulk(a.flows.map(flowNode))).map(flowView) };
});
define('flow.getFlow', ['flow'], 'FlowProducer#getFlow', async ({ object }, a) => {
  const wanted = { id: a.job, queueName: a.queue, depth: a.depth ?? 10, maxChildren: a.max_children ?? 20 };
  const flow = await object.getFlow(wanted);
  return { flow: flow ? flowView(flow) : null };
});

// Handles

define('open', null, null, (handle, args, call) => openHandle(call.handle, args).then(nothing));
define('close', ['queue', 'worker', 'events', 'flow'], null, async (handle, a) => {
  await handle.close(a.force ?? false);
  handles.delete(handle.name);
  return {};
});
define('resolve', ['worker'], null, resolveAsked);
define('reset', null, null, async () => {
  const open = [...handles.values()];
  handles.clear();
  clock.run();
  await Promise.all(open.map(handle => within(FORCE_CLOSE_MS, handle.abandon(), () => undefined)));
  return {};
});

/** Is the method (`Class#method`, or `Class.method` for a static one) in this version of BullMQ? */
function available(needs) {
  if (needs === null) {
    return true;
  }
  const [, className, kind, method] = /^(\w+)([#.])(\w+)$/.exec(needs);
  const owner = kind === '#' ? bullmq[className]?.prototype : bullmq[className];
  return typeof owner?.[method] === 'function';
}

const declared = [...operations.keys()].filter(name => available(operations.get(name).needs)).sort();

// ------------------------------------------------------------------------------------------------------------ main

async function perform(call) {
  const { roles, run } = operations.get(call.op);
  if (roles === null) {
    return run(null, call.args ?? {}, call);
  }
  const handle = handleNamed(call.handle);
  if (!roles.includes(handle.role)) {
    throw new Refusal('invalid-argument', `${call.op} does not work on ${handle.name}, which is a ${handle.role}`);
  }
  await handle.ready;
  return run(handle, call.args ?? {}, call);
}

/**
 * ioredis tries again for ever. A call that Redis does not let finish is answered shortly before the kit would give up,
 * because nobody knows then whether it happens.
 */
async function performInTime(call) {
  const limit = (call.deadline_ms ?? 5000) * ANSWER_BY;
  const started = clock.realNow();
  return within(limit, perform(call), () => {
    const seen = handles.get(call.handle)?.lastError;
    if (call.op === 'open') {
      const handle = handles.get(call.handle);
      handles.delete(call.handle);
      void handle?.abandon();
    }
    const reason = seen && seen.at >= started ? seen.message : 'no answer';
    throw new Overdue(`${call.op} did not end within ${Math.round(limit)} ms: ${reason}`);
  });
}

async function answer(call) {
  if (!declared.includes(call.op)) {
    const reason = operations.has(call.op) ? `bullmq ${version} has no such method` : 'unknown operation';
    send({ type: 'result', id: call.id, status: 'unsupported', reason });
    return;
  }
  if (typeof call.now_ms === 'number') {
    clock.freeze(call.now_ms);
  }
  try {
    send({ type: 'result', id: call.id, status: 'ok', value: await performInTime(call) });
  } catch (error) {
    send(failure(call.id, error, call.op));
  }
}

function greet(hello) {
  if (hello.protocol !== PROTOCOL_VERSION) {
    log(`the kit speaks protocol ${hello.protocol}, this driver ${PROTOCOL_VERSION}`);
  }
  seedRandom(Number(hello.seed) || 0);
  const client = { name: 'bullmq', language: 'javascript', version, targets: version };
  send({ type: 'ready', protocol: PROTOCOL_VERSION, client, ops: declared, capabilities: CAPABILITIES });
}

function receive(line) {
  let message;
  try {
    message = JSON.parse(line);
  } catch (error) {
    log(`a line is not JSON: ${error.message}`);
    return;
  }
  if (message?.type === 'hello') {
    greet(message);
  } else if (message?.type === 'call') {
    void answer(message);
  } else {
    log(`a line of unknown type ${message?.type}`);
  }
}

function refuseLongLine(head) {
  log(`refused a line of more than ${MAX_LINE_BYTES} bytes`);
  const id = /"id"\s*:\s*(\d+)/.exec(head);
  if (id) {
    send(failure(Number(id[1]), new Refusal('invalid-argument', `a line may have ${MAX_LINE_BYTES} bytes`), ''));
  }
}

process.on('uncaughtException', error => log(`uncaught: ${error?.stack ?? error}`));
process.on('unhandledRejection', error => log(`unhandled rejection: ${error?.stack ?? error}`));
process.stdout.on('error', () => process.exit(0));

const lines = new LineReader(receive, refuseLongLine);
process.stdin.on('data', chunk => lines.push(chunk));
process.stdin.on('end', () => process.exit(0));
