//! The client's objects that the kit has opened.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bullmq::redis_connection::RedisConnection;
use bullmq::{FlowProducer, FlowProducerOptions, Job, Queue, QueueEvent, QueueEvents, QueueEventsOptions, QueueKeys};
use serde_json::{json, Map, Value};

use crate::options::{connection, only, queue_options, text};
use crate::refusals::invalid;
use crate::serve::{Failure, Outcome, Output};
use crate::workers::OpenWorker;

/// How long `reset` waits for one object to let go of its connections.
const ABANDON: Duration = Duration::from_secs(1);

/// How many of the jobs that a queue has handed out its user still has in hand.
const HELD: usize = 100;

pub enum Opened {
    Queue(Arc<OpenQueue>),
    Flow(Arc<FlowProducer>),
    Events(Arc<QueueEvents>),
    Worker(OpenWorker),
}

impl Opened {
    async fn close(&self, force: bool) -> Result<(), Failure> {
        match self {
            Opened::Queue(open) => open.queue.close().await,
            Opened::Flow(flow) => flow.close().await,
            Opened::Events(events) => events.close().await,
            Opened::Worker(worker) => worker.close(force).await?,
        }
        Ok(())
    }
}

/// A queue, and the latest jobs that it has handed out: its user has them in hand, and calls them also where their hash has
/// gone since. It is the client that must say then what is missing.
pub struct OpenQueue {
    pub queue: Queue,
    held: Mutex<VecDeque<Job>>,
}

impl OpenQueue {
    fn new(queue: Queue) -> OpenQueue {
        OpenQueue { queue, held: Mutex::default() }
    }

    pub fn hold(&self, job: &Job) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.retain(|other| other.id() != job.id());
        held.push_back(job.clone());
        if held.len() > HELD {
            held.pop_front();
        }
    }

    pub fn held(&self, id: &str) -> Option<Job> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.iter().find(|job| job.id() == id).cloned()
    }
}

pub struct Handles {
    open: Mutex<HashMap<String, Arc<Opened>>>,
    /// What the calls of `close` that were read, and are not carried out yet, have meant by their names: a `reset` that was
    /// read after them may come before.
    to_close: Mutex<Vec<(String, Arc<Opened>)>>,
    output: Output,
}

impl Handles {
    pub fn new(output: Output) -> Handles {
        Handles { open: Mutex::default(), to_close: Mutex::default(), output }
    }

    /// Make the object of a role and wait until it is connected.
    pub async fn open(&self, name: &str, args: &Value) -> Outcome {
        if name.is_empty() || self.all().contains_key(name) {
            return Err(invalid(format!("the handle {name:?} is open already, or has no name")));
        }
        let opened = self.opened(name, args).await?;
        self.all().insert(name.to_owned(), Arc::new(opened));
        Ok(json!({}))
    }

    async fn opened(&self, name: &str, args: &Value) -> Result<Opened, Failure> {
        let queue = text(args, "queue");
        match text(args, "role") {
            "queue" => {
                let opened = Queue::with_options(queue, queue_options(args)?).await?;
                Ok(Opened::Queue(Arc::new(OpenQueue::new(opened))))
            }
            "flow" => {
                only(&args["options"], &[], "FlowProducerOptions")?;
                let options = FlowProducerOptions::new().connection(connection(&args["redis"]));
                let producer = FlowProducer::with_options(options.prefix(text(args, "prefix"))).await?;
                Ok(Opened::Flow(Arc::new(producer)))
            }
            "worker" => Ok(Opened::Worker(OpenWorker::open(name, queue, args, self.output.clone()).await?)),
            "events" => self.events(name, queue, args).await,
            role => Err(Failure::Unsupported(format!("role {role}"))),
        }
    }

    async fn events(&self, name: &str, queue: &str, args: &Value) -> Result<Opened, Failure> {
        let given = &args["options"];
        only(given, &["lastEventId", "blockingTimeout", "autorun"], "QueueEventsOptions")?;
        let options = QueueEventsOptions {
            connection: connection(&args["redis"]),
            prefix: text(args, "prefix").to_owned(),
            blocking_timeout: given["blockingTimeout"].as_u64().unwrap_or(5000),
            last_event_id: match given["lastEventId"].as_str() {
                Some(id) => Some(id.to_owned()),
                None => Some(last_event_id(queue, args).await?),
            },
            autorun: given["autorun"] != false,
        };
        let events = Arc::new(QueueEvents::with_options(queue, options).await?);
        tokio::spawn(forward(Arc::clone(&events), name.to_owned(), self.output.clone()));
        Ok(Opened::Events(events))
    }

    /// Note what is to be closed, and tell a worker that it is, without waiting for it.
    pub fn begin_close(&self, name: &str, force: bool) {
        let Ok(opened) = self.named(name) else { return };
        if let Opened::Worker(worker) = &*opened {
            worker.begin_close(force);
        }
        self.to_close().push((name.to_owned(), opened));
    }

