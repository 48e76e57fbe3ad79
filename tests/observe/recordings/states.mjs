// Brings queues into states of every kind with real BullMQ, for the recordings in this folder.
// Usage: node states.mjs <folder with node_modules/bullmq> <prefix> <redis port> [frozen]
// `frozen`: Date.now stands still at 1700000000000 and moves only where a step says so.
import { createRequire } from 'node:module';
import path from 'node:path';

const [folder, prefix, port, frozen] = process.argv.slice(2);
const require = createRequire(path.join(path.resolve(folder), 'index.js'));
const { Queue, Worker, FlowProducer, UnrecoverableError } = require('bullmq');

let now = 1700000000000;
if (frozen === 'frozen') Date.now = () => now;
const tick = (ms) => { now += ms; };

const options = { connection: { host: '127.0.0.1', port: Number(port) }, prefix };
const opened = [];
const keep = (thing) => { opened.push(thing); return thing; };
const queue = (name) => keep(new Queue(name, options));
const worker = (name, extra = {}) =>
  keep(new Worker(name, undefined, { ...options, autorun: false, lockDuration: 60000, ...extra }));
const finish = async (w, token, value) => (await w.getNextJob(token)).moveToCompleted(value, token, false);
const fail = async (w, token, error) => (await w.getNextJob(token)).moveToFailed(error, token, false);

async function plain() {
  const q = queue('plain');
  await q.add('a', { x: 1, big: 'y'.repeat(100) });
  await q.add('b', null, { lifo: true, attempts: 3, backoff: 100 });
  await q.addBulk([
    { name: 'c', data: [1, 2] },
    { name: 'd', data: {}, opts: { jobId: 'cust' } },
    { name: 'e', data: {}, opts: { delay: 5000 } },
  ]);
  await q.add('dup', {}, { jobId: 'cust' });
  await q.add('f', {}, { delay: 5000 });
  await q.add('g', {}, { priority: 5 });
  await q.add('h', {}, { priority: 1 });
  await q.add('i', {}, { priority: -3 });
  await q.add('neg', {}, { delay: -5 });
  await q.add('ts', {}, { timestamp: 1690000000000 });
  const w = worker('plain', { name: 'named', metrics: { maxDataPoints: 10 } });
  const job = await w.getNextJob('t0');
  tick(5);
  await job.updateProgress({ p: 1 });
  await job.log('row 1');
  await job.log('row 2');
  await job.moveToCompleted({ ok: 1 }, 't0', false);
  await fail(w, 't1', new Error('boom'));
  tick(3);
  await fail(w, 't2', new UnrecoverableError('cannot be mended'));
  await w.getNextJob('t3');
}

async function retries() {
  const q = queue('retry');
  const w = worker('retry');
  await q.add('at once', {}, { attempts: 3 });
  await fail(w, 'a', new Error('first'));
  await fail(w, 'b', new Error('second'));
  await q.add('with back-off', {}, { attempts: 3, backoff: { type: 'exponential', delay: 20000 } });
  await fail(w, 'c', new Error('third'));
  await fail(w, 'd', new Error('fourth'));
  await q.add('postponed', {});
  await (await w.getNextJob('e')).moveToDelayed(Date.now() + 30000, 'e');
  await q.add('put back', {}, { priority: 3 });
  await (await w.getNextJob('f')).moveToWait('f');
  await q.add('without token', {});
  await (await w.getNextJob('g')).moveToDelayed(Date.now() + 40000);
  await (await q.add('delay changed', {}, { delay: 9000 })).changeDelay(70000);
  await (await q.add('priority changed', {}, { priority: 9 })).changePriority({ priority: 4 });
  await (await q.add('to the front', {}, { priority: 9 })).changePriority({ priority: 4, lifo: true });
  await (await q.add('promoted', {}, { delay: 9000, priority: 2 })).promote();
  await (await q.add('promoted too', {}, { delay: 9000 })).promote();
  await (await q.add('removed', {}, { delay: 9000 })).remove();
}

async function queueSettings() {
  const kept = queue('keep');
  const w = worker('keep');
  await kept.add('a', {}, { removeOnComplete: true });
  await kept.add('b', {}, { removeOnFail: true });
  await finish(w, 'a', 'v');
  await fail(w, 'a', new Error('gone'));
  const paused = queue('paused');
  await paused.add('a', {});
  await paused.pause();
  await paused.add('b', {});
  await paused.add('c', {}, { priority: 3 });
  await paused.add('d', {}, { delay: 8000 });
  const resumed = queue('resumed');
  await resumed.pause();
  await resumed.add('a', {});
  await resumed.add('b', {}, { delay: 8000 });
  await resumed.resume();
  const maxed = queue('maxed');
  await maxed.setGlobalConcurrency(1);
  await maxed.add('a', {});
  await worker('maxed').getNextJob('z');
  await maxed.add('b', {});
  const limited = queue('limited');
  await limited.addBulk([{ name: 'a', data: {} }, { name: 'b', data: {} }, { name: 'c', data: {} }]);
  const slow = worker('limited', { limiter: { max: 1, duration: 60000 } });
  await slow.getNextJob('z');
  await slow.getNextJob('y');
  const blocked = queue('blocked');
  await blocked.setGlobalRateLimit(2, 60000);
  await blocked.rateLimit(50000);
}

