//! Workers: the client's own loop with the driver's processors, and jobs that are claimed one by one.

use std::collections::{HashMap, VecDeque};
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bullmq_rs::{BullmqError, Job, Queue, WorkerEvent, WorkerHandle};
use serde_json::{json, Value};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::Receiver;
use tokio::sync::{oneshot, RwLock};

use crate::handles::open_queue;
use crate::options::{self, duration, only, parsed, text, texts};
use crate::refusals::{invalid, unsupported};
use crate::serve::{Failure, Outcome, Output};
use crate::views;

pub const OPS: &[&str] = &[
    "worker.extendLocks", "worker.getNextJob", "worker.isPaused", "worker.isRunning", "worker.moveToCompleted",
    "worker.moveToFailed", "worker.pause", "worker.rateLimit", "worker.resume",
];

/// A processor of this client returns nothing but success.
type Done = Result<(), Box<dyn Error + Send + Sync>>;

pub enum OpenWorker {
    /// The client's loop; None once it has been closed.
    Managed(RwLock<Option<WorkerHandle>>, Arc<Asked>),
    Manual(Claims),
}

impl OpenWorker {
    pub async fn open(name: &str, args: &Value, output: Output) -> Result<OpenWorker, Failure> {
        let processor = text(args, "processor").to_owned();
        if processor.is_empty() || processor == "manual" {
            only(&args["options"], &[], "Queue::get_next_job")?;
            return Ok(OpenWorker::Manual(Claims { queue: open_queue(args).await?, jobs: Mutex::default() }));
        }
        let asked = Arc::new(Asked { handle: name.to_owned(), output: output.clone(), waiting: Mutex::default() });
        let (settings, jobs) = (Arc::new(args["processor_args"].clone()), Arc::clone(&asked));
        let process = move |job: Job<Value>| {
            let (processor, settings, jobs) = (processor.clone(), Arc::clone(&settings), Arc::clone(&jobs));
            async move { run(&processor, &settings, job, &jobs).await }
        };
        let builder = options::worker(text(args, "queue"), args)?;
        let handle = builder.build::<Value>().start(process).await?;
        tokio::spawn(forward(handle.subscribe(), name.to_owned(), output));
        Ok(OpenWorker::Managed(RwLock::new(Some(handle)), asked))
    }

    pub async fn call(&self, op: &str, args: &Value) -> Outcome {
        match self {
            OpenWorker::Managed(handle, asked) => match &*handle.read().await {
                Some(handle) => steer(handle, asked, op, args).await,
                None => Err(invalid("the worker is closed".to_owned())),
            },
            OpenWorker::Manual(claims) => claims.call(op, args).await,
        }
    }

    /// With `force` the loop is told to end and not waited for. What it is waiting for in Redis lasts 5 s at most.
    pub async fn close(&self, force: bool) -> Result<(), Failure> {
        let OpenWorker::Managed(handle, _) = self else { return Ok(()) };
        if force {
            if let Some(running) = &*handle.read().await {
                running.shutdown();
            }
            return Ok(());
        }
        let running = handle.write().await.take();
        if let Some(running) = running {
            running.shutdown();
            running.wait().await?;
        }
        Ok(())
    }
}

async fn steer(handle: &WorkerHandle, asked: &Asked, op: &str, args: &Value) -> Outcome {
    match op {
        "worker.pause" => {
            handle.pause(args["do_not_wait_active"] == true).await;
            Ok(json!({}))
        }
        "worker.resume" => {
            handle.resume();
            Ok(json!({}))
        }
        "worker.isPaused" => Ok(json!({"value": handle.is_paused()})),
        "worker.isRunning" => Ok(json!({"value": handle.is_running()})),
        "worker.rateLimit" => {
            handle.rate_limit(duration(args, "expire_ms")?.unwrap_or_default()).await?;
            Ok(json!({}))
        }
        "resolve" => {
            if args["outcome"] == "rate-limit" {
                handle.rate_limit(duration(args, "ms")?.unwrap_or_default()).await?;
            }
            asked.resolve(args)
        }
        _ => Err(unsupported("a running worker of this client hands out no job by hand")),
    }
}

/// Jobs that were claimed by `Queue::get_next_job`: the client ends a job only as the object that it handed out.
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
            _ => Err(unsupported("without its loop this client has no such method")),
        }
    }

    async fn end(&self, op: &str, args: &Value) -> Outcome {
        if args["fetch_next"] == true {
            return Err(unsupported("the job of this client fetches no other when it ends"));
        }
        let key = (text(args, "job").to_owned(), text(args, "token").to_owned());
        let Some(mut job) = self.claimed().get(&key).cloned() else {
            return Err(unsupported("a job of this client has the token that it was claimed with"));
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

/// Jobs of processor `ask` that wait for `resolve`: by id, the oldest first.
pub struct Asked {
    handle: String,
    output: Output,
    waiting: Mutex<HashMap<String, VecDeque<oneshot::Sender<Value>>>>,
}

impl Asked {
    /// Hand the job to the kit, and wait for how it is to end. The client does not tell its user the lock's token.
    async fn ask(&self, job: &Job<Value>) -> Value {
        let (send, receive) = oneshot::channel();
        // Noted before the event goes out: the kit may resolve the job at once.
        self.waiting().entry(job.id.clone()).or_default().push_back(send);
        self.output.emit(&self.handle, "job", json!({"job": views::job(job), "token": ""}));
        receive.await.unwrap_or_default()
    }

    fn resolve(&self, args: &Value) -> Outcome {
        if ["unrecoverable", "delay", "wait", "waiting-children"].contains(&text(args, "outcome")) {
            return Err(unsupported("a processor of this client succeeds, fails, or is rate limited"));
        }
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

/// One job. What a processor of the protocol returns is lost here: the client's processors have no value to return.
async fn run(processor: &str, settings: &Value, mut job: Job<Value>, asked: &Asked) -> Done {
    match processor {
        "ask" => {
            let answer = asked.ask(&job).await;
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
    Err(settings["message"].as_str().unwrap_or("failed on request").into())
}

async fn sleep(settings: &Value) {
    tokio::time::sleep(Duration::from_millis(settings["ms"].as_u64().unwrap_or(0))).await;
}

/// Send what the worker tells its user.
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
