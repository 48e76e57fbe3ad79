//! Operations on one job: the client's Job, as its user gets it from Queue::get_job.

use bullmq_rs::{BullmqError, Job, QueueEvents};
use serde_json::{json, Value};

use crate::handles::OpenQueue;
use crate::options::{duration, maybe, parsed, text};
use crate::refusals::unsupported;
use crate::serve::{Failure, Outcome};
use crate::views;

pub const OPS: &[&str] = &[
    "job.changePriority", "job.clearLogs", "job.getChildrenValues", "job.getDependencies", "job.getState",
    "job.isFinished", "job.log", "job.promote", "job.remove", "job.updateData", "job.updateProgress",
    "job.waitUntilFinished",
];

/// The job as it is stored now, or as its user has it in hand where its hash has gone since.
async fn found(open: &OpenQueue, args: &Value) -> Result<Job<Value>, Failure> {
    let id = text(args, "job");
    if let Some(job) = open.queue.get_job(id).await? {
        open.hold(&job);
        return Ok(job);
    }
    open.held(id).ok_or_else(|| Failure::Unsupported(format!("nobody gets a Job {id} from this client: there is none")))
}

pub async fn call(op: &str, open: &OpenQueue, args: &Value) -> Outcome {
    let mut job = found(open, args).await?;
    match op {
        "job.log" if args["keep_logs"].is_null() => Ok(json!({"count": job.log(text(args, "row")).await?})),
        "job.log" => Err(unsupported("Job::log of this client takes no number of rows")),
        "job.getState" => Ok(json!({"state": views::state(job.get_state().await?)})),
        "job.isFinished" => Ok(json!({"value": job.is_completed().await? || job.is_failed().await?})),
        "job.getDependencies" => {
            let found = job.get_dependencies().await?;
            Ok(json!({"processed": as_texts(found.processed), "unprocessed": found.unprocessed}))
        }
        "job.getChildrenValues" => Ok(json!({"values": as_texts(job.get_children_values().await?)})),
        _ => {
            change(op, &mut job, args).await?;
            Ok(json!({}))
        }
    }
}

async fn change(op: &str, job: &mut Job<Value>, args: &Value) -> Result<(), Failure> {
    match op {
        "job.updateData" => job.update_data(parsed(args, "data_raw")?).await?,
        "job.updateProgress" => job.update_progress(parsed(args, "value_raw")?).await?,
        "job.clearLogs" if args["keep_logs"].is_null() => job.clear_logs().await?,
        "job.clearLogs" => return Err(unsupported("Job::clear_logs of this client keeps no rows")),
        "job.promote" => job.promote().await?,
        "job.changePriority" if args["lifo"] == true => {
            return Err(unsupported("Job::change_priority of this client has no lifo"));
        }
        "job.changePriority" => job.change_priority(maybe(args, "priority")?.unwrap_or_default()).await?,
        "job.remove" if args["remove_children"] == false => job.remove().await?,
        "job.remove" => return Err(unsupported("Job::remove of this client leaves the children")),
        other => return Err(Failure::Unsupported(format!("no operation {other}"))),
    }
    Ok(())
}

/// The client has one type for a failed job and for a time that ran out; only the text tells them apart.
pub async fn wait(open: &OpenQueue, events: &QueueEvents, args: &Value) -> Outcome {
    let job = found(open, args).await?;
    match job.wait_until_finished(events, duration(args, "ttl_ms")?).await {
        Ok(value) => Ok(json!({"value_raw": value.to_string()})),
        Err(BullmqError::Other(message)) => {
            let code = if message == "Job wait timed out" { "timeout" } else { "job-failed" };
            Err(Failure::Failed { code, message })
        }
        Err(error) => Err(error.into()),
    }
}

fn as_texts(values: std::collections::HashMap<String, Value>) -> Value {
    Value::Object(values.into_iter().map(|(child, value)| (child, json!(value.to_string()))).collect())
}
