//! Workers: the client's own loop with the driver's processors, and jobs that are claimed one by one.

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bullmq_rs::{BullmqError, Job, Queue, WorkerEvent, WorkerHandle};
use serde_json::{json, Value};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::Receiver;
use tokio::sync::RwLock;

use crate::options::{self, duration, open_queue};
use crate::serve::{Failure, Outcome, Output};
use crate::shared::arguments::{only, parsed, text, texts};
use crate::shared::done;
use crate::shared::processors::{failure_message, sleep, PendingJobs};
use crate::shared::refusals::{invalid, unsupported};
use crate::views;

pub const OPS: &[&str] = &[
    "worker.extendLocks", "worker.getNextJob", "worker.isPaused", "worker.isRunning", "worker.moveToCompleted",
    "worker.moveToFailed", "worker.pause", "worker.rateLimit", "worker.resume",
];

/// Processors of this client return no value.
type Done = Result<(), Box<dyn Error + Send + Sync>>;

pub enum OpenWorker {
    /// The client's loop; None once it has been closed.
    Managed(RwLock<Option<WorkerHandle>>, Arc<PendingJobs>),
    Manual(Claims),
}

impl OpenWorker {
    pub async fn open(name: &str, args: &Value, output: Output) -> Result<OpenWorker, Failure> {
        let processor = text(args, "processor").to_owned();
        if processor.is_empty() || processor == "manual" {
            only(&args["options"], &[], "Queue::get_next_job")?;
            return Ok(OpenWorker::Manual(Claims { queue: open_queue(args).await?, jobs: Mutex::default() }));
        }
        let pending = Arc::new(PendingJobs::new(name, output.clone()));
        let (settings, jobs) = (Arc::new(args["processor_args"].clone()), Arc::clone(&pending));
        let process = move |job: Job<Value>| {
            let (processor, settings, jobs) = (processor.clone(), Arc::clone(&settings), Arc::clone(&jobs));
            async move { run(&processor, &settings, job, &jobs).await }
        };
        let builder = options::worker(text(args, "queue"), args)?;
        let handle = builder.build::<Value>().start(process).await?;
        // After the start, because only a started worker can be subscribed to; the client has no earlier moment.
        tokio::spawn(forward(handle.subscribe(), name.to_owned(), output));
        Ok(OpenWorker::Managed(RwLock::new(Some(handle)), pending))
    }

    pub async fn call(&self, op: &str, args: &Value) -> Outcome {
        match self {
            // Also while the worker is closed: it waits for its running jobs.
            OpenWorker::Managed(_, pending) if op == "resolve" && args["outcome"] != "rate-limit" => resolve(pending, args),
            OpenWorker::Managed(handle, pending) => match &*handle.read().await {
                Some(handle) => steer(handle, pending, op, args).await,
                None => Err(invalid("the worker is closed")),
            },
            OpenWorker::Manual(claims) => claims.call(op, args).await,
        }
    }

    /// `force` stops the loop without waiting for its end. Its pending read in Redis lasts 5 s at most.
    pub async fn close(&self, force: bool) -> Result<(), Failure> {
        let OpenWorker::Managed(handle, _) = self else { return Ok(()) };
        if force {
            if let Some(running) = &*handle.read().await {
                running.shutdown();
            }
            return Ok(());
        }
        // Taken out first: calls that come during the close then see a closed worker, and no lock is held while
        // waiting.
        let running = handle.write().await.take();
        if let Some(running) = running {
            running.shutdown();
            running.wait().await?;
        }
        Ok(())
    }
}

async fn steer(handle: &WorkerHandle, pending: &PendingJobs, op: &str, args: &Value) -> Outcome {
    match op {
        "worker.pause" => done(handle.pause(args["do_not_wait_active"] == true).await),
        "worker.resume" => done(handle.resume()),
        "worker.isPaused" => Ok(json!({"value": handle.is_paused()})),
        "worker.isRunning" => Ok(json!({"value": handle.is_running()})),
        "worker.rateLimit" => done(handle.rate_limit(duration(args, "expire_ms")?.unwrap_or_default()).await?),
        "resolve" => {
            handle.rate_limit(duration(args, "ms")?.unwrap_or_default()).await?;
            resolve(pending, args)
        }
        _ => Err(unsupported("a running worker of this client cannot claim single jobs")),
    }
}

fn resolve(pending: &PendingJobs, args: &Value) -> Outcome {
    if ["unrecoverable", "delay", "wait", "waiting-children"].contains(&text(args, "outcome")) {
        return Err(unsupported("a processor of this client can only succeed, fail, or be rate limited"));
    }
    pending.resolve(args)
}

/// Jobs that were claimed by `Queue::get_next_job`: the client can end a job only through the object that it returned.
pub struct Claims {
    queue: Queue<Value>,
    jobs: Mutex<HashMap<(String, String), Job<Value>>>,
}

