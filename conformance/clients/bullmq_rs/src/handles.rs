//! The client's objects that the kit has opened.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bullmq_rs::{
    FlowProducer, FlowProducerBuilder, Job, Queue, QueueBuilder, QueueEvent, QueueEvents, QueueEventsBuilder,
    RedisConnection,
};
use serde_json::{json, Map, Value};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::Receiver;
use tokio::task::JoinHandle;

use crate::options::{connection, maybe, only, text};
use crate::refusals::{invalid, unsupported};
use crate::serve::{Failure, Outcome, Output};
use crate::workers::OpenWorker;

/// How many of the jobs that a queue has handed out its user still has in hand.
const HELD: usize = 100;

pub enum Opened {
    Queue(Arc<OpenQueue>),
    Flow(Arc<FlowProducer>),
    Events(Arc<QueueEvents>, JoinHandle<()>),
    Worker(Arc<OpenWorker>),
}

impl Opened {
    /// The client's queues and flow producers have no method that closes them: they end when nobody has them any more.
    async fn close(&self, force: bool) -> Result<(), Failure> {
        match self {
            Opened::Queue(_) | Opened::Flow(_) => {}
            Opened::Events(events, forwarding) => {
                // `QueueEvents::close` would wait until the read that is under way ends by itself, 10 s as a rule.
                events.shutdown();
                forwarding.abort();
            }
            Opened::Worker(worker) => worker.close(force).await?,
        }
        Ok(())
    }
}

/// A queue, and the latest jobs that it has handed out: its user has them in hand, and calls them also where their hash has
/// gone since. It is the client that must say then what is missing.
pub struct OpenQueue {
    pub queue: Queue<Value>,
    held: Mutex<VecDeque<Job<Value>>>,
}

impl OpenQueue {
    fn new(queue: Queue<Value>) -> OpenQueue {
        OpenQueue { queue, held: Mutex::default() }
    }

    pub fn hold(&self, job: &Job<Value>) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.retain(|other| other.id != job.id);
        held.push_back(job.clone());
        if held.len() > HELD {
            held.pop_front();
        }
    }

    pub fn held(&self, id: &str) -> Option<Job<Value>> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.iter().find(|job| job.id == id).cloned()
    }
}

pub struct Handles {
    open: Mutex<HashMap<String, Arc<Opened>>>,
    output: Output,
}

impl Handles {
    pub fn new(output: Output) -> Handles {
        Handles { open: Mutex::default(), output }
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
        let redis = connection(&args["redis"])?;
        let given = &args["options"];
        match text(args, "role") {
            "queue" => {
                only(given, &[], "QueueBuilder")?;
                Ok(Opened::Queue(Arc::new(OpenQueue::new(open_queue(args).await?))))
            }
            "flow" => {
                only(given, &[], "FlowProducerBuilder")?;
                let builder = FlowProducerBuilder::new().connection(redis).prefix(text(args, "prefix"));
                Ok(Opened::Flow(Arc::new(builder.build().await?)))
            }
            "worker" => Ok(Opened::Worker(Arc::new(OpenWorker::open(name, args, self.output.clone()).await?))),
            "events" => self.read_events(name, args, redis).await,
            role => Err(Failure::Unsupported(format!("role {role}"))),
        }
    }

    async fn read_events(&self, name: &str, args: &Value, redis: RedisConnection) -> Result<Opened, Failure> {
        let (queue, prefix, given) = (text(args, "queue"), text(args, "prefix"), &args["options"]);
        only(given, &["lastEventId", "blockingTimeout", "autorun"], "QueueEventsBuilder")?;
        if given["autorun"] == false {
            return Err(unsupported("QueueEvents of this client read as soon as they are built"));
        }
        let from = match given["lastEventId"].as_str() {
            Some(id) => id.to_owned(),
            None => last_event_id(&format!("{prefix}:{queue}:events"), &redis).await?,
        };
        let mut builder = QueueEventsBuilder::new(queue).connection(redis).prefix(prefix).last_event_id(from);
        if let Some(longest) = maybe(given, "blockingTimeout")? {
            builder = builder.blocking_timeout(longest);
        }
        let events = builder.build().await?;
        let forwarding = tokio::spawn(forward(events.subscribe(), name.to_owned(), self.output.clone()));
        Ok(Opened::Events(Arc::new(events), forwarding))
    }

