//! The official Rust client (`bullmq-official` on crates.io) behind the driver protocol.
//!
//! Every operation is one call of the client; what it has no call for is not declared. The driver neither mends nor
//! hides what the client does: options go through as they come, and values come back as the client's user sees them.

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

use handles::{Handles, Opened};
use serve::{serve, Call, Declaration, Driver, Failure, Outcome, Output};

/// The part of a call's deadline after which it is answered as undecided: the client itself may try for longer.
const ANSWER_BY: f64 = 0.9;

struct OfficialDriver {
    runtime: Runtime,
    handles: Arc<Handles>,
}

impl Driver for OfficialDriver {
    fn declaration(&self) -> Declaration {
        Declaration {
            name: "bullmq-official",
            version: "1.4.4",
            targets: "",
            packages: BTreeMap::new(),
            capabilities: vec!["managed-worker", "cluster"],
            ops: [&["open", "close", "reset", "resolve"], workers::OPS, queue_ops::OPS, queue_ops::FLOW_OPS, job_ops::OPS]
                .concat(),
        }
    }

    fn begin(&self, call: &Call) {
        if call.op == "close" {
            let _entered = self.runtime.enter();
            self.handles.begin_close(&call.handle, call.args["force"] == true);
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
        name if queue_ops::OPS.contains(&name) => queue_ops::call(name, &*handles.queue(&handle)?, &args).await,
        name if queue_ops::FLOW_OPS.contains(&name) => queue_ops::call_flow(name, &*handles.flow(&handle)?, &args).await,
        name if job_ops::OPS.contains(&name) => job_ops::call(name, &*handles.queue(&handle)?, &args).await,
        name if name == "resolve" || workers::OPS.contains(&name) => match &*handles.named(&handle)? {
            Opened::Worker(worker) => worker.call(name, &args).await,
            _ => Err(refusals::invalid(format!("{handle} is no worker"))),
        },
        other => Err(Failure::Unsupported(format!("no operation {other}"))),
    }
}

fn main() -> std::io::Result<()> {
    let output = Output::take_stdout()?;
    let handles = Arc::new(Handles::new(output.clone()));
    serve(OfficialDriver { runtime: Runtime::new()?, handles }, &output)
}
