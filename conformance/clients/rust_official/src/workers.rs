//! Workers: the client's own loop, and what the driver's processors do with a job.

use std::collections::{HashMap, VecDeque};
use std::future::{ready, Future};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bullmq::types::JobProgress;
use bullmq::worker::{CancellationToken, WorkerEvent};
use bullmq::{Error, Job, Worker};
use serde_json::{json, Value};
use tokio::sync::oneshot;

use crate::options::{number, parsed, text, worker_options};
use crate::refusals::invalid;
use crate::serve::{Failure, Outcome, Output};
use crate::views;

pub const OPS: &[&str] = &["worker.pause", "worker.resume", "worker.isPaused", "worker.isRunning"];

/// Longer than any job of a run has still to go: `close` of this client waits no longer than it is told, and as long as
/// that where its loop does not come to an end: a rate limit may last 30 s.
const CLOSE_MS: u64 = 6_000;

type Closing = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

pub struct OpenWorker {
    worker: Arc<Worker>,
    asked: Arc<Asked>,
    /// What has begun to close it.
    closing: Mutex<Option<Closing>>,
}

impl OpenWorker {
    pub async fn open(name: &str, queue: &str, args: &Value, output: Output) -> Result<OpenWorker, Failure> {
        let processor = text(args, "processor").to_owned();
        if processor.is_empty() || processor == "manual" {
            return Err(Failure::Unsupported("a worker without its loop: see README.md".to_owned()));
        }
        let asked = Arc::new(Asked { handle: name.to_owned(), output: output.clone(), waiting: Mutex::default() });
        let (settings, jobs) = (Arc::new(args["processor_args"].clone()), Arc::clone(&asked));
        let process = move |job: Job, _token: CancellationToken| {
            let (processor, settings, jobs) = (processor.clone(), Arc::clone(&settings), Arc::clone(&jobs));
            async move { run(&processor, &settings, job, &jobs).await }
        };
        let worker = Arc::new(Worker::with_options(queue, process, worker_options(args)?).await?);
        tokio::spawn(forward(Arc::clone(&worker), name.to_owned(), output));
        Ok(OpenWorker { worker, asked, closing: Mutex::default() })
    }

    pub async fn call(&self, op: &str, args: &Value) -> Outcome {
        match op {
            "worker.pause" if args["do_not_wait_active"] == true => {
                self.worker.pause();
                Ok(json!({}))
            }
            "worker.pause" => Err(Failure::Unsupported("Worker.pause of this client waits for no job".to_owned())),
            "worker.resume" => {
                self.worker.resume();
                Ok(json!({}))
            }
            "worker.isPaused" => Ok(json!({"value": self.worker.is_paused()})),
            "worker.isRunning" => Ok(json!({"value": self.worker.is_running()})),
            _ => self.asked.resolve(args),
        }
    }

    /// Tell the loop to close. When this returns it knows, and fetches nothing more.
    pub fn begin_close(&self, force: bool) {
        let worker = Arc::clone(&self.worker);
        let mut closing: Closing = Box::pin(async move { worker.close(if force { 0 } else { CLOSE_MS }).await });
        let begun = match closing.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(closed) => Box::pin(ready(closed)),
            Poll::Pending => closing,
        };
        self.closing.lock().unwrap_or_else(PoisonError::into_inner).replace(begun);
    }

    pub async fn close(&self, force: bool) -> Result<(), Failure> {
        let begun = self.closing.lock().unwrap_or_else(PoisonError::into_inner).take();
        match begun {
            Some(closing) => Ok(closing.await?),
            None => Ok(self.worker.close(if force { 0 } else { CLOSE_MS }).await?),
        }
    }
}

/// Jobs of processor `ask` that wait for `resolve`: by id, the oldest first.
struct Asked {
    handle: String,
    output: Output,
    waiting: Mutex<HashMap<String, VecDeque<oneshot::Sender<Value>>>>,
}

impl Asked {
    /// Hand the job to the kit, and wait for how it is to end.
    async fn ask(&self, job: &Job) -> Value {
        let (send, receive) = oneshot::channel();
        // Noted before the event goes out: the kit may resolve the job at once.
        self.waiting().entry(job.id().to_owned()).or_default().push_back(send);
        self.output.emit(&self.handle, "job", json!({"job": views::job(job), "token": job.token()}));
        receive.await.unwrap_or_default()
    }

