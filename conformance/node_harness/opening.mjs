// From the arguments of `open` to a BullMQ object that is connected and listened to.

import { FlowProducer, Queue, QueueEvents, Worker, bullmq, ioredis } from './bullmq.mjs';
import { clock } from './clock.mjs';
import { Refusal, messageOf } from './errors.mjs';
import { Handle, abandonInTime, handles, sharedClients } from './handles.mjs';
import { log, sendEvent } from './lines.mjs';
import { meterOf } from './meter.mjs';
import { PROCESSORS, startNormallyLater } from './processors.mjs';
import { newClient } from './redis_clients.mjs';

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

function urlOf(redis) {
  const part = encodeURIComponent;
  const login = redis.password ? `${part(redis.username ?? '')}:${part(redis.password)}@` : '';
  return `${redis.tls ? 'rediss' : 'redis'}://${login}${redis.nodes[0]}/${redis.db ?? 0}`;
}

/** The client of the user that all handles with this address share; `reset` closes it. */
function sharedClient(redis, options) {
  const key = JSON.stringify(redis);
  if (!sharedClients.has(key)) {
    const client = newClient(options);
    client.on('error', error => log(`shared client: ${messageOf(error)}`));
    sharedClients.set(key, client);
  }
  return sharedClients.get(key);
}

/** Connection options for BullMQ, or a Cluster object: BullMQ cannot make one by itself (redis-connection.ts). */
function connectionFor(handle, redis) {
  const nodes = redis.nodes.map(addressParts);
  if (redis.mode === 'standalone') {
    const impatient = redis.fail_fast ? { maxRetriesPerRequest: 1 } : {};
    const options = { ...nodes[0], db: redis.db ?? 0, ...credentials(redis), ...impatient };
    const forms = {
      url: () => ({ url: urlOf(redis), ...impatient }),
      client: () => sharedClient(redis, { ...options, maxRetriesPerRequest: null }),
    };
    return forms[redis.form]?.() ?? options;
  }
  // BullMQ refuses connections of workers that give up on a blocking command.
  const redisOptions = { ...credentials(redis), maxRetriesPerRequest: null };
  handle.cluster = new ioredis.Cluster(nodes, { redisOptions });
  handle.cluster.on('error', error => log(`cluster of ${handle.name}: ${messageOf(error)}`));
  return handle.cluster;
}

export async function openHandle(name, args) {
  if (!name || handles.has(name)) {
    throw new Refusal('invalid-argument', name ? `handle ${name} is already open` : 'open needs a handle');
  }
  const handle = new Handle(name, args.role);
  // Before it is connected: a second `open` of the name must be refused meanwhile.
  handles.set(name, handle);
  try {
    handle.ready = connect(handle, args);
    await handle.ready;
  } catch (error) {
    handles.delete(name);
    void abandonInTime(handle);
    throw error;
  }
}

async function connect(handle, args) {
  const connection = connectionFor(handle, args.redis);
  const telemetry = args.meter ? { telemetry: meterOf(handle) } : {};
  const options = { ...args.options, ...telemetry, prefix: args.prefix, connection };
  const open = { queue: openQueue, worker: openWorker, events: openEvents, flow: openFlow, relay: openRelay }[args.role];
  if (!open) {
    throw new Refusal('invalid-argument', `no such role: ${args.role}`);
  }
  await open(handle, args, options);
}

function listenForErrors(handle, { unheard = false }) {
  if (unheard) {
    return;
  }
  handle.object.on('error', error => {
    handle.lastError = { message: messageOf(error), at: clock.realNow() };
    sendEvent(handle, 'error', { message: messageOf(error) });
  });
}

async function openQueue(handle, args, options) {
  handle.object = new Queue(args.queue, options);
  listenForErrors(handle, args);
  listenForQueueEvents(handle);
  if (options.skipWaitingForReady) {
    return;
  }
  await handle.object.waitUntilReady();
  // The constructor writes `meta` without being awaited (queue.ts). A read on the same connection comes after it.
  // Releases before 5.20 have no `getVersion`.
  await (handle.object.getVersion ? handle.object.getVersion() : handle.object.count());
}

async function openFlow(handle, args, options) {
  handle.object = new FlowProducer(options);
  listenForErrors(handle, args);
  if (!options.skipWaitingForReady) {
    await handle.object.waitUntilReady();
  }
}

async function openRelay(handle, args, options) {
  handle.object = new bullmq.Relay(options);
  listenForErrors(handle, args);
  const relay = handle.object;
  relay.on('recovered', () => sendEvent(handle, 'recovered'));
  relay.on('swept', nodes => sendEvent(handle, 'swept', { nodes }));
  relay.on('lag', unread => sendEvent(handle, 'lag', { unread }));
  await relay.waitUntilReady();
}

async function openWorker(handle, args, options) {
  const processor = args.processor ?? 'manual';
  if (processor !== 'manual' && !PROCESSORS[processor]) {
    throw new Refusal('invalid-argument', `no such processor: ${processor}`);
  }
  const run = processor === 'manual' ? null : PROCESSORS[processor](handle, args.processor_args ?? {});
  const manual = processor === 'manual' ? { autorun: false } : {};
  handle.object = new Worker(args.queue, run, { ...options, ...manual });
  startNormallyLater(handle.object, args.processor_args ?? {});
  listenForErrors(handle, args);
  listenForWorkerEvents(handle);
  await handle.object.waitUntilReady();
}

function listenForQueueEvents(handle) {
  const queue = handle.object;
  queue.on('removed', id => sendEvent(handle, 'removed', { job: String(id) }));
  // Job#updateProgress emits the job, Queue#updateJobProgress its id.
  queue.on('progress', job => sendEvent(handle, 'progress', { job: String(job?.id ?? job) }));
  for (const name of ['paused', 'resumed']) {
    queue.on(name, () => sendEvent(handle, name));
  }
}

function listenForWorkerEvents(handle) {
  const worker = handle.object;
  for (const name of ['active', 'completed', 'failed']) {
    worker.on(name, job => sendEvent(handle, name, { job: String(job?.id ?? '') }));
  }
  worker.on('stalled', id => sendEvent(handle, 'stalled', { job: String(id) }));
  worker.on('locksRenewed', ({ jobIds }) => sendEvent(handle, 'locksRenewed', { jobs: jobIds.map(String) }));
  worker.on('lockRenewalFailed', ids => sendEvent(handle, 'lockRenewalFailed', { jobs: ids.map(String) }));
  for (const name of ['drained', 'paused', 'resumed', 'closed']) {
    worker.on(name, () => sendEvent(handle, name));
  }
}

async function openEvents(handle, args, options) {
  const { autorun = true, ...rest } = options;
  handle.object = new QueueEvents(args.queue, { ...rest, autorun: false });
  listenForErrors(handle, args);
  forwardStreamEntries(handle);
  await handle.object.waitUntilReady();
  // `$` would mean "from the moment that XREAD arrives", which is some time after this call is answered.
  handle.object.opts.lastEventId ??= await lastStreamId(handle, args);
  if (autorun) {
    handle.object.run().catch(error => handle.object.emit('error', error));
  }
}

async function lastStreamId(handle, args) {
  const client = handle.cluster ?? new ioredis.Redis(connectionFor(handle, { ...args.redis, form: 'options' }));
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
