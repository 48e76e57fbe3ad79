//! Workers: the client's own loop with the processors of the protocol.

use std::future::{ready, Future};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{SystemTime, UNIX_EPOCH};

use bullmq::types::JobProgress;
use bullmq::worker::{CancellationToken, WorkerEvent};
use bullmq::{Error, Job, Worker};
use serde_json::{json, Value};

use crate::options::worker_options;
use crate::serve::{Failure, Outcome, Output};
use crate::shared::arguments::{number, parsed, text};
use crate::shared::done;
use crate::shared::processors::{failure_message, sleep, PendingJobs};
use crate::shared::refusals::unsupported;
use crate::views;

pub const OPS: &[&str] = &["worker.pause", "worker.resume", "worker.isPaused", "worker.isRunning"];

/// The timeout of `close`: longer than any job of a run still takes. It is not larger because `close` of this client always
/// waits for its whole timeout if the loop does not end, for example during a rate limit of up to 30 s.
const CLOSE_MS: u64 = 6_000;

type Closing = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

pub struct OpenWorker {
    worker: Arc<Worker>,
    pending: Arc<PendingJobs>,
    /// The `close` that was started and not yet waited for.
    closing: Mutex<Option<Closing>>,
}

impl OpenWorker {
    pub async fn open(name: &str, queue: &str, args: &Value, output: Output) -> Result<OpenWorker, Failure> {
        let processor = text(args, "processor").to_owned();
        if processor.is_empty() || processor == "manual" {
            return Err(unsupported("a worker without its loop: see README.md"));
        }
        let pending = Arc::new(PendingJobs::new(name, output.clone()));
        let (settings, jobs) = (Arc::new(args["processor_args"].clone()), Arc::clone(&pending));
        let process = move |job: Job, _token: CancellationToken| {
            let (processor, settings, jobs) = (processor.clone(), Arc::clone(&settings), Arc::clone(&jobs));
            async move { run(&processor, &settings, job, &jobs).await }
        };
        let worker = Arc::new(Worker::with_options(queue, process, worker_options(args)?).await?);
        tokio::spawn(forward(Arc::clone(&worker), name.to_owned(), output));
        Ok(OpenWorker { worker, pending, closing: Mutex::default() })
    }

    pub async fn call(&self, op: &str, args: &Value) -> Outcome {
        match op {
            "worker.pause" if args["do_not_wait_active"] == true => done(self.worker.pause()),
            "worker.pause" => Err(unsupported("Worker.pause of this client cannot wait for active jobs")),
            "worker.resume" => done(self.worker.resume()),
            "worker.isPaused" => Ok(json!({"value": self.worker.is_paused()})),
            "worker.isRunning" => Ok(json!({"value": self.worker.is_running()})),
            _ => resolve(&self.pending, args),
        }
    }

    /// Close the loop. The first poll of `close` sets the client's flag, so the loop fetches no job after this
    /// returns; the kit may end the worker's current job right afterwards.
    pub fn start_close(&self, force: bool) {
        let worker = Arc::clone(&self.worker);
        let mut closing: Closing = Box::pin(async move { worker.close(if force { 0 } else { CLOSE_MS }).await });
        let started = match closing.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(closed) => Box::pin(ready(closed)),
            Poll::Pending => closing,
        };
        self.closing.lock().unwrap_or_else(PoisonError::into_inner).replace(started);
    }

    pub async fn close(&self, force: bool) -> Result<(), Failure> {
        // In its own statement, so that the guard is dropped before the await.
        let started = self.closing.lock().unwrap_or_else(PoisonError::into_inner).take();
        match started {
            Some(closing) => Ok(closing.await?),
            None => Ok(self.worker.close(if force { 0 } else { CLOSE_MS }).await?),
        }
    }
}

fn resolve(pending: &PendingJobs, args: &Value) -> Outcome {
    match text(args, "outcome") {
        "wait" => Err(unsupported("this client has no error for a processor that moved its job to wait")),
        "rate-limit" => Err(unsupported("the worker of this client has no method that sets a rate limit")),
        _ => {
            parsed(args, "value_raw")?; // here, because the processor cannot report that the value is not JSON
            pending.resolve(args)
        }
    }
}

async fn run(processor: &str, settings: &Value, mut job: Job, pending: &PendingJobs) -> Result<Value, Error> {
    match processor {
        "ask" => {
            let event = json!({"job": views::job(&job), "token": job.token()});
            let answer = pending.ask(job.id(), event).await;
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

/// End the job as the kit has decided.
async fn end(job: &Job, answer: &Value) -> Result<Value, Error> {
    match text(answer, "outcome") {
        "complete" => Ok(returned(answer)),
        "unrecoverable" => Err(Error::Unrecoverable(text(answer, "message").to_owned())),
        "delay" => {
            job.move_to_delayed(now_ms() + number(answer, "ms").unsigned_abs()).await?;
            Err(Error::Delayed)
        }
        "waiting-children" if job.move_to_waiting_children(None).await? => Err(Error::WaitingChildren),
        // No child was pending, so the processor goes on, and ends here.
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
    Error::ProcessingError(failure_message(settings))
}

fn returned(answer: &Value) -> Value {
    parsed(answer, "value_raw").unwrap_or_default()
}

/// The client has a separate variant for numbers.
pub fn progress(value: &Value) -> JobProgress {
    value.as_f64().map_or_else(|| JobProgress::Object(value.clone()), JobProgress::Number)
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Send the worker's events to the kit.
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
            // The last event: without this return the task would keep the closed worker alive.
            WorkerEvent::Closed => {
                output.emit(&handle, "closed", json!({}));
                return;
            }
            WorkerEvent::Ready | WorkerEvent::Progress { .. } => {}
        }
    }
}
