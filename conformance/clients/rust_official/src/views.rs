//! What the client hands to its user, in the fields of the protocol.

use bullmq::job_scheduler::JobSchedulerJson;
use bullmq::{Job, JobNode, JobOptions};
use serde_json::{json, Value};

/// Options by BullMQ's names. The client's type has the field `deduplication` as well, and writes it as it is stored, as `de`.
fn options(opts: &JobOptions) -> Value {
    let mut told = serde_json::to_value(opts).unwrap_or_default();
    if let Some(deduplication) = told.as_object_mut().and_then(|told| told.remove("de")) {
        told["deduplication"] = deduplication;
    }
    told
}

pub fn job(job: &Job) -> Value {
    let whole = serde_json::to_value(job).unwrap_or_default(); // two fields have no getter, and yet are public JSON
    let some = |text: &str| if text.is_empty() { Value::Null } else { json!(text) };
    json!({
        "id": job.id(),
        "name": job.name(),
        "data_raw": job.data().to_string(),
        "opts": options(job.opts()),
        "timestamp": job.timestamp(),
        "delay": job.delay(),
        "priority": job.priority(),
        "attempts_made": job.attempts_made(),
        "attempts_started": job.attempts_started(),
        "stalled_counter": whole["stalled_counter"],
        "progress_raw": whole["progress"].to_string(),
        // The client hands out the text in Redis, and an empty one where there is none: JavaScript's null.
        "returnvalue_raw": if job.returnvalue().is_empty() { "null" } else { job.returnvalue() },
        "failed_reason": some(job.failed_reason()),
        "processed_on": job.processed_on(),
        "finished_on": job.finished_on(),
        "processed_by": job.processed_by(),
        "parent_key": job.parent_key(),
        "deduplication_id": job.opts().deduplication.as_ref().map(|deduplication| deduplication.id.clone()),
    })
}

pub fn maybe_job(found: Option<&Job>) -> Value {
    json!({"job": found.map(job)})
}

pub fn flow(node: &JobNode) -> Value {
    let children: Vec<Value> = node.children.iter().flatten().map(flow).collect();
    json!({"id": node.job.id(), "queue": node.job.queue_name().unwrap_or_default(), "children": children})
}

pub fn scheduler(found: &JobSchedulerJson) -> Value {
    json!({
        "key": found.key,
        "name": found.name,
        "next": found.next,
        "every": found.every,
        "pattern": found.pattern,
        "tz": found.tz,
        "limit": found.limit,
        "start_date": found.start_date,
        "end_date": found.end_date,
        "iteration_count": found.iteration_count,
        "offset": found.offset,
        "template_data_raw": found.data.as_ref().map(Value::to_string),
        "template_opts": found.opts,
    })
}
