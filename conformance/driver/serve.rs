//! The driver's side of the protocol for clients written in Rust.
//!
//! A driver implements [`Driver`] and hands itself to [`serve`], with the [`Output`] that it took from stdout:
//!
//! ```ignore
//! fn main() -> std::io::Result<()> {
//!     let output = Output::take_stdout()?;
//!     serve(MyDriver::new(output.clone()), &output)
//! }
//! ```
//!
//! Every call is answered by a thread of its own, so that a slow one never holds up another; an async client is called
//! with `Handle::block_on`. What must have begun before the next call is read begins in [`Driver::begin`]. Whatever the
//! client prints to stdout goes to stderr, where the kit keeps it as the log.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use serde_json::{json, Value};

const PROTOCOL_VERSION: u32 = 1;

/// One call of the kit. `handle` is empty for operations of the driver itself.
pub struct Call {
    pub op: String,
    pub handle: String,
    pub args: Value,
    /// How long the kit waits for the answer, in ms.
    #[allow(dead_code)]
    pub deadline_ms: u64,
}

/// Why an operation did not succeed. The codes are those of the kit's docs/reference/driver-protocol.md.
#[allow(dead_code)]
pub enum Failure {
    /// The client cannot do this, or not with these arguments.
    Unsupported(String),
    /// It certainly did not happen.
    Failed { code: &'static str, message: String },
    /// Nobody knows whether it happened.
    Unknown { code: &'static str, message: String },
}

/// The fields of the answer, or why there is none.
pub type Outcome = Result<Value, Failure>;

/// What a driver says about itself in the line `ready`.
pub struct Declaration {
    pub name: &'static str,
    pub version: &'static str,
    /// The BullMQ that the client follows; empty where that is not known.
    pub targets: &'static str,
    /// Versions of the libraries that the client stands on.
    pub packages: BTreeMap<&'static str, &'static str>,
    /// Some of: clock, manual-worker, managed-worker, cluster, raw-data.
    pub capabilities: Vec<&'static str>,
    pub ops: Vec<&'static str>,
}

/// A client behind the protocol.
pub trait Driver: Send + Sync + 'static {
    fn declaration(&self) -> Declaration;
    fn call(&self, call: &Call) -> Outcome;

    /// Called in the order in which the calls are read, each before `call` is and before the next one is read. A worker
    /// with a loop begins to close here: else the kit ends its job first, and the loop takes another one.
    fn begin(&self, _call: &Call) {}
}

/// Where the lines of the protocol go. Clones write to the same place, a whole line at a time.
#[derive(Clone)]
pub struct Output(Arc<Mutex<File>>);

extern "C" {
    fn dup2(from: i32, to: i32) -> i32;
}

impl Output {
    /// Keep stdout for the protocol, and let everything else that is printed there go to stderr.
    pub fn take_stdout() -> io::Result<Output> {
        let kept = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        // SAFETY: both descriptors are open, and nothing has been written to stdout yet.
        if unsafe { dup2(io::stderr().as_raw_fd(), io::stdout().as_raw_fd()) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Output(Arc::new(Mutex::new(kept))))
    }

    /// Send what a worker or a reader of events tells by itself.
    #[allow(dead_code)]
    pub fn emit(&self, handle: &str, name: &str, args: Value) {
        self.send(&json!({"type": "event", "handle": handle, "name": name, "args": args}));
    }

    fn send(&self, line: &Value) {
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if file.write_all(format!("{line}\n").as_bytes()).is_err() {
            std::process::exit(0); // the kit is gone
        }
    }
}

/// Answer the kit until stdin ends, then leave at once, whatever is still open: the kit may be dead by then.
pub fn serve(driver: impl Driver, output: &Output) -> io::Result<()> {
    let driver = Arc::new(driver);
    for line in io::stdin().lock().lines() {
        let message: Value = serde_json::from_str(&line?)?;
        match message["type"].as_str() {
            Some("hello") => output.send(&ready(&driver.declaration())),
            Some("call") => {
                let (driver, output, call) = (Arc::clone(&driver), output.clone(), call_of(&message));
                driver.begin(&call);
                thread::spawn(move || output.send(&answer(&*driver, &call, &message["id"])));
            }
            _ => {}
        }
    }
    std::process::exit(0)
}

fn ready(declared: &Declaration) -> Value {
    let mut client = json!({
        "name": declared.name, "language": "rust", "version": declared.version, "packages": declared.packages,
    });
    if !declared.targets.is_empty() {
        client["targets"] = json!(declared.targets);
    }
    json!({
        "type": "ready", "protocol": PROTOCOL_VERSION, "client": client,
        "ops": declared.ops, "capabilities": declared.capabilities,
    })
}

fn call_of(message: &Value) -> Call {
    let text = |name: &str| message[name].as_str().unwrap_or_default().to_owned();
    Call {
        op: text("op"),
        handle: text("handle"),
        args: message["args"].clone(),
        deadline_ms: message["deadline_ms"].as_u64().unwrap_or(15_000),
    }
}

fn answer(driver: &impl Driver, call: &Call, id: &Value) -> Value {
    let outcome = catch_unwind(AssertUnwindSafe(|| driver.call(call))).unwrap_or_else(|_| {
        Err(Failure::Unknown { code: "other", message: format!("{} panicked; stderr says more", call.op) })
    });
    let mut line = fields_of(outcome);
    line["type"] = json!("result");
    line["id"] = id.clone();
    line
}

fn fields_of(outcome: Outcome) -> Value {
    let error = |code, message, definite| json!({"code": code, "message": message, "definite": definite});
    match outcome {
        Ok(value) => json!({"status": "ok", "value": value}),
        Err(Failure::Unsupported(reason)) => json!({"status": "unsupported", "reason": reason}),
        Err(Failure::Failed { code, message }) => json!({"status": "fail", "error": error(code, message, true)}),
        Err(Failure::Unknown { code, message }) => json!({"status": "info", "error": error(code, message, false)}),
    }
}
