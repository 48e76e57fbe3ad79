//! The client's objects in the fields of the protocol.

use bullmq::job_scheduler::JobSchedulerJson;
use bullmq::{Job, JobNode};
use serde_json::{json, Value};

use crate::shared::public_options;

pub fn job(job: &Job) -> Value {
    let whole = serde_json::to_value(job).unwrap_or_default(); // two fields have no getter, but are in the public JSON
    let some = |text: &str| if text.is_empty() { Value::Null } else { json!(text) };
    json!({
        "id": job.id(),
        "name": job.name(),
        "data_raw": job.data().to_string(),
        "opts": public_options(job.opts()),
        "timestamp": job.timestamp(),
        "delay": job.delay(),
        "priority": job.priority(),
        "attempts_made": job.attempts_made(),
        "attempts_started": job.attempts_started(),
        "stalled_counter": whole["stalled_counter"],
        "progress_raw": whole["progress"].to_string(),
        // The client returns the text in Redis, and an empty one if there is none, which is null in JavaScript.
        "returnvalue_raw": if job.returnvalue().is_empty() { "null" } else { job.returnvalue() },
        "failed_reason": some(job.failed_reason()),
        "stacktrace_length": null,
        "processed_on": job.processed_on(),
        "finished_on": job.finished_on(),
        "processed_by": job.processed_by(),
        "parent_key": job.parent_key(),
        "deduplication_id": job.opts().deduplication.as_ref().map(|deduplication| deduplication.id.clone()),
    })
}

pub fn maybe_job(job: Option<&Job>) -> Value {
    json!({"job": job.map(self::job)})
}

pub fn flow(node: &JobNode) -> Value {
    let children: Vec<Value> = node.children.iter().flatten().map(flow).collect();
    json!({"id": node.job.id(), "queue": node.job.queue_name().unwrap_or_default(), "children": children})
}

pub fn scheduler(scheduler: &JobSchedulerJson) -> Value {
    json!({
        "key": scheduler.key,
        "name": scheduler.name,
        "next": scheduler.next,
        "every": scheduler.every,
        "pattern": scheduler.pattern,
        "tz": scheduler.tz,
        "limit": scheduler.limit,
        "start_date": scheduler.start_date,
        "end_date": scheduler.end_date,
        "iteration_count": scheduler.iteration_count,
        "offset": scheduler.offset,
        "template_data_raw": scheduler.data.as_ref().map(Value::to_string),
        "template_opts": scheduler.opts,
    })
}
