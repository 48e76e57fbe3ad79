//! Operations on one job: the client's Job, as its user gets it from Queue.get_job.

use bullmq::{Job, JobState};
use serde_json::{json, Value};

use crate::handles::OpenQueue;
use crate::options::{maybe, number, parsed, text};
use crate::serve::{Failure, Outcome};
use crate::workers::progress;

pub const OPS: &[&str] = &[
    "job.changeDelay", "job.changePriority", "job.clearLogs", "job.getChildrenValues", "job.getDependencies",
    "job.getDependenciesCount", "job.getIgnoredChildrenFailures", "job.getState", "job.isFinished", "job.log",
    "job.promote", "job.removeChildDependency", "job.removeUnprocessedChildren", "job.retry", "job.updateData",
    "job.updateProgress",
];

/// The most children that one page of Job.get_dependencies is asked for.
const CHILDREN: u64 = 1000;

pub async fn call(op: &str, open: &OpenQueue, args: &Value) -> Outcome {
    if op == "job.removeUnprocessedChildren" {
        open.queue.remove_unprocessed_children(text(args, "job")).await?;
        return Ok(json!({}));
    }
    let mut job = found(open, text(args, "job")).await?;
    match op {
        "job.log" if args["keep_logs"].is_null() => Ok(json!({"count": job.log(text(args, "row")).await?})),
        "job.log" => Err(Failure::Unsupported("Job.log of this client takes no number of rows".to_owned())),
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
        "job.getChildrenValues" => {
            let values = job.get_children_values().await?;
            let texts: Vec<(String, Value)> =
                values.into_iter().map(|(child, value)| (child, json!(value.to_string()))).collect();
            Ok(json!({"values": Value::Object(texts.into_iter().collect())}))
        }
        "job.getIgnoredChildrenFailures" => Ok(json!({"values": job.get_ignored_children_failures().await?})),
        "job.removeChildDependency" => Ok(json!({"value": job.remove_child_dependency().await?})),
        _ => {
            change(op, &mut job, args).await?;
            Ok(json!({}))
        }
    }
}

/// The job as it is stored now, or as its user has it in hand where its hash has gone since.
async fn found(open: &OpenQueue, id: &str) -> Result<Job, Failure> {
    if let Some(job) = open.queue.get_job(id).await? {
        open.hold(&job);
        return Ok(job);
    }
    open.held(id).ok_or_else(|| Failure::Unsupported(format!("nobody gets a Job {id} from this client: there is none")))
}

async fn change(op: &str, job: &mut Job, args: &Value) -> Result<(), Failure> {
    match op {
        "job.updateData" => job.update_data(parsed(args, "data_raw")?).await?,
        "job.updateProgress" => job.update_progress(progress(&parsed(args, "value_raw")?)).await?,
        "job.clearLogs" => job.clear_logs(maybe(args, "keep_logs").map(|rows| rows as u32)).await?,
        "job.promote" => job.promote().await?,
        "job.changeDelay" => job.change_delay(number(args, "delay_ms").unsigned_abs()).await?,
        "job.changePriority" => job.change_priority(number(args, "priority") as u32, args["lifo"] == true).await?,
        "job.retry" => job.retry(text(args, "state"), None).await?,
        other => return Err(Failure::Unsupported(format!("no operation {other}"))),
    }
    Ok(())
}

async fn dependencies(job: &Job) -> Outcome {
    let page = job.get_dependencies(0, 0, CHILDREN).await?;
    let processed: Vec<(String, Value)> =
        page.processed.into_iter().map(|(child, value)| (child, json!(value.to_string()))).collect();
    Ok(json!({"processed": Value::Object(processed.into_iter().collect()), "unprocessed": page.unprocessed}))
}
