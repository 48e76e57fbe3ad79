// BullMQ for Node.js with bullmq-otel: takes the steps of `steps.py`, or one side of a crossing, and prints the spans.
//
//   node peer.mjs FOLDER HOST:PORT PREFIX steps|add|work
//
// FOLDER has the packages of package.json. The last line of the output is {spans, seen}.

import { createRequire } from 'node:module';
import path from 'node:path';

const [folder, address, prefix, role] = process.argv.slice(2);
const require = createRequire(path.join(path.resolve(folder), 'peer.cjs'));
const { Queue, Worker, FlowProducer } = require('bullmq');
const { BullMQOtel } = require('bullmq-otel');
const { context, propagation, trace } = require('@opentelemetry/api');
const { AsyncLocalStorageContextManager } = require('@opentelemetry/context-async-hooks');
const { CompositePropagator, W3CBaggagePropagator, W3CTraceContextPropagator } = require('@opentelemetry/core');
const { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } = require('@opentelemetry/sdk-trace-base');

const KINDS = ['INTERNAL', 'SERVER', 'CLIENT', 'PRODUCER', 'CONSUMER'];
const HOUR = 3_600_000;

const exporter = new InMemorySpanExporter();
trace.setGlobalTracerProvider(new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] }));
context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
propagation.setGlobalPropagator(
  new CompositePropagator({ propagators: [new W3CTraceContextPropagator(), new W3CBaggagePropagator()] }),
);

const [host, port] = address.split(':');
const opts = { connection: { host, port: Number(port) }, prefix, telemetry: new BullMQOtel('peer', '1') };
const tracer = trace.getTracer('program');
const closing = [];
const opened = (it) => (closing.unshift(it), it);

function inSpan(name, act) {
  return tracer.startActiveSpan(name, async (span) => {
    try {
      return await act();
    } finally {
      span.end();
    }
  });
}

function shown(span) {
  return {
    name: span.name,
    kind: KINDS[span.kind],
    trace: span.spanContext().traceId,
    id: span.spanContext().spanId,
    parent: span.parentSpanId ?? null,
    attributes: span.attributes,
    events: span.events.map((event) => [event.name, event.attributes ?? {}]),
  };
}

