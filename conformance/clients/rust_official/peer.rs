//! The official Rust client as a peer of the benchmarks (`benchmarks/sessions.py`): one JSON request per line in, one JSON
//! answer per line out. Times are in seconds and measured here, so that the start of the process does not count.

use std::io::{self, BufRead, Write};
use std::time::{Duration, Instant};

use bullmq::options::RedisConnectionOptions;
use bullmq::worker::{CancellationToken, WorkerEvent};
use bullmq::{BulkJob, Job, Queue, QueueOptions, Worker, WorkerOptions};
use serde::Deserialize;
use serde_json::{json, Value};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

const BATCH: usize = 1000;
const PAUSE: Duration = Duration::from_millis(20);

/// Short, because every job has ended before `close`; it would only wait for a blocking read of several seconds.
const CLOSE_MS: u64 = 200;

type Answer = Result<Value, Box<dyn std::error::Error>>;

#[derive(Deserialize)]
struct Request {
    task: String,
    args: Args,
}

#[derive(Deserialize)]
struct Args {
    host: String,
    port: u16,
    prefix: String,
    queue: String,
    jobs: usize,
    #[serde(default = "one")]
    concurrency: usize,
}

fn one() -> usize {
    1
}

impl Args {
    fn connection(&self) -> RedisConnectionOptions {
        RedisConnectionOptions::new().host(self.host.as_str()).port(self.port)
    }

    async fn open_queue(&self) -> bullmq::Result<Queue> {
        let options = QueueOptions::new().connection(self.connection()).prefix(self.prefix.as_str());
        Queue::with_options(&self.queue, options).await
    }

    fn worker_options(&self) -> WorkerOptions {
        WorkerOptions {
            connection: self.connection(),
            prefix: self.prefix.clone(),
            concurrency: self.concurrency,
            autorun: false,
            ..WorkerOptions::default()
        }
    }
}

/// Add jobs in batches of 1000; returns the time it took.
async fn add_bulk(args: &Args) -> Answer {
    let queue = args.open_queue().await?;
    let started = Instant::now();
    for start in (0..args.jobs).step_by(BATCH) {
        let batch = (start..args.jobs.min(start + BATCH)).map(|_| BulkJob::new("job", json!({})));
        queue.add_bulk(batch.collect()).await?;
    }
    Ok(json!(started.elapsed().as_secs_f64()))
}

/// Add jobs one after the other; returns the time it took.
async fn add(args: &Args) -> Answer {
    let queue = args.open_queue().await?;
    let started = Instant::now();
    for _ in 0..args.jobs {
        queue.add("job", json!({})).await?;
    }
    Ok(json!(started.elapsed().as_secs_f64()))
}

/// Process the waiting jobs; returns the time from the start of the loop to the last `completed`.
async fn work(args: &Args) -> Answer {
    let empty = |_: Job, _: CancellationToken| async { Ok(Value::Null) };
    let worker = Worker::with_options(&args.queue, empty, args.worker_options()).await?;
    let started = Instant::now();
    worker.run().await?;
    let mut left = args.jobs;
    while left > 0 {
        match worker.next_event().await {
            Some(WorkerEvent::Completed { .. }) => left -= 1,
            Some(WorkerEvent::Failed { error, .. } | WorkerEvent::Error(error)) => return Err(error.into()),
            Some(_) => {}
            None => return Err(format!("the worker's events ended with {left} jobs to go").into()),
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    worker.close(CLOSE_MS).await?;
    Ok(json!(seconds))
}

/// Add single jobs while the worker waits for one; returns the times from the call of `add` to the processor. The pause
/// before each job lets the worker finish the last one and wait again; not every library has an event for that.
async fn pickup(args: &Args) -> Answer {
    let (note, mut picked) = mpsc::unbounded_channel();
    let note_time = move |_: Job, _: CancellationToken| {
        let sent = note.send(Instant::now());
        async move { sent.map(|()| Value::Null).map_err(|gone| bullmq::Error::ProcessingError(gone.to_string())) }
    };
    let queue = args.open_queue().await?;
    let worker = Worker::with_options(&args.queue, note_time, args.worker_options()).await?;
    worker.run().await?;
    let mut times = Vec::with_capacity(args.jobs);
    for _ in 0..args.jobs {
        tokio::time::sleep(PAUSE).await;
        let started = Instant::now();
        queue.add("job", json!({})).await?;
        let seen = picked.recv().await.ok_or("the worker has ended")?;
        times.push(seen.duration_since(started).as_secs_f64());
    }
    worker.close(CLOSE_MS).await?;
    Ok(json!(times))
}

async fn run(line: &str) -> Answer {
    let Request { task, args } = serde_json::from_str(line)?;
    match task.as_str() {
        "add" => add(&args).await,
        "addBulk" => add_bulk(&args).await,
        "work" => work(&args).await,
        "pickup" => pickup(&args).await,
        unknown => Err(format!("unknown task {unknown}").into()),
    }
}

/// Answer requests until stdin ends.
fn main() -> io::Result<()> {
    let runtime = Runtime::new()?;
    for line in io::stdin().lock().lines() {
        let answer = match runtime.block_on(run(&line?)) {
            Ok(value) => json!({"value": value}),
            Err(error) => json!({"error": error.to_string()}),
        };
        let mut answers = io::stdout().lock();
        writeln!(answers, "{answer}")?;
        answers.flush()?;
    }
    Ok(())
}
