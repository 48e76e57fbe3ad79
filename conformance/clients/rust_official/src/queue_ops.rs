//! Operations on a queue handle (the client's Queue, with its job schedulers) and on a flow handle (FlowProducer).

use bullmq::job_scheduler::RepeatOptions;
use bullmq::{BulkJob, FlowJob, FlowOptions, FlowProducer, FlowQueueOptions, GetFlowOptions, JobNode, Queue};
use serde_json::{json, Value};

use crate::handles::OpenQueue;
use crate::options::{job_options, maybe, read};
use crate::serve::{Failure, Outcome};
use crate::shared::arguments::{list, number, only, parsed, text, texts};
use crate::shared::done;
use crate::shared::refusals::unsupported;
use crate::views;

pub const OPS: &[&str] = &[
    "queue.add", "queue.addBulk", "queue.clean", "queue.count", "queue.drain", "queue.getCountsPerPriority",
    "queue.getDeduplicationJobId", "queue.getGlobalConcurrency", "queue.getGlobalRateLimit", "queue.getJob",
    "queue.getJobCountByTypes", "queue.getJobCounts", "queue.getJobLogs", "queue.getJobScheduler",
    "queue.getJobSchedulers", "queue.getJobSchedulersCount", "queue.getJobState", "queue.getJobs", "queue.getMetrics",
    "queue.getRateLimitTtl", "queue.getVersion", "queue.getWorkers", "queue.getWorkersCount", "queue.isMaxed",
    "queue.isPaused", "queue.obliterate", "queue.pause", "queue.promoteJobs", "queue.rateLimit", "queue.remove",
    "queue.removeDeduplicationKey", "queue.removeGlobalConcurrency", "queue.removeGlobalRateLimit",
    "queue.removeJobScheduler", "queue.removeRateLimitKey", "queue.resume", "queue.retryJobs",
    "queue.setGlobalConcurrency", "queue.setGlobalRateLimit", "queue.trimEvents", "queue.upsertJobScheduler",
];

pub const FLOW_OPS: &[&str] = &["flow.add", "flow.addBulk", "flow.getFlow"];

/// Run one operation: those that change jobs are here, the limits and the getters below.
pub async fn call(op: &str, open: &OpenQueue, args: &Value) -> Outcome {
    let queue = &open.queue;
    match op {
        "queue.add" => {
            let adding = queue.add(text(args, "name"), parsed(args, "data_raw")?).options(job_options(&args["opts"])?);
            let job = adding.await?;
            open.hold(job.id(), &job);
            Ok(json!({"id": job.id()}))
        }
        "queue.addBulk" => {
            let bulk = list(args, "jobs").into_iter().map(bulk_job).collect::<Result<Vec<_>, _>>()?;
            let added = queue.add_bulk(bulk).await?;
            added.iter().for_each(|job| open.hold(job.id(), job));
            Ok(json!({"ids": added.iter().map(|job| job.id().to_owned()).collect::<Vec<_>>()}))
        }
        "queue.pause" => done(queue.pause().await?),
        "queue.resume" => done(queue.resume().await?),
        "queue.drain" => done(queue.drain(args["delayed"] == true).await?),
        "queue.clean" => {
            let limit = number(args, "limit") as u32;
            let ids = queue.clean(number(args, "grace_ms").unsigned_abs(), limit, text(args, "type")).await?;
            Ok(json!({"ids": ids}))
        }
        "queue.obliterate" => done(queue.obliterate(args["force"] == true, number(args, "count") as usize).await?),
        "queue.remove" => {
            let id = text(args, "job");
            let removed = match args["remove_children"] == false {
                true => queue.remove_without_children(id).await?,
                false => queue.remove(id).await?,
            };
            Ok(json!({"count": u8::from(removed)}))
        }
        "queue.retryJobs" => {
            let count = number(args, "count") as u32;
            done(queue.retry_jobs(text(args, "state"), count, maybe(args, "timestamp")).await?)
        }
        "queue.promoteJobs" => done(queue.promote_jobs(number(args, "count") as u32).await?),
        "queue.trimEvents" => Ok(json!({"count": queue.trim_events(number(args, "max_length") as usize).await?})),
        "queue.removeDeduplicationKey" => Ok(json!({"count": queue.remove_debounce_key(text(args, "id")).await?})),
        "queue.upsertJobScheduler" => upsert_scheduler(queue, args).await,
        "queue.removeJobScheduler" => Ok(json!({"value": queue.remove_job_scheduler(text(args, "id")).await?})),
        "queue.getJob" => {
            let found = queue.get_job(text(args, "job")).await?;
            found.iter().for_each(|job| open.hold(job.id(), job));
            Ok(views::maybe_job(found.as_ref()))
        }
        _ => limit(op, queue, args).await,
    }
}