impl Claims {
    async fn call(&self, op: &str, args: &Value) -> Outcome {
        match op {
            "worker.getNextJob" => {
                let token = text(args, "token");
                let job = self.queue.get_next_job(token).await?;
                if let Some(job) = &job {
                    // By id and token: after a stalled check the same job may be claimed again under another token.
                    self.claimed().insert((job.id.clone(), token.to_owned()), job.clone());
                }
                Ok(views::maybe_job(job.as_ref()))
            }
            "worker.extendLocks" => {
                let life = duration(args, "duration_ms")?.unwrap_or_default();
                let lost = self.queue.extend_job_locks(&texts(args, "jobs"), &texts(args, "tokens"), life).await?;
                Ok(json!({"ids": lost}))
            }
            "worker.moveToCompleted" | "worker.moveToFailed" => self.end(op, args).await,
            _ => Err(unsupported("this client has no such method outside its worker loop")),
        }
    }

    async fn end(&self, op: &str, args: &Value) -> Outcome {
        if args["fetch_next"] == true {
            return Err(unsupported("ending a job of this client cannot fetch the next one"));
        }
        let key = (text(args, "job").to_owned(), text(args, "token").to_owned());
        let Some(mut job) = self.claimed().get(&key).cloned() else {
            return Err(unsupported("a job of this client always uses the token that it was claimed with"));
        };
        match op {
            "worker.moveToCompleted" => job.move_to_completed(parsed(args, "value_raw")?).await?,
            _ if args["unrecoverable"] == true => job.move_to_failed(text(args, "message")).await?,
            _ => return Err(unsupported("Job::move_to_failed of this client never retries")),
        }
        Ok(views::maybe_job(None))
    }

    fn claimed(&self) -> MutexGuard<'_, HashMap<(String, String), Job<Value>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Process one job. Return values are lost, because the client's processors return none.
async fn run(processor: &str, settings: &Value, mut job: Job<Value>, pending: &PendingJobs) -> Done {
    match processor {
        "ask" => {
            let event = json!({"job": views::job(&job), "token": ""}); // the client does not show the lock's token
            let answer = pending.ask(&job.id, event).await;
            match text(&answer, "outcome") {
                "complete" => Ok(()),
                "rate-limit" => Err(Box::new(BullmqError::RateLimited)),
                _ => failed(&answer),
            }
        }
        "sleep" => {
            sleep(settings).await;
            Ok(())
        }
        "fail" if i64::from(job.attempts_made) < settings["times"].as_i64().unwrap_or(1) => failed(settings),
        "throw" => failed(settings),
        "progress" => {
            for value in settings["values"].as_array().into_iter().flatten() {
                job.update_progress(value.clone()).await?;
            }
            Ok(())
        }
        "steps" => take_steps(job).await,
        _ => Ok(()),
    }
}

async fn take_steps(mut job: Job<Value>) -> Done {
    for step in job.data["steps"].as_array().cloned().unwrap_or_default() {
        match text(&step, "do") {
            "return" => return Ok(()),
            "progress" => job.update_progress(step["value"].clone()).await?,
            "log" => drop(job.log(text(&step, "row")).await?),
            "sleep" => sleep(&step).await,
            "fail" if i64::from(job.attempts_made) < step["until_attempt"].as_i64().unwrap_or(i64::MAX) => {
                return failed(&step);
            }
            "fail" => {}
            unknown => return Err(format!("this client has no step {unknown}").into()),
        }
    }
    Ok(())
}

fn failed(settings: &Value) -> Done {
    Err(failure_message(settings).into())
}

/// Send the worker's events to the kit.
async fn forward(mut events: Receiver<WorkerEvent>, handle: String, output: Output) {
    loop {
        let (name, args) = match events.recv().await {
            Ok(WorkerEvent::Active { job }) => ("active", json!({"job": job.id})),
            Ok(WorkerEvent::Completed { job }) => ("completed", json!({"job": job.id})),
            Ok(WorkerEvent::Failed { job, .. }) => ("failed", json!({"job": job.id})),
            Ok(WorkerEvent::Error { message }) => ("error", json!({"message": message})),
            Ok(WorkerEvent::Drained) => ("drained", json!({})),
            Ok(WorkerEvent::Paused) => ("paused", json!({})),
            Ok(WorkerEvent::Resumed) => ("resumed", json!({})),
            Ok(WorkerEvent::Cancelled { .. } | WorkerEvent::RateLimited { .. }) => continue,
            Err(RecvError::Lagged(missed)) => ("error", json!({"message": format!("{missed} events were missed")})),
            Err(RecvError::Closed) => return,
        };
        output.emit(&handle, name, args);
    }
}