async function deduplication() {
  const q = queue('dedup');
  for (let i = 0; i < 2; i += 1) await q.add('1', {}, { deduplication: { id: 'simple' } });
  await q.add('2', {}, { deduplication: { id: 'ttl', ttl: 60000 } });
  await q.add('2', {}, { deduplication: { id: 'ttl', ttl: 60000, extend: true } });
  for (let i = 0; i < 2; i += 1) await q.add('3', {}, { delay: 9000, deduplication: { id: 'replace', replace: true } });
  await q.add('5', {}, { removeOnComplete: true, lifo: true, deduplication: { id: 'gone', ttl: 60000 } });
  const w = worker('dedup');
  for (let i = 0; i < 3; i += 1) await finish(w, 't', 1);
}

async function flows() {
  const producer = keep(new FlowProducer(options));
  queue('parents');
  queue('children');
  const parents = worker('parents');
  const children = worker('children');
  const child = (name, opts = {}) => ({ name, queueName: 'children', data: {}, opts });
  const add = (name, opts, ...nodes) => producer.add({ name, queueName: 'parents', data: {}, opts, children: nodes });
  await add('p1', {}, child('a'), child('b', { failParentOnFailure: true }));
  await add('p2', { jobId: 'second' }, child('c', { ignoreDependencyOnFailure: true }), child('d', { priority: 5 }));
  await finish(children, 't', 'v');
  await fail(children, 't', new Error('fails its parent'));
  await fail(children, 't', new Error('is ignored'));
  await add('p3', { delay: 20000 }, child('e', { lifo: true }));
  await finish(children, 't', 'v');
  const continued = child('f', { lifo: true, continueParentOnFailure: true });
  await add('p4', {}, continued, child('g', { delay: 50000, removeDependencyOnFailure: true }));
  await fail(children, 't', new Error('continues its parent'));
  await fail(parents, 'p', new Error('the parent fails'));
}

async function schedulers() {
  const q = queue('schedulers');
  await q.upsertJobScheduler('every', { every: 60000 }, { name: 'n', data: { a: 1 }, opts: { attempts: 2 } });
  await q.upsertJobScheduler('cron', { pattern: '0 0 4 * * *', tz: 'UTC', limit: 5 });
  await q.upsertJobScheduler('offset', { every: 70000, offset: 1000 });
  await finish(worker('schedulers'), 't', 1);
  await q.upsertJobScheduler('priority', { every: 60000 }, { opts: { priority: 7 } });
  await q.upsertJobScheduler('removed', { every: 60000 });
  await q.removeJobScheduler('removed');
  await q.upsertJobScheduler('removed too', { pattern: '0 0 4 * * *' });
  await q.removeJobScheduler('removed too');
  await q.add('legacy', {}, { repeat: { every: 60000 } });
}

async function stalled() {
  const q = queue('stalled');
  await q.add('a', {});
  await q.add('b', { priority: 2 });
  const w = worker('stalled', { stalledInterval: 60000, maxStalledCount: 0 });
  await w.getNextJob('t');
  await w.getNextJob('u');
  const client = await q.client;
  await w.moveStalledJobsToWait();
  await client.del(`${prefix}:stalled:1:lock`, `${prefix}:stalled:stalled-check`);
  await w.moveStalledJobsToWait();
}

async function management() {
  const q = queue('managed');
  for (let i = 0; i < 6; i += 1) await q.add(`m${i}`, {});
  const w = worker('managed');
  for (let i = 0; i < 3; i += 1) await finish(w, 't', i);
  for (let i = 0; i < 2; i += 1) await fail(w, 't', new Error('again'));
  await q.retryJobs({ count: 1, state: 'failed' });
  await (await q.getJob('1')).retry('completed');
  tick(1000);
  await q.clean(0, 1, 'completed');
  const drained = queue('drained');
  await drained.add('a', {});
  await drained.add('b', {}, { delay: 1000 });
  await drained.drain();
  const gone = queue('obliterated');
  await gone.add('a', {});
  await gone.obliterate();
  const promoted = queue('promoted');
  await promoted.add('a', {}, { delay: 50000 });
  await promoted.promoteJobs();
  const steps = queue('steps');
  await steps.add('parent', {});
  const job = await worker('steps').getNextJob('t');
  await steps.add('child', {}, { parent: { id: '1', queue: `${prefix}:steps` } });
  await job.moveToWaitingChildren('t');
}

async function running() {
  const q = queue('running');
  await q.addBulk([0, 1, 2, 3, 4].map((i) => ({ name: `r${i}`, data: { i } })));
  await q.add('fails', {}, { attempts: 2 });
  const processor = async (job) => {
    if (job.name === 'fails') throw new Error('bad');
    return job.data.i;
  };
  const w = new Worker('running', processor, { ...options, name: 'runner' });
  await new Promise((resolve) => w.on('drained', resolve));
  await w.close();
}

const parts = [plain, retries, queueSettings, deduplication, flows, schedulers, stalled, management, running];
for (const part of parts) await part();
for (const thing of opened) await thing.close();
process.exit(0);
