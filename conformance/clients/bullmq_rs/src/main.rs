//! `bullmq-rs` from crates.io behind the driver protocol.
//!
//! Every operation is one call of the client. Operations that the client does not have are not declared; arguments that
//! a call cannot take are answered with `unsupported`. The driver does not repair results, so that defects stay visible.

mod handles;
mod job_ops;
mod options;
mod queue_ops;
mod refusals;
#[path = "../../../driver/serve.rs"]
mod serve;
#[path = "../../rust_shared/mod.rs"]
mod shared;
mod views;
mod workers;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use tokio::runtime::Runtime;

use handles::{open, Opened};
use serve::{serve, Call, Declaration, Driver, Outcome, Output};
use shared::handles::Handles;
use shared::refusals::unsupported;
use shared::within_deadline;

struct BullmqRsDriver {
    runtime: Runtime,
    handles: Arc<Handles<Opened>>,
    output: Output,
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

    fn start(&self, call: &Call) {
        if call.op == "close" {
            self.handles.start_close(&call.handle, call.args["force"] == true);
        }
    }

    fn call(&self, call: &Call) -> Outcome {
        let (handles, output) = (Arc::clone(&self.handles), self.output.clone());
        let operation = perform(handles, output, call.op.clone(), call.handle.clone(), call.args.clone());
        within_deadline(&self.runtime, call, operation)
    }
}

async fn perform(handles: Arc<Handles<Opened>>, output: Output, op: String, handle: String, args: Value) -> Outcome {
    match op.as_str() {
        "open" => handles.open(&handle, open(&handle, &args, output)).await,
        "close" => handles.close(&handle, args["force"] == true).await,
        "reset" => handles.abandon_all().await,
        "job.waitUntilFinished" => {
            let events = handles.events(args["events"].as_str().unwrap_or_default())?;
            job_ops::wait(&*handles.queue(&handle)?, &events, &args).await
        }
        name if queue_ops::OPS.contains(&name) => queue_ops::call(name, &*handles.queue(&handle)?, &args).await,
        name if queue_ops::FLOW_OPS.contains(&name) => queue_ops::add_flow(&*handles.flow(&handle)?, &args).await,
        name if job_ops::OPS.contains(&name) => job_ops::call(name, &*handles.queue(&handle)?, &args).await,
        name if name == "resolve" || workers::OPS.contains(&name) => handles.worker(&handle)?.call(name, &args).await,
        other => Err(unsupported(format!("no operation {other}"))),
    }
}

fn main() -> std::io::Result<()> {
    let output = Output::take_stdout()?;
    let handles = Arc::new(Handles::new());
    serve(BullmqRsDriver { runtime: Runtime::new()?, handles, output: output.clone() }, &output)
}
