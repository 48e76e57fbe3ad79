//! BullMQ's options as the client's own types. What these types cannot hold, no user of the client can ask for.

use std::time::Duration;

use bullmq_rs::{
    BackoffStrategy, DeduplicationOptions, JobOptions, JobState, MetricsOptions, RateLimiterOptions, RedisConnection,
    RepeatOptions, WorkerBuilder,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::refusals::{invalid, unsupported};
use crate::serve::Failure;

/// BullMQ has no greatest delay for exponential backoff, and the client always has one. 31 years: Redis keeps 14 digits of
/// a number in the options, and the client cannot read one that was rounded.
const LONGEST_DELAY: Duration = Duration::from_millis(1_000_000_000_000);

/// Read a value into a type of the client; None where it is not given.
pub fn maybe<T: DeserializeOwned>(given: &Value, name: &str) -> Result<Option<T>, Failure> {
    serde_json::from_value(given[name].clone())
        .map_err(|error| invalid(format!("the client's type cannot hold {name}: {error}")))
}

/// JSON text as the value that a user would give to the client.
pub fn parsed(args: &Value, name: &str) -> Result<Value, Failure> {
    serde_json::from_str(args[name].as_str().unwrap_or("null")).map_err(|error| invalid(error.to_string()))
}

pub fn text<'a>(args: &'a Value, name: &str) -> &'a str {
    args[name].as_str().unwrap_or_default()
}

pub fn number(args: &Value, name: &str) -> i64 {
    args[name].as_i64().unwrap_or_default()
}

pub fn list<'a>(args: &'a Value, name: &str) -> Vec<&'a Value> {
    args[name].as_array().into_iter().flatten().collect()
}

pub fn texts(args: &Value, name: &str) -> Vec<String> {
    list(args, name).into_iter().filter_map(|word| word.as_str().map(str::to_owned)).collect()
}

/// A length of time in ms.
pub fn duration(args: &Value, name: &str) -> Result<Option<Duration>, Failure> {
    Ok(maybe(args, name)?.map(Duration::from_millis))
}

/// Refuse an option that the client has no place for.
pub fn only(given: &Value, known: &[&str], owner: &str) -> Result<(), Failure> {
    let mut names = given.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
    match names.find(|name| !known.contains(name)) {
        Some(name) => Err(Failure::Unsupported(format!("{owner} of this client has no {name}"))),
        None => Ok(()),
    }
}

/// Options of a job. `timestamp` and three more of the type's fields are the job schedulers' own, says the client.
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
    own.parse().map_err(|_| Failure::Unsupported(format!("JobState of this client has no {name}")))
}

pub fn worker(queue: &str, args: &Value) -> Result<WorkerBuilder, Failure> {
    let given = &args["options"];
    let known = [
        "concurrency", "lockDuration", "stalledInterval", "maxStalledCount", "skipStalledCheck", "limiter", "metrics",
        "autorun",
    ];
    only(given, &known, "WorkerBuilder")?;
    if given["autorun"] == false {
        return Err(unsupported("a worker of this client that is not started is none"));
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
