//! The client's objects in the fields of the protocol.

use bullmq_rs::{FlowNode, Job, JobScheduler, JobState};
use serde_json::{json, Value};

use crate::shared::public_options;

pub fn job(job: &Job<Value>) -> Value {
    json!({
        "id": job.id,
        "name": job.name,
        "data_raw": job.data.to_string(),
        "opts": public_options(&job.opts),
        "timestamp": job.timestamp,
        "delay": job.delay,
        "priority": job.priority,
        "attempts_made": job.attempts_made,
        "attempts_started": job.attempts_started,
        "stalled_counter": null,
        "parent_key": null,
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

pub fn maybe_job(job: Option<&Job<Value>>) -> Value {
    json!({"job": job.map(self::job)})
}

/// A state under BullMQ's name; the client's type calls `waiting` differently.
pub fn state(state: JobState) -> String {
    match state {
        JobState::Wait => "waiting".to_owned(),
        other => other.to_string(),
    }
}

/// The jobs that were added. The client does not return their queues, so these are taken from the call.
pub fn flow(node: &FlowNode<Value>, given: &Value) -> Value {
    let children: Vec<Value> =
        node.children.iter().enumerate().map(|(place, child)| flow(child, &given["children"][place])).collect();
    json!({"id": node.job.id, "queue": given["queue"], "children": children})
}

pub fn scheduler(scheduler: &JobScheduler) -> Value {
    json!({
        "key": scheduler.id,
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
        "template_data_raw": scheduler.template_data.as_ref().map(Value::to_string),
        "template_opts": scheduler.template_opts.as_ref().map(public_options),
    })
}