    /// Close one handle as the client's user would, and forget it.
    pub async fn close(&self, name: &str, force: bool) -> Outcome {
        let opened = self.take_to_close(name).map_or_else(|| self.named(name), Ok)?;
        opened.close(force).await?;
        let mut open = self.all();
        // The name may be another object's by now: of a scenario that came meanwhile.
        if open.get(name).is_some_and(|named| Arc::ptr_eq(named, &opened)) {
            open.remove(name);
        }
        Ok(json!({}))
    }

    /// Forget all handles, and close them without waiting for jobs.
    pub async fn abandon_all(&self) {
        let abandoned: Vec<_> = self.all().drain().map(|(_, opened)| opened).collect();
        let closing: Vec<_> = abandoned
            .into_iter()
            .map(|opened| tokio::spawn(async move { tokio::time::timeout(ABANDON, opened.close(true)).await }))
            .collect();
        for task in closing {
            if let Err(problem) = task.await {
                eprintln!("an object did not close: {problem}");
            }
        }
    }

    pub fn named(&self, name: &str) -> Result<Arc<Opened>, Failure> {
        self.all().get(name).cloned().ok_or_else(|| invalid(format!("no handle is called {name}")))
    }

    pub fn queue(&self, name: &str) -> Result<Arc<OpenQueue>, Failure> {
        match &*self.named(name)? {
            Opened::Queue(open) => Ok(Arc::clone(open)),
            _ => Err(Failure::Unsupported(format!("{name} is no queue; this client has the operation on queues only"))),
        }
    }

    pub fn flow(&self, name: &str) -> Result<Arc<FlowProducer>, Failure> {
        match &*self.named(name)? {
            Opened::Flow(flow) => Ok(Arc::clone(flow)),
            _ => Err(invalid(format!("{name} is no flow producer"))),
        }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Arc<Opened>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_to_close(&self, name: &str) -> Option<Arc<Opened>> {
        let mut to_close = self.to_close();
        let place = to_close.iter().position(|(noted, _)| noted == name)?;
        Some(to_close.remove(place).1)
    }

    fn to_close(&self) -> MutexGuard<'_, Vec<(String, Arc<Opened>)>> {
        self.to_close.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The last entry at the moment of opening: the client's own default, `$`, means "from when the read arrives", which
/// nobody could wait for.
async fn last_event_id(queue: &str, args: &Value) -> Result<String, Failure> {
    let redis = RedisConnection::new_managed_only(&connection(&args["redis"])).await?;
    let mut read = redis::cmd("XREVRANGE");
    read.arg(QueueKeys::new(queue, Some(text(args, "prefix"))).events()).arg("+").arg("-").arg("COUNT").arg(1);
    let last: Vec<(String, Vec<String>)> = redis.cmd(&mut read).await?;
    redis.close().await;
    Ok(last.into_iter().next().map_or("0-0".to_owned(), |(id, _)| id))
}

async fn forward(events: Arc<QueueEvents>, handle: String, output: Output) {
    while let Some(entry) = events.next_event().await {
        match &entry.event {
            QueueEvent::Error { message } => output.emit(&handle, "error", json!({"message": message})),
            event => {
                let args = json!({"name": event.name(), "event_id": entry.id, "fields": fields_of(event)});
                output.emit(&handle, "queue-event", args);
            }
        }
    }
}

/// The fields of an event under the names that they have in the stream.
fn fields_of(event: &QueueEvent) -> Value {
    let mut fields = Map::new();
    if let Some(job) = event.job_id() {
        fields.insert("jobId".to_owned(), json!(job));
    }
    let more = match event {
        QueueEvent::Active { prev, .. } | QueueEvent::Removed { prev, .. } | QueueEvent::Waiting { prev, .. } => {
            json!({"prev": prev})
        }
        QueueEvent::Added { name, .. } => json!({"name": name}),
        QueueEvent::Cleaned { count } => json!({"count": count}),
        QueueEvent::Completed { return_value, prev, .. } => json!({"returnvalue": return_value, "prev": prev}),
        QueueEvent::Debounced { debounce_id, .. } => json!({"debounceId": debounce_id}),
        QueueEvent::Deduplicated { deduplication_id, deduplicated_job_id, .. } => {
            json!({"deduplicationId": deduplication_id, "deduplicatedJobId": deduplicated_job_id})
        }
        QueueEvent::Delayed { delay, .. } => json!({"delay": delay.to_string()}),
        QueueEvent::Failed { failed_reason, prev, .. } => json!({"failedReason": failed_reason, "prev": prev}),
        QueueEvent::Progress { data, .. } => json!({"data": data}),
        QueueEvent::RetriesExhausted { attempts_made, .. } => json!({"attemptsMade": attempts_made}),
        QueueEvent::Other { fields, .. } => json!(fields),
        _ => json!({}),
    };
    let given = more.as_object().cloned().unwrap_or_default();
    fields.extend(given.into_iter().filter(|(_, value)| !value.is_null()));
    Value::Object(fields)
}
