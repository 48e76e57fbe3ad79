//! What the client hands to its user, in the fields of the protocol.

use bullmq_rs::{FlowNode, Job, JobOptions, JobScheduler, JobState};
use serde_json::{json, Value};

/// Options by BullMQ's names. The client's type has the field `deduplication` as well, and writes it as it is stored, as `de`.
fn options(opts: &JobOptions) -> Value {
    let mut told = serde_json::to_value(opts).unwrap_or_default();
    if let Some(deduplication) = told.as_object_mut().and_then(|told| told.remove("de")) {
        told["deduplication"] = deduplication;
    }
    told
}

pub fn job(job: &Job<Value>) -> Value {
    json!({
        "id": job.id,
        "name": job.name,
        "data_raw": job.data.to_string(),
        "opts": options(&job.opts),
        "timestamp": job.timestamp,
        "delay": job.delay,
        "priority": job.priority,
        "attempts_made": job.attempts_made,
        "attempts_started": job.attempts_started,
        "progress_raw": job.progress.as_ref().map(Value::to_string),
        "returnvalue_raw": job.return_value.as_ref().map_or("null".to_owned(), Value::to_string),
        "failed_reason": job.failed_reason,
        "stacktrace_length": job.stacktrace.len(),
        "processed_on": job.processed_on,
        "finished_on": job.finished_on,
        "processed_by": job.processed_by,
        "deduplication_id": job.opts.deduplication.as_ref().map(|deduplication| &deduplication.id),
    })
}

pub fn maybe_job(found: Option<&Job<Value>>) -> Value {
    json!({"job": found.map(job)})
}

/// A state by BullMQ's name: the client's type has one name of its own.
pub fn state(state: JobState) -> String {
    match state {
        JobState::Wait => "waiting".to_owned(),
        other => other.to_string(),
    }
}

/// The jobs that were added; their queues are those that were asked for, because the client does not tell them.
pub fn flow(node: &FlowNode<Value>, given: &Value) -> Value {
    let children: Vec<Value> =
        node.children.iter().enumerate().map(|(place, child)| flow(child, &given["children"][place])).collect();
    json!({"id": node.job.id, "queue": given["queue"], "children": children})
}

pub fn scheduler(found: &JobScheduler) -> Value {
    json!({
        "key": found.id,
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
        "template_data_raw": found.template_data.as_ref().map(Value::to_string),
        "template_opts": found.template_opts.as_ref().map(options),
    })
}