    fn resolve(&self, args: &Value) -> Outcome {
        if args["outcome"] == "wait" {
            return Err(Failure::Unsupported("no error of this client says that the processor moved its job".to_owned()));
        }
        if args["outcome"] == "rate-limit" {
            return Err(Failure::Unsupported("the worker of this client has no method that limits it".to_owned()));
        }
        parsed(args, "value_raw")?;
        let id = text(args, "job");
        let asked = self.waiting().get_mut(id).and_then(VecDeque::pop_front);
        match asked.map(|answer| answer.send(args.clone())) {
            Some(Ok(())) => Ok(json!({})),
            _ => Err(invalid(format!("job {id} does not wait for an answer at {}", self.handle))),
        }
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<String, VecDeque<oneshot::Sender<Value>>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn run(processor: &str, settings: &Value, mut job: Job, asked: &Asked) -> Result<Value, Error> {
    match processor {
        "ask" => {
            let answer = asked.ask(&job).await;
            end(&job, &answer).await
        }
        "echo" => Ok(job.data().clone()),
        "sleep" => {
            sleep(settings).await;
            Ok(Value::Null)
        }
        "fail" if i64::from(job.attempts_made()) < settings["times"].as_i64().unwrap_or(1) => Err(failed(settings)),
        "throw" => Err(failed(settings)),
        "progress" => {
            for value in settings["values"].as_array().into_iter().flatten() {
                job.update_progress(progress(value)).await?;
            }
            Ok(Value::Null)
        }
        "steps" => take_steps(job).await,
        _ => Ok(Value::Null),
    }
}

/// Do what the kit has decided.
async fn end(job: &Job, answer: &Value) -> Result<Value, Error> {
    match text(answer, "outcome") {
        "complete" => Ok(returned(answer)),
        "unrecoverable" => Err(Error::Unrecoverable(text(answer, "message").to_owned())),
        "delay" => {
            job.move_to_delayed(now_ms() + number(answer, "ms").unsigned_abs()).await?;
            Err(Error::Delayed)
        }
        "waiting-children" if job.move_to_waiting_children(None).await? => Err(Error::WaitingChildren),
        // Nothing was pending: the job goes on, and here that means that it ends.
        "waiting-children" => Ok(returned(answer)),
        _ => Err(failed(answer)),
    }
}

async fn take_steps(mut job: Job) -> Result<Value, Error> {
    for step in job.data()["steps"].as_array().cloned().unwrap_or_default() {
        match text(&step, "do") {
            "return" => return Ok(step["value"].clone()),
            "progress" => job.update_progress(progress(&step["value"])).await?,
            "log" => drop(job.log(text(&step, "row")).await?),
            "sleep" => sleep(&step).await,
            "fail" if i64::from(job.attempts_made()) < step["until_attempt"].as_i64().unwrap_or(i64::MAX) => {
                return Err(failed(&step));
            }
            "fail" => {}
            "unrecoverable" => return Err(Error::Unrecoverable(text(&step, "message").to_owned())),
            unknown => return Err(Error::ProcessingError(format!("unknown step: {unknown}"))),
        }
    }
    Ok(Value::Null)
}

fn failed(settings: &Value) -> Error {
    Error::ProcessingError(settings["message"].as_str().unwrap_or("failed on request").to_owned())
}

fn returned(answer: &Value) -> Value {
    parsed(answer, "value_raw").unwrap_or_default()
}

/// A number has a variant of its own in the client.
pub fn progress(value: &Value) -> JobProgress {
    value.as_f64().map_or_else(|| JobProgress::Object(value.clone()), JobProgress::Number)
}

async fn sleep(settings: &Value) {
    tokio::time::sleep(Duration::from_millis(settings["ms"].as_u64().unwrap_or(0))).await;
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Send what the worker tells its user.
async fn forward(worker: Arc<Worker>, handle: String, output: Output) {
    while let Some(event) = worker.next_event().await {
        let job = |id: &str| json!({"job": id});
        match event {
            WorkerEvent::Active { job_id } => output.emit(&handle, "active", job(&job_id)),
            WorkerEvent::Completed { job_id, .. } => output.emit(&handle, "completed", job(&job_id)),
            WorkerEvent::Failed { job_id, .. } => output.emit(&handle, "failed", job(&job_id)),
            WorkerEvent::Stalled { job_id } => output.emit(&handle, "stalled", job(&job_id)),
            WorkerEvent::Error(message) => output.emit(&handle, "error", json!({"message": message})),
            WorkerEvent::Drained => output.emit(&handle, "drained", json!({})),
            WorkerEvent::Paused => output.emit(&handle, "paused", json!({})),
            WorkerEvent::Resumed => output.emit(&handle, "resumed", json!({})),
            WorkerEvent::Closed => {
                output.emit(&handle, "closed", json!({}));
                return;
            }
            WorkerEvent::Ready | WorkerEvent::Progress { .. } => {}
        }
    }
}
