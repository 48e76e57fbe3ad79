//! BullMQ's options as the client's own types. A user of the client cannot ask for what these types cannot hold.

use std::time::Duration;

use bullmq_rs::{
    BackoffStrategy, DeduplicationOptions, JobOptions, JobState, MetricsOptions, Queue, QueueBuilder, RateLimiterOptions,
    RedisConnection, RepeatOptions, WorkerBuilder,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::serve::Failure;
use crate::shared::arguments::{number, only, text, texts};
use crate::shared::refusals::{invalid, unsupported};

/// BullMQ has no limit for exponential backoff, but the client always needs one. 31 years, because Redis keeps 14 digits
/// of a number in the options and the client cannot read a rounded one.
const LONGEST_DELAY: Duration = Duration::from_millis(1_000_000_000_000);

/// An optional value as a type of the client.
pub fn maybe<T: DeserializeOwned>(given: &Value, name: &str) -> Result<Option<T>, Failure> {
    serde_json::from_value(given[name].clone())
        .map_err(|error| invalid(format!("the client's type cannot hold {name}: {error}")))
}

/// An optional duration, in ms.
pub fn duration(args: &Value, name: &str) -> Result<Option<Duration>, Failure> {
    Ok(maybe(args, name)?.map(Duration::from_millis))
}

/// Options of a job. The client reserves `timestamp` and three more fields of its type for job schedulers.
pub fn job_options(given: &Value) -> Result<JobOptions, Failure> {
    only(given, &["delay", "priority", "attempts", "backoff", "jobId", "deduplication"], "JobOptions")?;
    Ok(JobOptions {
        delay: duration(given, "delay")?,
        priority: maybe(given, "priority")?,
        attempts: maybe(given, "attempts")?,
        backoff: backoff(&given["backoff"])?,
        job_id: maybe(given, "jobId")?,
        deduplication: deduplication(&given["deduplication"])?,
        ..JobOptions::default()
    })
}

fn backoff(given: &Value) -> Result<Option<BackoffStrategy>, Failure> {
    if given.is_null() {
        return Ok(None);
    }
    only(given, &["type", "delay"], "BackoffStrategy")?;
    let delay = duration(given, "delay")?.unwrap_or_default();
    match given["type"].as_str() {
        Some("fixed") => Ok(Some(BackoffStrategy::Fixed { delay })),
        Some("exponential") => Ok(Some(BackoffStrategy::Exponential { base: delay, max: LONGEST_DELAY })),
        _ => Err(unsupported("BackoffStrategy of this client is fixed or exponential")),
    }
}

fn deduplication(given: &Value) -> Result<Option<DeduplicationOptions>, Failure> {
    if given.is_null() {
        return Ok(None);
    }
    only(given, &["id", "ttl"], "DeduplicationOptions")?;
    Ok(Some(DeduplicationOptions { id: text(given, "id").to_owned(), ttl: duration(given, "ttl")? }))
}

pub fn repeat_options(given: &Value) -> Result<RepeatOptions, Failure> {
    let known = ["pattern", "every", "limit", "immediately", "offset", "startDate", "endDate", "tz"];
    only(given, &known, "RepeatOptions")?;
    if given["startDate"].is_string() || given["endDate"].is_string() {
        return Err(unsupported("a date in RepeatOptions of this client is a number of ms"));
    }
    Ok(RepeatOptions {
        pattern: maybe(given, "pattern")?,
        every: duration(given, "every")?,
        limit: maybe(given, "limit")?,
        start_date: maybe(given, "startDate")?,
        end_date: maybe(given, "endDate")?,
        tz: maybe(given, "tz")?,
        immediately: given["immediately"] == true,
        offset: maybe(given, "offset")?,
        count: None,
    })
}

/// A state by BullMQ's names of job types.
pub fn state(name: &str) -> Result<JobState, Failure> {
    let own = if name == "waiting" { "wait" } else { name };
    own.parse().map_err(|_| unsupported(format!("JobState of this client has no {name}")))
}

pub fn worker(queue: &str, args: &Value) -> Result<WorkerBuilder, Failure> {
    let given = &args["options"];
    let known = [
        "concurrency", "lockDuration", "stalledInterval", "maxStalledCount", "skipStalledCheck", "limiter", "metrics",
        "autorun",
    ];
    only(given, &known, "WorkerBuilder")?;
    if given["autorun"] == false {
        return Err(unsupported("this client has no Worker before its loop is started"));
    }
    let mut builder =
        WorkerBuilder::new(queue).connection(connection(&args["redis"])?).prefix(text(args, "prefix"));
    if let Some(most) = maybe(given, "concurrency")? {
        builder = builder.concurrency(most);
    }
    if let Some(life) = duration(given, "lockDuration")? {
        builder = builder.lock_duration(life);
    }
    if let Some(interval) = duration(given, "stalledInterval")? {
        builder = builder.stalled_interval(interval);
    }
    if let Some(most) = maybe(given, "maxStalledCount")? {
        builder = builder.max_stalled_count(most);
    }
    if let (Some(max), Some(duration)) = (maybe(&given["limiter"], "max")?, duration(&given["limiter"], "duration")?) {
        builder = builder.limiter(RateLimiterOptions { max, duration });
    }
    if let Some(max_data_points) = maybe(&given["metrics"], "maxDataPoints")? {
        builder = builder.metrics(MetricsOptions { max_data_points });
    }
    Ok(builder.skip_stalled_check(given["skipStalledCheck"] == true))
}

pub async fn open_queue(args: &Value) -> Result<Queue<Value>, Failure> {
    let builder = QueueBuilder::new(text(args, "queue")).connection(connection(&args["redis"])?);
    Ok(builder.prefix(text(args, "prefix")).build().await?)
}

pub fn connection(redis: &Value) -> Result<RedisConnection, Failure> {
    let nodes = texts(redis, "nodes");
    if redis["mode"] == "cluster" || redis["tls"] == true || nodes.len() != 1 {
        return Err(unsupported("RedisConnection of this client takes one plain Redis"));
    }
    let login = match (redis["username"].as_str(), redis["password"].as_str()) {
        (user, Some(password)) => format!("{}:{password}@", user.unwrap_or_default()),
        _ => String::new(),
    };
    Ok(RedisConnection::new(format!("redis://{login}{}/{}", nodes[0], number(redis, "db"))))
}
