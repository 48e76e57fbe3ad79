// Fills queues with a job in every state, then loads others until its input ends.
// Arguments: folder with bullmq, port, prefix, comma-separated names of queues to fill, jobs/s of the load (0: none).
import { createRequire } from "node:module";
import { setTimeout as sleep } from "node:timers/promises";

const [folder, port, prefix, names, rate] = process.argv.slice(2);
const bullmq = createRequire(`${folder}/`)("bullmq");
const connection = { host: "127.0.0.1", port: Number(port), maxRetriesPerRequest: null };
const options = { connection, prefix };
const HOUR_MS = 3_600_000;

/** A queue that rests: a job in every state, a flow, schedules, deduplication keys, logs, and a job in progress. */
async function fill(name) {
  const queue = new bullmq.Queue(name, options);
  const worker = new bullmq.Worker(name, null, { ...options, autorun: false, lockDuration: 10 * HOUR_MS });
  const flows = new bullmq.FlowProducer(options);
  await queue.add("job", { n: 1 }, { jobId: "done" });
  const done = await worker.getNextJob("token");
  await done.log("a line");
  await done.moveToCompleted("ok", "token", false);
  await queue.add("job", { n: 2 }, { jobId: "broken" });
  const broken = await worker.getNextJob("token");
  await broken.moveToFailed(new Error("no"), "token", false);
  await queue.add("job", { n: 3 }, { jobId: "busy" });
  await worker.getNextJob("token");
  for (const id of ["first", "second", "third"]) await queue.add("job", { id }, { jobId: id });
  for (let n = 0; n < 3; n++) await queue.add("job", { n });
  for (const id of ["urgent", "soon"]) await queue.add("job", { id }, { jobId: id, priority: 5 });
  for (const id of ["later", "much-later"]) await queue.add("job", { id }, { jobId: id, delay: HOUR_MS });
  const children = ["one", "two"].map((id) => ({ name: "child", queueName: name, opts: { jobId: id } }));
  await flows.add({ name: "parent", queueName: name, opts: { jobId: "mother" }, children });
  await queue.upsertJobScheduler("hourly", { every: HOUR_MS, startDate: Date.now() + HOUR_MS }, { name: "tick" });
  await queue.upsertJobScheduler("nightly", { pattern: "0 3 1 1 *" }, { name: "tick" });
  // 6.x has no repeatable jobs of the old kind.
  if (queue.removeRepeatable) await queue.add("old", {}, { repeat: { pattern: "0 3 1 1 *" } });
  await queue.add("job", {}, { jobId: "owner", deduplication: { id: "once" } });
  await queue.add("job", {}, { jobId: "throttled", deduplication: { id: "slow", ttl: 10 * HOUR_MS } });
  await Promise.all([queue.close(), worker.close(true), flows.close()]);
}

/** Work that ends in every way: completed, failed, retried with and without delay. */
async function work(job) {
  await sleep(Math.random() * 8);
  if (job.data.fails > job.attemptsMade) throw new Error("not yet");
  if (job.data.says) await job.log("at work");
  return job.id;
}

/** Queues at work: plain jobs, flows, schedules, deduplication, a rate limit, and pauses. */
async function load() {
  const keep = { removeOnComplete: { count: 500 }, removeOnFail: { count: 200 } };
  const settings = { ...options, concurrency: 20, lockDuration: 30_000, stalledInterval: 5000 };
  const queues = ["mixed", "flows", "limited", "pausing"].map((name) => new bullmq.Queue(name, options));
  const [mixed, flows, limited, pausing] = queues;
  const workers = queues.map(({ name }) => {
    const limiter = name === "limited" ? { max: 20, duration: 200 } : undefined;
    const worker = new bullmq.Worker(name, work, { ...settings, limiter });
    worker.on("error", (error) => console.error(name, error.message));
    return worker;
  });
  await mixed.upsertJobScheduler("often", { every: 400 }, { name: "tick", data: {}, opts: keep });
  await mixed.upsertJobScheduler("each-second", { pattern: "* * * * * *" }, { name: "tick", data: {}, opts: keep });
  const producer = new bullmq.FlowProducer(options);
  const started = Date.now();
  let [added, open] = [0, true];
  process.stdin.resume().on("end", () => (open = false));
  console.log("loaded");
  for (let tick = 0; open; tick++) {
    const due = Math.floor(((Date.now() - started) / 1000) * Number(rate));
    const jobs = [];
    for (; added < due; added++) jobs.push({ name: "job", data: dataOf(added), opts: { ...keep, ...optsOf(added) } });
    if (jobs.length) {
      await Promise.all([
        mixed.addBulk(jobs),
        limited.addBulk(jobs.filter((_, at) => at % 10 === 0)),
        pausing.addBulk(jobs.filter((_, at) => at % 5 === 0)),
        producer.addBulk(jobs.filter((_, at) => at % 20 === 0).map(() => flow(keep))),
      ]);
    }
    if (tick % 20 === 10) await pausing.pause();
    if (tick % 20 === 15) await pausing.resume();
    await sleep(20);
  }
  await pausing.resume();
  await Promise.all(workers.map((worker) => worker.close()));
  await Promise.all([...queues, producer].map((client) => client.close()));
}

function dataOf(number) {
  return { number, fails: number % 17 === 0 ? 1 : 0, says: number % 9 === 0 };
}

function optsOf(number) {
  const deduplication = number % 13 === 0 ? { id: `every-${number % 5}` } : number % 29 === 0 ? { id: "t", ttl: 500 } : undefined;
  return {
    attempts: number % 2 ? 3 : 1,
    backoff: number % 3 === 0 ? { type: "fixed", delay: 300 } : undefined,
    delay: number % 7 === 0 ? 200 + (number % 400) : undefined,
    priority: number % 5 === 0 ? 1 + (number % 4) : undefined,
    deduplication,
  };
}

function flow(keep) {
  const child = (fails) => ({ name: "child", queueName: "flows", data: { fails }, opts: { ...keep, ignoreDependencyOnFailure: true } });
  return { name: "parent", queueName: "flows", data: {}, opts: keep, children: [child(0), child(1), child(0)] };
}

await Promise.all(names.split(",").filter(Boolean).map(fill));
if (Number(rate)) await load();
else console.log("filled");
process.exit(0);
