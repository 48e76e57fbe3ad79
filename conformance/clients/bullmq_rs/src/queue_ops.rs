//! Operations on a queue handle (the client's Queue, with its job schedulers) and on a flow handle (FlowProducer).

use bullmq_rs::{FlowJob, FlowProducer, JobSchedulerTemplate, Queue};
use serde_json::{json, Map, Value};

use crate::handles::OpenQueue;
use crate::options::{duration, job_options, maybe, repeat_options, state};
use crate::serve::{Failure, Outcome};
use crate::shared::arguments::{list, number, parsed, text, texts};
use crate::shared::done;
use crate::shared::refusals::unsupported;
use crate::views;

pub const OPS: &[&str] = &[
    "queue.add", "queue.addBulk", "queue.clean", "queue.count", "queue.drain", "queue.getJob", "queue.getJobCounts",
    "queue.getJobLogs", "queue.getJobScheduler", "queue.getJobSchedulers", "queue.getJobs", "queue.getMetrics",
    "queue.isPaused", "queue.obliterate", "queue.pause", "queue.promoteJobs", "queue.rateLimit", "queue.remove",
    "queue.removeJobScheduler", "queue.removeRateLimitKey", "queue.resume", "queue.retryJobs",
    "queue.upsertJobScheduler",
];

pub const FLOW_OPS: &[&str] = &["flow.add"];

/// How many jobs `Queue::obliterate` removes at a time; its users cannot choose the number.
const OBLITERATED_AT_ONCE: i64 = 1000;

/// Run one operation: those that change jobs are here, the getters below.
pub async fn call(op: &str, open: &OpenQueue, args: &Value) -> Outcome {
    let queue = &open.queue;
    match op {
        "queue.add" => {
            let options = job_options(&args["opts"])?;
            let job = queue.add(text(args, "name"), parsed(args, "data_raw")?, Some(options)).await?;
            open.hold(&job.id, &job);
            Ok(json!({"id": job.id}))
        }
        "queue.addBulk" => {
            let mut jobs = Vec::new();
            for given in list(args, "jobs") {
                let options = job_options(&given["opts"])?;
                jobs.push((text(given, "name").to_owned(), parsed(given, "data_raw")?, Some(options)));
            }
            let added = queue.add_bulk(jobs).await?;
            added.iter().for_each(|job| open.hold(&job.id, job));
            Ok(json!({"ids": added.into_iter().map(|job| job.id).collect::<Vec<_>>()}))
        }
        "queue.pause" => done(queue.pause().await?),
        "queue.resume" => done(queue.resume().await?),
        "queue.drain" if args["delayed"] == true => done(queue.drain().await?),
        "queue.drain" => Err(unsupported("Queue::drain of this client always removes delayed jobs")),
        "queue.clean" => {
            let grace = duration(args, "grace_ms")?.unwrap_or_default();
            let limit = maybe(args, "limit")?.unwrap_or_default();
            let kind = args["type"].as_str().unwrap_or("completed");
            Ok(json!({"ids": queue.clean(grace, limit, state(kind)?).await?}))
        }
        "queue.obliterate" if number(args, "count") == OBLITERATED_AT_ONCE => {
            done(queue.obliterate(args["force"] == true).await?)
        }
        "queue.obliterate" => Err(unsupported("Queue::obliterate of this client has no number of jobs")),
        "queue.remove" if args["remove_children"] == false => {
            queue.remove(text(args, "job")).await?;
            Ok(json!({"count": 1}))
        }
        "queue.remove" => Err(unsupported("Queue::remove of this client does not remove children")),
        "queue.retryJobs" => {
            let from = state(args["state"].as_str().unwrap_or("failed"))?;
            let count = maybe(args, "count")?.unwrap_or_default();
            done(queue.retry_jobs(count, from, maybe(args, "timestamp")?).await?)
        }
        "queue.promoteJobs" => done(queue.promote_jobs(maybe(args, "count")?.unwrap_or_default()).await?),
        "queue.rateLimit" => done(queue.rate_limit(duration(args, "expire_ms")?.unwrap_or_default()).await?),
        "queue.removeRateLimitKey" => done(queue.remove_rate_limit_key().await.map(drop)?),
        "queue.upsertJobScheduler" => upsert_scheduler(queue, args).await,
        "queue.removeJobScheduler" => Ok(json!({"value": queue.remove_job_scheduler(text(args, "id")).await?})),
        "queue.getJob" => {
            let found = queue.get_job(text(args, "job")).await?;
            found.iter().for_each(|job| open.hold(&job.id, job));
            Ok(views::maybe_job(found.as_ref()))
        }
        _ => look(op, queue, args).await,
    }
}

