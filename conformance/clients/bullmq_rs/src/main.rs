//! `bullmq-rs` from crates.io behind the driver protocol.
//!
//! Every operation is one call of the client; what it has no call for is not declared. What its call cannot be asked
//! for is `unsupported`, and nothing that it does is mended.

mod handles;
mod job_ops;
mod options;
mod queue_ops;
mod refusals;
#[path = "../../../driver/serve.rs"]
mod serve;
mod views;
mod workers;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{json, Value};
use tokio::runtime::Runtime;

use handles::Handles;
use serve::{serve, Call, Declaration, Driver, Failure, Outcome, Output};

/// The part of a call's deadline after which it is answered as undecided: the client itself may try for longer.
const ANSWER_BY: f64 = 0.9;

struct BullmqRsDriver {
    runtime: Runtime,
    handles: Arc<Handles>,
}

impl Driver for BullmqRsDriver {
    fn declaration(&self) -> Declaration {
        Declaration {
            name: "bullmq-rs",
            version: "2.2.0",
            targets: "",
            packages: BTreeMap::new(),
            capabilities: vec!["manual-worker", "managed-worker"],
            ops: [&["open", "close", "reset", "resolve"], workers::OPS, queue_ops::OPS, queue_ops::FLOW_OPS, job_ops::OPS]
                .concat(),
        }
    }

    /// Wait for the client, but no longer than the kit does; what takes longer goes on unattended.
    fn call(&self, call: &Call) -> Outcome {
        let limit = Duration::from_millis((ANSWER_BY * call.deadline_ms as f64) as u64);
        let operation = perform(Arc::clone(&self.handles), call.op.clone(), call.handle.clone(), call.args.clone());
        let task = self.runtime.spawn(operation);
        match self.runtime.block_on(async { tokio::time::timeout(limit, task).await }) {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(panic)) => Err(Failure::Unknown { code: "other", message: panic.to_string() }),
            Err(_) => Err(Failure::Unknown { code: "timeout", message: format!("no answer within {limit:?}") }),
        }
    }
}

async fn perform(handles: Arc<Handles>, op: String, handle: String, args: Value) -> Outcome {
    match op.as_str() {
        "open" => handles.open(&handle, &args).await,
        "close" => handles.close(&handle, args["force"] == true).await,
        "reset" => {
            handles.abandon_all().await;
            Ok(json!({}))
        }
        "job.waitUntilFinished" => {
            let events = handles.events(args["events"].as_str().unwrap_or_default())?;
            job_ops::wait(&*handles.queue(&handle)?, &events, &args).await
        }
        name if queue_ops::OPS.contains(&name) => queue_ops::call(name, &*handles.queue(&handle)?, &args).await,
        name if queue_ops::FLOW_OPS.contains(&name) => queue_ops::add_flow(&*handles.flow(&handle)?, &args).await,
        name if job_ops::OPS.contains(&name) => job_ops::call(name, &*handles.queue(&handle)?, &args).await,
        name if name == "resolve" || workers::OPS.contains(&name) => handles.worker(&handle)?.call(name, &args).await,
        other => Err(Failure::Unsupported(format!("no operation {other}"))),
    }
}

fn main() -> std::io::Result<()> {
    let output = Output::take_stdout()?;
    let driver = BullmqRsDriver { runtime: Runtime::new()?, handles: Arc::new(Handles::new(output.clone())) };
    serve(driver, &output)
}
