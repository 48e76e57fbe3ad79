//! BullMQ's options as the client's own types. A user of the client cannot ask for what these types cannot hold.

use bullmq::options::RedisConnectionOptions;
use bullmq::{JobOptions, MetricsOptions, QueueOptions, RateLimiterOptions, WorkerOptions};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::serve::Failure;
use crate::shared::arguments::{number, only, text, texts};
use crate::shared::refusals::{invalid, unsupported};

const JOB_OPTIONS: [&str; 18] = [
    "delay", "priority", "attempts", "backoff", "lifo", "removeOnComplete", "removeOnFail", "keepLogs", "jobId",
    "timestamp", "stackTraceLimit", "parent", "deduplication", "sizeLimit", "failParentOnFailure",
    "ignoreDependencyOnFailure", "removeDependencyOnFailure", "continueParentOnFailure",
];

/// Read a value into a type of the client.
pub fn read<T: DeserializeOwned>(value: &Value) -> Result<T, Failure> {
    serde_json::from_value(value.clone()).map_err(|error| invalid(format!("the client's type cannot hold it: {error}")))
}

/// An optional number.
pub fn maybe(args: &Value, name: &str) -> Option<u64> {
    args[name].as_u64()
}

/// Options of a job. Fails with Unsupported for an option that the client's type does not have.
pub fn job_options(given: &Value) -> Result<JobOptions, Failure> {
    only(given, &JOB_OPTIONS, "JobOptions")?;
    refuse_other_spellings(given)?;
    only(&given["backoff"], &["type", "delay"], "BackoffStrategy")?;
    only(&given["deduplication"], &["id", "ttl", "extend", "replace", "keepLastIfActive"], "DeduplicationOptions")?;
    if given.is_null() { Ok(JobOptions::default()) } else { read(given) }
}

/// Refuse spellings that Node.js accepts and the client's types do not have.
fn refuse_other_spellings(given: &Value) -> Result<(), Failure> {
    if given["backoff"].is_number() {
        return Err(unsupported("BackoffStrategy of this client cannot be a plain number"));
    }
    let keeps_all = |name: &str| given[name].as_i64().is_some_and(|count| count < 0);
    if keeps_all("removeOnComplete") || keeps_all("removeOnFail") {
        return Err(unsupported("RemoveOnFinish of this client cannot be a negative number"));
    }
    Ok(())
}

pub fn queue_options(args: &Value) -> Result<QueueOptions, Failure> {
    let given = &args["options"];
    only(given, &["defaultJobOptions"], "QueueOptions")?;
    Ok(QueueOptions::new()
        .connection(connection(&args["redis"]))
        .prefix(text(args, "prefix"))
        .default_job_options(job_options(&given["defaultJobOptions"])?))
}

pub fn worker_options(args: &Value) -> Result<WorkerOptions, Failure> {
    let given = &args["options"];
    only(given, &WORKER_OPTIONS, "WorkerOptions")?;
    let default = WorkerOptions::default();
    let whole = |name: &str, or: u64| if given[name].is_null() { Ok(or) } else { read(&given[name]) };
    let policy = |name: &str| if given[name].is_null() { Ok(None) } else { read(&given[name]).map(Some) };
    Ok(WorkerOptions {
        connection: connection(&args["redis"]),
        prefix: text(args, "prefix").to_owned(),
        name: given["name"].as_str().map(str::to_owned),
        concurrency: whole("concurrency", default.concurrency as u64)? as usize,
        lock_duration: whole("lockDuration", default.lock_duration)?,
        lock_renew_time: maybe(given, "lockRenewTime"),
        max_stalled_count: whole("maxStalledCount", default.max_stalled_count.into())? as u32,
        stalled_interval: whole("stalledInterval", default.stalled_interval)?,
        drain_delay: whole("drainDelay", default.drain_delay)?,
        autorun: given["autorun"] != false,
        remove_on_complete: policy("removeOnComplete")?,
        remove_on_fail: policy("removeOnFail")?,
        run_retry_delay: whole("runRetryDelay", default.run_retry_delay)?,
        limiter: limiter(&given["limiter"]),
        maximum_rate_limit_delay: whole("maximumRateLimitDelay", default.maximum_rate_limit_delay)?,
        max_started_attempts: maybe(given, "maxStartedAttempts").map(|most| most as u32),
        skip_stalled_check: given["skipStalledCheck"] == true,
        skip_lock_renewal: given["skipLockRenewal"] == true,
        metrics: maybe(&given["metrics"], "maxDataPoints").map(|most| MetricsOptions { max_data_points: most as usize }),
        ..default
    })
}

const WORKER_OPTIONS: [&str; 18] = [
    "name", "concurrency", "lockDuration", "lockRenewTime", "maxStalledCount", "stalledInterval", "drainDelay",
    "autorun", "removeOnComplete", "removeOnFail", "runRetryDelay", "limiter", "maximumRateLimitDelay",
    "maxStartedAttempts", "skipStalledCheck", "skipLockRenewal", "metrics", "skipVersionCheck",
];

fn limiter(given: &Value) -> Option<RateLimiterOptions> {
    Some(RateLimiterOptions { max: maybe(given, "max")?, duration: maybe(given, "duration")? })
}

pub fn connection(redis: &Value) -> RedisConnectionOptions {
    let nodes = texts(redis, "nodes");
    let mut options = RedisConnectionOptions::new();
    if redis["mode"] == "cluster" {
        options = options.cluster_nodes(nodes.iter().map(|node| format!("redis://{node}")));
    } else if let Some((host, port)) = nodes.first().and_then(|node| node.rsplit_once(':')) {
        options = options.host(host).port(port.parse().unwrap_or(6379)).db(number(redis, "db") as u8);
    }
    options.username = redis["username"].as_str().map(str::to_owned);
    options.password = redis["password"].as_str().map(str::to_owned);
    options.tls(redis["tls"] == true)
}