async fn limit(op: &str, queue: &Queue, args: &Value) -> Outcome {
    match op {
        "queue.setGlobalConcurrency" => {
            done(queue.set_global_concurrency(number(args, "concurrency").unsigned_abs()).await?)
        }
        "queue.removeGlobalConcurrency" => done(queue.remove_global_concurrency().await?),
        "queue.setGlobalRateLimit" => {
            let (max, duration) = (number(args, "max").unsigned_abs(), number(args, "duration_ms").unsigned_abs());
            done(queue.set_global_rate_limit(max, duration).await?)
        }
        "queue.removeGlobalRateLimit" => done(queue.remove_global_rate_limit().await?),
        "queue.rateLimit" => done(queue.rate_limit(number(args, "expire_ms").unsigned_abs()).await?),
        "queue.removeRateLimitKey" => done(queue.remove_rate_limit_key().await.map(drop)?),
        "queue.getGlobalConcurrency" => Ok(json!({"value": queue.get_global_concurrency().await?})),
        "queue.getGlobalRateLimit" => {
            let (max, duration) = queue.get_global_rate_limit().await?.unzip();
            Ok(json!({"max": max, "duration_ms": duration}))
        }
        "queue.getRateLimitTtl" => Ok(json!({"count": queue.get_rate_limit_ttl(maybe(args, "max_jobs")).await?})),
        _ => look(op, queue, args).await,
    }
}

async fn look(op: &str, queue: &Queue, args: &Value) -> Outcome {
    let wanted = texts(args, "types");
    let types: Vec<&str> = wanted.iter().map(String::as_str).collect();
    let (start, end, asc) = (number(args, "start"), number(args, "end"), args["asc"] == true);
    match op {
        "queue.getJobs" => {
            let jobs: Vec<Value> = queue.get_jobs(&types, start, end, asc).await?.iter().map(views::job).collect();
            Ok(json!({"jobs": jobs}))
        }
        "queue.getJobCounts" => Ok(json!({"counts": queue.get_job_counts_by_types(&types).await?})),
        "queue.getJobCountByTypes" => Ok(json!({"count": queue.get_job_count_by_types(&types).await?})),
        "queue.count" => Ok(json!({"count": queue.count().await?})),
        "queue.getCountsPerPriority" => {
            let priorities: Vec<u64> = read(&args["priorities"])?;
            Ok(json!({"counts": queue.get_counts_per_priority(&priorities).await?}))
        }
        "queue.getJobState" => Ok(json!({"state": queue.get_job_state(text(args, "job")).await?})),
        "queue.getJobLogs" => {
            let (logs, count) = queue.get_job_logs(text(args, "job"), start as isize, end as isize, asc).await?;
            Ok(json!({"logs": logs, "count": count}))
        }
        "queue.getMetrics" => {
            let metrics = queue.get_metrics(text(args, "type"), start, end).await?;
            let meta = json!({
                "count": metrics.meta.count, "prevTS": metrics.meta.prev_ts, "prevCount": metrics.meta.prev_count,
            });
            Ok(json!({"meta": meta, "data": metrics.data, "count": metrics.count}))
        }
        "queue.isPaused" => Ok(json!({"value": queue.is_paused().await?})),
        "queue.isMaxed" => Ok(json!({"value": queue.is_maxed().await?})),
        "queue.getVersion" => Ok(json!({"value": queue.get_version().await?})),
        "queue.getDeduplicationJobId" => {
            Ok(json!({"value": queue.get_deduplication_job_id(text(args, "id")).await?}))
        }
        "queue.getWorkers" => {
            let workers = queue.get_workers().await?;
            let names: Vec<&str> = workers.iter().map(|worker| worker_name(worker.get("rawname"))).collect();
            Ok(json!({"names": names}))
        }
        "queue.getWorkersCount" => Ok(json!({"count": queue.get_workers_count().await?})),
        "queue.getJobScheduler" => {
            let found = queue.get_job_scheduler(text(args, "id")).await?;
            Ok(json!({"scheduler": found.as_ref().map(views::scheduler)}))
        }
        "queue.getJobSchedulers" => {
            let found = queue.get_job_schedulers(start as isize, end as isize, asc).await?;
            Ok(json!({"schedulers": found.iter().map(views::scheduler).collect::<Vec<_>>()}))
        }
        "queue.getJobSchedulersCount" => Ok(json!({"count": queue.get_job_schedulers_count().await?})),
        other => Err(unsupported(format!("no operation {other}"))),
    }
}