const until = async (condition, what) => {
  for (const end = Date.now() + 30_000; !(await condition()); ) {
    if (Date.now() > end) throw new Error(`waited in vain for ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
};

async function optionsOf(queue, ids) {
  const client = await queue.client;
  const texts = await Promise.all(ids.map((id) => client.hget(queue.toKey(id), 'opts')));
  return texts;
}

async function adding(seen) {
  const queue = opened(new Queue('q', opts));
  const withDefaults = opened(
    new Queue('q', { ...opts, defaultJobOptions: { telemetry: { omitContext: true }, attempts: 2 } }),
  );
  const ids = [];
  await inSpan('adding', async () => {
    ids.push((await queue.add('single', 1)).id);
    ids.push((await queue.add('silent', 1, { telemetry: { omitContext: true } })).id);
    ids.push((await queue.add('own', 1, { telemetry: { metadata: 'mine' }, attempts: 3 })).id);
    ids.push((await withDefaults.add('defaults', 1)).id);
    const several = [
      { name: 'plain', data: 1 },
      { name: 'own', data: 1, opts: { telemetry: { metadata: 'mine' } } },
      { name: 'silent', data: 1, opts: { telemetry: { omitContext: true }, lifo: true } },
      { name: 'both', data: 1, opts: { telemetry: { metadata: 'mine', omitContext: true } } },
    ];
    for (const each of [queue, withDefaults]) ids.push(...(await each.addBulk(several)).map((job) => job.id));
  });
  const untraced = opened(
    new Queue('q', { connection: opts.connection, prefix, defaultJobOptions: { telemetry: { omitContext: true } } }),
  );
  ids.push((await untraced.add('untraced', 1)).id, ...(await untraced.addBulk([{ name: 'untraced', data: 1 }])).map((job) => job.id));
  seen.adding = await optionsOf(queue, ids);
}

async function refusals() {
  const queue = opened(new Queue('q', opts));
  await queue.add('refused', 1, { jobId: '0' }).catch(() => {});
}

async function operating() {
  const queue = opened(new Queue('operated', opts));
  await queue.add('one', 1, { delay: HOUR });
  await queue.pause();
  await queue.resume();
  await queue.updateJobProgress('1', { half: true });
  await queue.promoteJobs();
  await queue.retryJobs({ state: 'failed', count: 5 });
  await queue.remove('1');
  await queue.drain();
  await queue.clean(0, 10, 'completed');
  await queue.trimEvents(7);
  await queue.removeDeduplicationKey('d');
  await queue.removeDebounceKey('d');
  await queue.removeRepeatable('one', { every: HOUR });
  await queue.removeRepeatableByKey('key');
  await queue.obliterate();
}

async function flowing(seen) {
  const producer = opened(new FlowProducer(opts));
  const flow = (root) => ({
    name: root,
    queueName: 'parents',
    opts: { jobId: root },
    children: [
      { name: 'without-options', queueName: 'children' },
      { name: 'silent', queueName: 'children', opts: { jobId: `${root}-silent`, telemetry: { omitContext: true } } },
      {
        name: 'nested',
        queueName: 'children',
        opts: { jobId: `${root}-nested` },
        children: [{ name: 'leaf', queueName: 'children', opts: { jobId: `${root}-leaf`, telemetry: { metadata: 'mine' } } }],
      },
    ],
  });
  const defaults = { children: { defaultJobOptions: { telemetry: { omitContext: true }, attempts: 2 } } };
  await producer.add(flow('root'), { queuesOptions: defaults });
  await producer.addBulk([flow('first'), flow('second')]);
  const parents = opened(new Queue('parents', opts));
  const children = opened(new Queue('children', opts));
  const names = ['root', 'first', 'second'];
  seen.flows = [
    ...(await optionsOf(parents, names)),
    ...(await optionsOf(children, names.flatMap((name) => ['silent', 'nested', 'leaf'].map((end) => `${name}-${end}`)))),
  ];
}

async function byHand(seen) {
  const queue = opened(new Queue('hand', opts));
  const worker = opened(new Worker('hand', undefined, { ...opts, name: 'hands', autorun: false }));
  const take = async () => worker.getNextJob('token');
  await inSpan('preparing', () =>
    queue.addBulk([
      { name: 'completes', data: 1 },
      { name: 'fails', data: 1 },
      { name: 'fails-silently', data: 1, opts: { telemetry: { omitContext: true } } },
      { name: 'is-delayed', data: 1, opts: { attempts: 2, backoff: HOUR } },
      { name: 'is-retried', data: 1, opts: { attempts: 2 } },
    ]),
  );
  await inSpan('finishing', async () => {
    await (await take()).moveToCompleted({ done: true }, 'token', false);
    for (let count = 0; count < 4; count++) await (await take()).moveToFailed(new Error('no luck'), 'token', false);
  });
  await worker.rateLimit(1000);
  const client = await queue.client;
  seen.failed = await Promise.all(['1', '2', '3', '4', '5'].map((id) => client.hget(queue.toKey(id), 'tm')));
}

async function working(seen) {
  const queue = opened(new Queue('worked', opts));
  await inSpan('ordering', async () => {
    await queue.add('completes', 1);
    await queue.add('fails', 1);
    await queue.upsertJobScheduler('tick', { every: HOUR }, { name: 'tick', data: 1 });
  });
  await queue.upsertJobScheduler('silent', { every: HOUR }, { data: 1, opts: { telemetry: { omitContext: true } } });
  const process = async (job) =>
    inSpan('inside', async () => {
      if (job.name === 'fails') throw new Error('no luck');
      return { done: job.name };
    });
  const worker = opened(new Worker('worked', process, { ...opts, name: 'hands', autorun: false }));
  worker.run();
  const done = (count) => until(async () => (await queue.getJobCountByTypes('completed', 'failed')) === count, `${count} jobs`);
  await done(4);
  await worker.pause(false);
  await queue.add('last', 1);
  worker.resume();
  await done(5);
  await worker.close();
  const client = await queue.client;
  const ids = await client.zrange(queue.toKey('delayed'), 0, -1);
  seen.scheduled = (await optionsOf(queue, ids)).sort();
}

async function takeSteps(seen) {
  for (const step of [adding, refusals, operating, flowing, byHand, working]) await step(seen);
}

async function addOne(seen) {
  const queue = opened(new Queue('q', opts));
  const job = await inSpan('request', () => queue.add('crossing', 1));
  [seen.options] = await optionsOf(queue, [job.id]);
}

async function workOne() {
  const worker = opened(new Worker('q', async () => inSpan('inside', async () => 'done'), opts));
  await new Promise((resolve) => worker.once('completed', resolve));
}

const seen = {};
try {
  await { steps: takeSteps, add: addOne, work: workOne }[role](seen);
} finally {
  for (const each of closing) await each.close();
}
process.stdout.write(`${JSON.stringify({ spans: exporter.getFinishedSpans().map(shown), seen })}\n`, () => process.exit(0));
