//! The client's objects that handles name.

use std::sync::Arc;

use bullmq_rs::{FlowProducer, FlowProducerBuilder, Job, Queue, QueueEvent, QueueEvents, QueueEventsBuilder, RedisConnection};
use serde_json::{json, Map, Value};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::Receiver;
use tokio::task::JoinHandle;

use crate::options::{connection, maybe, open_queue};
use crate::serve::{Failure, Output};
use crate::shared::arguments::{only, text};
use crate::shared::handles::{self, Close, Handles};
use crate::shared::refusals::{invalid, unsupported};
use crate::workers::OpenWorker;

pub type OpenQueue = handles::OpenQueue<Queue<Value>, Job<Value>>;

pub enum Opened {
    Queue(Arc<OpenQueue>),
    Flow(Arc<FlowProducer>),
    Events(Arc<QueueEvents>, JoinHandle<()>),
    Worker(Arc<OpenWorker>),
}

impl Close for Opened {
    /// The client's queues and flow producers have no close method: they close when the last reference is dropped.
    async fn close(&self, force: bool) -> Result<(), Failure> {
        match self {
            Opened::Queue(_) | Opened::Flow(_) => {}
            Opened::Events(events, forwarding) => {
                // Not `QueueEvents::close`: it waits for the end of the pending read, which usually takes 10 s.
                events.shutdown();
                forwarding.abort();
            }
            Opened::Worker(worker) => worker.close(force).await?,
        }
        Ok(())
    }
}

/// Make the object of a role, and wait until it is connected.
pub async fn open(name: &str, args: &Value, output: Output) -> Result<Opened, Failure> {
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
        "worker" => Ok(Opened::Worker(Arc::new(OpenWorker::open(name, args, output).await?))),
        "events" => read_events(name, args, redis, output).await,
        role => Err(unsupported(format!("role {role}"))),
    }
}

async fn read_events(name: &str, args: &Value, redis: RedisConnection, output: Output) -> Result<Opened, Failure> {
    let (queue, prefix, given) = (text(args, "queue"), text(args, "prefix"), &args["options"]);
    only(given, &["lastEventId", "blockingTimeout", "autorun"], "QueueEventsBuilder")?;
    if given["autorun"] == false {
        return Err(unsupported("QueueEvents of this client start to read when they are built"));
    }
    // Read before the reader opens: events between the two are then delivered, not skipped.
    let from = match given["lastEventId"].as_str() {
        Some(id) => id.to_owned(),
        None => last_event_id(&format!("{prefix}:{queue}:events"), &redis).await?,
    };
    let mut builder = QueueEventsBuilder::new(queue).connection(redis).prefix(prefix).last_event_id(from);
    if let Some(longest) = maybe(given, "blockingTimeout")? {
        builder = builder.blocking_timeout(longest);
    }
    let events = builder.build().await?;
    let forwarding = tokio::spawn(forward(events.subscribe(), name.to_owned(), output));
    Ok(Opened::Events(Arc::new(events), forwarding))
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

    pub fn events(&self, name: &str) -> Result<Arc<QueueEvents>, Failure> {
        match &*self.named(name)? {
            Opened::Events(events, _) => Ok(Arc::clone(events)),
            _ => Err(invalid(format!("{name} is not a reader of events"))),
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
                let (name, fields) = name_and_fields(event);
                output.emit(&handle, "queue-event", json!({"name": name, "event_id": id, "fields": fields}));
            }
            // The channel drops the oldest events when it is full; silence would look like a defect of the client.
            Err(RecvError::Lagged(missed)) => {
                output.emit(&handle, "error", json!({"message": format!("{missed} events were missed")}));
            }
            Err(RecvError::Closed) => return,
        }
    }
}

/// The name and the fields that an event has in the stream.
fn name_and_fields(event: QueueEvent) -> (String, Value) {
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
