//! The client's objects that handles name.

use std::sync::Arc;

use bullmq::redis_connection::RedisConnection;
use bullmq::{FlowProducer, FlowProducerOptions, Job, Queue, QueueEvent, QueueEvents, QueueEventsOptions, QueueKeys};
use serde_json::{json, Map, Value};

use crate::options::{connection, queue_options};
use crate::serve::{Failure, Output};
use crate::shared::arguments::{only, text};
use crate::shared::handles::{self, Close, Handles};
use crate::shared::refusals::{invalid, unsupported};
use crate::workers::OpenWorker;

pub type OpenQueue = handles::OpenQueue<Queue, Job>;

pub enum Opened {
    Queue(Arc<OpenQueue>),
    Flow(Arc<FlowProducer>),
    Events(Arc<QueueEvents>),
    Worker(Arc<OpenWorker>),
}

impl Close for Opened {
    fn start_close(&self, force: bool) {
        if let Opened::Worker(worker) = self {
            worker.start_close(force);
        }
    }

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

/// Make the object of a role, and wait until it is connected.
pub async fn open(name: &str, args: &Value, output: Output) -> Result<Opened, Failure> {
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
        "worker" => Ok(Opened::Worker(Arc::new(OpenWorker::open(name, queue, args, output).await?))),
        "events" => read_events(name, queue, args, output).await,
        role => Err(unsupported(format!("role {role}"))),
    }
}

async fn read_events(name: &str, queue: &str, args: &Value, output: Output) -> Result<Opened, Failure> {
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
    tokio::spawn(forward(Arc::clone(&events), name.to_owned(), output));
    Ok(Opened::Events(events))
}

impl Handles<Opened> {
    pub fn queue(&self, name: &str) -> Result<Arc<OpenQueue>, Failure> {
        match &*self.named(name)? {
            Opened::Queue(open) => Ok(Arc::clone(open)),
            _ => Err(unsupported(format!("{name} is not a queue; this client has the operation on queues only"))),
        }
    }

    pub fn flow(&self, name: &str) -> Result<Arc<FlowProducer>, Failure> {
        match &*self.named(name)? {
            Opened::Flow(flow) => Ok(Arc::clone(flow)),
            _ => Err(invalid(format!("{name} is not a flow producer"))),
        }
    }

    pub fn worker(&self, name: &str) -> Result<Arc<OpenWorker>, Failure> {
        match &*self.named(name)? {
            Opened::Worker(worker) => Ok(Arc::clone(worker)),
            _ => Err(invalid(format!("{name} is not a worker"))),
        }
    }
}

/// The last entry when the reader opens. The client's default `$` means "from when the first read reaches Redis"; events
/// that a scenario causes before that would be lost.
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
