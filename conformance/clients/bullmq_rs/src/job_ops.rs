//! Operations on one job: the client's Job, as its user gets it from Queue::get_job.

use bullmq_rs::{BullmqError, Job, QueueEvents};
use serde_json::{json, Value};

use crate::handles::OpenQueue;
use crate::options::{duration, maybe};
use crate::serve::{Failure, Outcome};
use crate::shared::arguments::{parsed, text};
use crate::shared::refusals::unsupported;
use crate::shared::{done, json_texts};
use crate::views;

pub const OPS: &[&str] = &[
    "job.changePriority", "job.clearLogs", "job.getChildrenValues", "job.getDependencies", "job.getState",
    "job.isFinished", "job.log", "job.promote", "job.remove", "job.updateData", "job.updateProgress",
    "job.waitUntilFinished",
];

/// The job as it is stored now, or the Job object that a user still has if the hash has been deleted.
async fn stored_or_held(open: &OpenQueue, args: &Value) -> Result<Job<Value>, Failure> {
    let id = text(args, "job");
    if let Some(job) = open.queue.get_job(id).await? {
        open.hold(&job.id, &job);
        return Ok(job);
    }
    open.held(id)
}

pub async fn call(op: &str, open: &OpenQueue, args: &Value) -> Outcome {
    let mut job = stored_or_held(open, args).await?;
    match op {
        "job.log" if args["keep_logs"].is_null() => Ok(json!({"count": job.log(text(args, "row")).await?})),
        "job.log" => Err(unsupported("Job::log of this client has no limit of rows")),
        "job.getState" => Ok(json!({"state": views::state(job.get_state().await?)})),
        "job.isFinished" => Ok(json!({"value": job.is_completed().await? || job.is_failed().await?})),
        "job.getDependencies" => {
            let dependencies = job.get_dependencies().await?;
            Ok(json!({"processed": json_texts(dependencies.processed), "unprocessed": dependencies.unprocessed}))
        }
        "job.getChildrenValues" => Ok(json!({"values": json_texts(job.get_children_values().await?)})),
        _ => done(change(op, &mut job, args).await?),
    }
}

async fn change(op: &str, job: &mut Job<Value>, args: &Value) -> Result<(), Failure> {
    match op {
        "job.updateData" => job.update_data(parsed(args, "data_raw")?).await?,
        "job.updateProgress" => job.update_progress(parsed(args, "value_raw")?).await?,
        "job.clearLogs" if args["keep_logs"].is_null() => job.clear_logs().await?,
        "job.clearLogs" => return Err(unsupported("Job::clear_logs of this client cannot keep rows")),
        "job.promote" => job.promote().await?,
        "job.changePriority" if args["lifo"] == true => {
            return Err(unsupported("Job::change_priority of this client has no lifo"));
        }
        "job.changePriority" => job.change_priority(maybe(args, "priority")?.unwrap_or_default()).await?,
        "job.remove" if args["remove_children"] == false => job.remove().await?,
        "job.remove" => return Err(unsupported("Job::remove of this client does not remove children")),
        other => return Err(unsupported(format!("no operation {other}"))),
    }
    Ok(())
}

/// The client has one error type for a failed job and for a timeout; only the text shows which one it is.
pub async fn wait(open: &OpenQueue, events: &QueueEvents, args: &Value) -> Outcome {
    let job = stored_or_held(open, args).await?;
    match job.wait_until_finished(events, duration(args, "ttl_ms")?).await {
        Ok(value) => Ok(json!({"value_raw": value.to_string()})),
        Err(BullmqError::Other(message)) => {
            let code = if message == "Job wait timed out" { "timeout" } else { "job-failed" };
            Err(Failure::Failed { code, message })
        }
        Err(error) => Err(error.into()),
    }
}