    /// Close one handle as the client's user would, and forget it.
    pub async fn close(&self, name: &str, force: bool) -> Outcome {
        let opened = self.named(name)?;
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
        for opened in abandoned {
            if opened.close(true).await.is_err() {
                eprintln!("an object did not close");
            }
        }
    }

    fn named(&self, name: &str) -> Result<Arc<Opened>, Failure> {
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

    pub fn events(&self, name: &str) -> Result<Arc<QueueEvents>, Failure> {
        match &*self.named(name)? {
            Opened::Events(events, _) => Ok(Arc::clone(events)),
            _ => Err(invalid(format!("{name} reads no events"))),
        }
    }

    pub fn worker(&self, name: &str) -> Result<Arc<OpenWorker>, Failure> {
        match &*self.named(name)? {
            Opened::Worker(worker) => Ok(Arc::clone(worker)),
            _ => Err(invalid(format!("{name} is no worker"))),
        }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Arc<Opened>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub async fn open_queue(args: &Value) -> Result<Queue<Value>, Failure> {
    let builder = QueueBuilder::new(text(args, "queue")).connection(connection(&args["redis"])?);
    Ok(builder.prefix(text(args, "prefix")).build().await?)
}

/// The last entry at the moment of opening: the client's own default, `$`, means "from when the read arrives", which
/// nobody could wait for.
async fn last_event_id(stream: &str, server: &RedisConnection) -> Result<String, Failure> {
    let read = async {
        let mut redis = redis::Client::open(server.url())?.get_multiplexed_async_connection().await?;
        let mut command = redis::cmd("XREVRANGE");
        command.arg(stream).arg("+").arg("-").arg("COUNT").arg(1);
        command.query_async::<Vec<(String, Vec<String>)>>(&mut redis).await
    };
    let last = read.await.map_err(bullmq_rs::BullmqError::Redis)?;
    Ok(last.into_iter().next().map_or("0-0".to_owned(), |(id, _)| id))
}

async fn forward(mut events: Receiver<(QueueEvent, String)>, handle: String, output: Output) {
    loop {
        match events.recv().await {
            Ok((event, id)) => {
                let (name, fields) = told(event);
                output.emit(&handle, "queue-event", json!({"name": name, "event_id": id, "fields": fields}));
            }
            Err(RecvError::Lagged(missed)) => {
                output.emit(&handle, "error", json!({"message": format!("{missed} events were missed")}));
            }
            Err(RecvError::Closed) => return,
        }
    }
}

/// Name and fields of an event as they are called in the stream.
fn told(event: QueueEvent) -> (String, Value) {
    let (name, fields) = match event {
        QueueEvent::Added { job_id, name } => ("added", json!({"jobId": job_id, "name": name})),
        QueueEvent::Waiting { job_id, prev } => ("waiting", json!({"jobId": job_id, "prev": prev})),
        QueueEvent::Active { job_id, prev } => ("active", json!({"jobId": job_id, "prev": prev})),
        QueueEvent::Completed { job_id, return_value } => ("completed", json!({"jobId": job_id, "returnvalue": return_value})),
        QueueEvent::Failed { job_id, reason } => ("failed", json!({"jobId": job_id, "failedReason": reason})),
        QueueEvent::Delayed { job_id, delay } => ("delayed", json!({"jobId": job_id, "delay": delay.to_string()})),
        QueueEvent::Progress { job_id, data } => ("progress", json!({"jobId": job_id, "data": data})),
        QueueEvent::Stalled { job_id } => ("stalled", json!({"jobId": job_id})),
        QueueEvent::Priority { job_id, priority } => {
            ("priority", json!({"jobId": job_id, "priority": priority.to_string()}))
        }
        QueueEvent::Removed { job_id, prev } => ("removed", json!({"jobId": job_id, "prev": prev})),
        QueueEvent::WaitingChildren { job_id } => ("waiting-children", json!({"jobId": job_id})),
        QueueEvent::Paused => ("paused", json!({})),
        QueueEvent::Resumed => ("resumed", json!({})),
        QueueEvent::Drained => ("drained", json!({})),
        QueueEvent::Unknown { event, mut fields } => {
            fields.remove("event");
            return (event, json!(fields));
        }
    };
    let given = fields.as_object().cloned().unwrap_or_default();
    let some: Map<String, Value> = given.into_iter().filter(|(key, value)| key != "prev" || !value.is_null()).collect();
    (name.to_owned(), Value::Object(some))
}
