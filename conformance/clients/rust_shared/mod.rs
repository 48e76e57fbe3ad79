//! Code shared by the drivers of both Rust clients. Each takes this folder by its path, next to `serve.rs`:
//!
//! ```ignore
//! #[path = "../../../driver/serve.rs"]
//! mod serve;
//! #[path = "../../rust_shared/mod.rs"]
//! mod shared;
//! ```

pub mod arguments;
pub mod handles;
pub mod processors;
pub mod refusals;

use std::future::Future;
use std::time::Duration;

use serde_json::{json, Value};
use tokio::runtime::Runtime;

use crate::serve::{Call, Failure, Outcome};

/// The driver answers within this part of a call's deadline: the client itself may retry for longer than the kit waits.
const ANSWER_BY: f64 = 0.9;

/// Run an operation of the client, and answer `timeout` (undecided) if it takes longer than the call's deadline allows.
/// The operation then continues in the background, as it would in the client's user's program.
pub fn within_deadline(
    runtime: &Runtime,
    call: &Call,
    operation: impl Future<Output = Outcome> + Send + 'static,
) -> Outcome {
    let limit = Duration::from_millis((ANSWER_BY * call.deadline_ms as f64) as u64);
    // Spawned, so that the timeout drops only the handle: the operation itself is not cancelled half-way.
    let task = runtime.spawn(operation);
    match runtime.block_on(async { tokio::time::timeout(limit, task).await }) {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(panic)) => Err(Failure::Unknown { code: "other", message: panic.to_string() }),
        Err(_) => Err(Failure::Unknown { code: "timeout", message: format!("no answer within {limit:?}") }),
    }
}

/// The answer of an operation that returns nothing.
pub fn done(_: ()) -> Outcome {
    Ok(json!({}))
}

/// Values by the key of the child job, each as JSON text.
pub fn json_texts(values: impl IntoIterator<Item = (String, Value)>) -> Value {
    Value::Object(values.into_iter().map(|(child, value)| (child, json!(value.to_string()))).collect())
}

/// Job options under BullMQ's public names. Both clients serialize `deduplication` under its stored name, `de`.
pub fn public_options(opts: &impl serde::Serialize) -> Value {
    let mut options = serde_json::to_value(opts).unwrap_or_default();
    if let Some(deduplication) = options.as_object_mut().and_then(|fields| fields.remove("de")) {
        options["deduplication"] = deduplication;
    }
    options
}
