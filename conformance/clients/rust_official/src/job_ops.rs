//! Operations on one job: the client's Job, as its user gets it from Queue.get_job.

use bullmq::{Job, JobState, RetryOptions};
use serde_json::{json, Value};

use crate::handles::OpenQueue;
use crate::options::maybe;
use crate::serve::{Failure, Outcome};
use crate::shared::arguments::{number, parsed, text};
use crate::shared::refusals::unsupported;
use crate::shared::{done, json_texts};
use crate::workers::progress;

pub const OPS: &[&str] = &[
    "job.changeDelay", "job.changePriority", "job.clearLogs", "job.getChildrenValues", "job.getDependencies",
    "job.getDependenciesCount", "job.getIgnoredChildrenFailures", "job.getState", "job.isFinished", "job.log",
    "job.promote", "job.removeChildDependency", "job.removeUnprocessedChildren", "job.retry", "job.updateData",
    "job.updateProgress",
];

/// The page size of Job.get_dependencies: larger than any flow of a scenario.
const CHILDREN: u64 = 1000;

pub async fn call(op: &str, open: &OpenQueue, args: &Value) -> Outcome {
    if op == "job.removeUnprocessedChildren" {
        return done(open.queue.remove_unprocessed_children(text(args, "job")).await?);
    }
    let mut job = stored_or_held(open, text(args, "job")).await?;
    match op {
        "job.log" if args["keep_logs"].is_null() => Ok(json!({"count": job.log(text(args, "row")).await?})),
        "job.log" => Err(unsupported("Job.log of this client has no limit of rows")),
        "job.getDependencies" => dependencies(&job).await,
        "job.getState" => Ok(json!({"state": job.get_state().await?})),
        "job.isFinished" => {
            let state = job.get_state().await?;
            Ok(json!({"value": matches!(state, JobState::Completed | JobState::Failed)}))
        }
        "job.getDependenciesCount" => {
            let count = job.get_dependencies_count().await?;
            Ok(json!({
                "processed": count.processed, "unprocessed": count.unprocessed, "ignored": count.ignored,
                "failed": count.failed,
            }))
        }
        "job.getChildrenValues" => Ok(json!({"values": json_texts(job.get_children_values().await?)})),
        "job.getIgnoredChildrenFailures" => Ok(json!({"values": job.get_ignored_children_failures().await?})),
        "job.removeChildDependency" => Ok(json!({"value": job.remove_child_dependency().await?})),
        _ => done(change(op, &mut job, args).await?),
    }
}

/// The job as it is stored now, or the Job object that a user still has if the hash has been deleted.
async fn stored_or_held(open: &OpenQueue, id: &str) -> Result<Job, Failure> {
    if let Some(job) = open.queue.get_job(id).await? {
        open.hold(job.id(), &job);
        return Ok(job);
    }
    open.held(id)
}

async fn change(op: &str, job: &mut Job, args: &Value) -> Result<(), Failure> {
    match op {
        "job.updateData" => job.update_data(parsed(args, "data_raw")?).await?,
        "job.updateProgress" => job.update_progress(progress(&parsed(args, "value_raw")?)).await?,
        "job.clearLogs" => job.clear_logs(maybe(args, "keep_logs").map(|rows| rows as u32)).await?,
        "job.promote" => job.promote().await?,
        "job.changeDelay" => job.change_delay(number(args, "delay_ms").unsigned_abs()).await?,
        "job.changePriority" => job.change_priority(number(args, "priority") as u32, args["lifo"] == true).await?,
        "job.retry" => {
            let reset_attempts_made = args["reset_attempts_made"] == true;
            let reset_attempts_started = args["reset_attempts_started"] == true;
            let resetting = RetryOptions { reset_attempts_made, reset_attempts_started };
            job.retry(text(args, "state"), Some(resetting)).await?
        }
        other => return Err(unsupported(format!("no operation {other}"))),
    }
    Ok(())
}

async fn dependencies(job: &Job) -> Outcome {
    let page = job.get_dependencies(0, 0, CHILDREN).await?;
    Ok(json!({"processed": json_texts(page.processed), "unprocessed": page.unprocessed}))
}