async fn look(op: &str, queue: &Queue<Value>, args: &Value) -> Outcome {
    let (start, end, asc) = (number(args, "start"), number(args, "end"), args["asc"] == true);
    match op {
        "queue.getJobs" => {
            let states = texts(args, "types").iter().map(|name| state(name)).collect::<Result<Vec<_>, _>>()?;
            let jobs = queue.get_jobs(&states, start, end, asc).await?;
            Ok(json!({"jobs": jobs.iter().map(views::job).collect::<Vec<_>>()}))
        }
        "queue.getJobCounts" => {
            // The client counts all states, and its user picks the ones of interest.
            let counts = queue.get_job_counts().await?;
            let mut named = Map::new();
            for (state, count) in &counts {
                named.insert(views::state(*state), json!(count));
            }
            let types = texts(args, "types");
            if !types.is_empty() {
                named.clear();
            }
            for name in types {
                let count = counts.get(&state(&name)?).copied();
                named.insert(name, json!(count));
            }
            Ok(json!({"counts": named}))
        }
        "queue.count" => Ok(json!({"count": queue.count().await?})),
        "queue.getJobLogs" if (start, end, asc) == (0, -1, true) => {
            let logs = queue.get_logs(text(args, "job"), start, end).await?;
            Ok(json!({"count": logs.len(), "logs": logs}))
        }
        "queue.getJobLogs" => Err(unsupported("Queue::get_logs of this client does not return the number of rows")),
        "queue.getMetrics" => {
            let metrics = queue.get_metrics(state(text(args, "type"))?, start, end).await?;
            let meta = json!({
                "count": metrics.meta.count, "prevTS": metrics.meta.prev_ts, "prevCount": metrics.meta.prev_count,
            });
            Ok(json!({"meta": meta, "data": metrics.data, "count": metrics.count}))
        }
        "queue.isPaused" => Ok(json!({"value": queue.is_paused().await?})),
        "queue.getJobScheduler" => {
            let found = queue.get_job_scheduler(text(args, "id")).await?;
            Ok(json!({"scheduler": found.as_ref().map(views::scheduler)}))
        }
        "queue.getJobSchedulers" if asc => {
            let found = queue.get_job_schedulers(start, end).await?;
            Ok(json!({"schedulers": found.iter().map(views::scheduler).collect::<Vec<_>>()}))
        }
        "queue.getJobSchedulers" => Err(unsupported("Queue::get_job_schedulers of this client always returns the next one first")),
        other => Err(unsupported(format!("no operation {other}"))),
    }
}

pub async fn add_flow(producer: &FlowProducer, args: &Value) -> Outcome {
    if !args["queues_options"].is_null() {
        return Err(unsupported("FlowProducer::add of this client takes no defaults of queues"));
    }
    let given = &args["flow"];
    Ok(views::flow(&producer.add(flow_job(given)?).await?, given))
}

fn flow_job(given: &Value) -> Result<FlowJob<Value>, Failure> {
    Ok(FlowJob {
        name: text(given, "name").to_owned(),
        queue_name: text(given, "queue").to_owned(),
        data: parsed(given, "data_raw")?,
        prefix: None,
        opts: Some(job_options(&given["opts"])?),
        children: list(given, "children").into_iter().map(flow_job).collect::<Result<Vec<_>, _>>()?,
    })
}

async fn upsert_scheduler(queue: &Queue<Value>, args: &Value) -> Outcome {
    let template = JobSchedulerTemplate {
        name: maybe(args, "name")?,
        data: if args["data_raw"].is_null() { None } else { Some(parsed(args, "data_raw")?) },
        opts: if args["opts"].is_null() { None } else { Some(job_options(&args["opts"])?) },
    };
    let first = queue.upsert_job_scheduler(text(args, "id"), repeat_options(&args["repeat"])?, template).await?;
    Ok(views::maybe_job(Some(&first)))
}