pub async fn call_flow(op: &str, producer: &FlowProducer, args: &Value) -> Outcome {
    match op {
        "flow.add" => {
            let mut options = FlowOptions::new();
            for (queue, defaults) in args["queues_options"].as_object().into_iter().flatten() {
                options = options.queue(queue, FlowQueueOptions::new().default_job_options(job_options(defaults)?));
            }
            Ok(views::flow(&producer.add_with_opts(flow_job(&args["flow"])?, &options).await?))
        }
        "flow.addBulk" => {
            let flows = list(args, "flows").into_iter().map(flow_job).collect::<Result<Vec<_>, _>>()?;
            let added: Vec<JobNode> = producer.add_bulk(flows).await?;
            Ok(json!({"flows": added.iter().map(views::flow).collect::<Vec<_>>()}))
        }
        _ => {
            let options = GetFlowOptions::new(text(args, "queue"), text(args, "job"))
                .depth(number(args, "depth") as usize)
                .max_children(number(args, "max_children") as usize);
            match producer.get_flow(options).await {
                Err(bullmq::Error::JobNotFound(_)) => Ok(json!({"flow": null})),
                found => Ok(json!({"flow": views::flow(&found?)})),
            }
        }
    }
}

fn bulk_job(given: &Value) -> Result<BulkJob, Failure> {
    Ok(BulkJob::with_options(text(given, "name"), parsed(given, "data_raw")?, job_options(&given["opts"])?))
}

fn flow_job(given: &Value) -> Result<FlowJob, Failure> {
    Ok(FlowJob::new(text(given, "name"), text(given, "queue"), parsed(given, "data_raw")?)?
        .options(job_options(&given["opts"])?)
        .children(list(given, "children").into_iter().map(flow_job).collect::<Result<Vec<_>, _>>()?))
}

fn worker_name(rawname: Option<&String>) -> &str {
    rawname.and_then(|name| name.split_once(":w:")).map_or("", |(_, name)| name)
}

const REPEAT_OPTIONS: [&str; 8] =
    ["pattern", "every", "limit", "immediately", "offset", "startDate", "endDate", "tz"];

async fn upsert_scheduler(queue: &Queue, args: &Value) -> Outcome {
    only(&args["repeat"], &REPEAT_OPTIONS, "RepeatOptions")?;
    if ["startDate", "endDate"].iter().any(|date| args["repeat"][*date].is_string()) {
        return Err(unsupported("a date in RepeatOptions of this client is a number of ms"));
    }
    let repeat: RepeatOptions = read(&args["repeat"])?;
    let data = if args["data_raw"].is_null() { None } else { Some(parsed(args, "data_raw")?) };
    let opts = if args["opts"].is_null() { None } else { Some(job_options(&args["opts"])?) };
    let first = queue.upsert_job_scheduler(text(args, "id"), repeat, args["name"].as_str(), data, opts).await?;
    Ok(views::maybe_job(first.as_ref()))
}
