//! The driver's side of the protocol for clients written in Rust.
//!
//! A driver implements [`Driver`] and passes itself to [`serve`], with the [`Output`] taken from stdout:
//!
//! ```ignore
//! fn main() -> std::io::Result<()> {
//!     let output = Output::take_stdout()?;
//!     serve(MyDriver::new(output.clone()), &output)
//! }
//! ```
//!
//! Every call runs in its own thread, so a slow call does not delay the others; call an async client with
//! `Handle::block_on`. Work that must start before the next call is read starts in [`Driver::start`]. Output of the client
//! to stdout goes to stderr, which the kit keeps as the log.

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

/// The reason of a failed operation. The codes are those of the kit's docs/reference/driver-protocol.md.
#[allow(dead_code)]
pub enum Failure {
    /// The client cannot do this, or not with these arguments.
    Unsupported(String),
    /// It certainly did not happen.
    Failed { code: &'static str, message: String },
    /// It is unknown whether it happened.
    Unknown { code: &'static str, message: String },
}

/// The fields of the answer, or the failure.
pub type Outcome = Result<Value, Failure>;

/// The driver's declaration in the line `ready`.
pub struct Declaration {
    pub name: &'static str,
    pub version: &'static str,
    /// The BullMQ version that the client follows; empty if unknown.
    pub targets: &'static str,
    /// Versions of the libraries that the client uses.
    pub packages: BTreeMap<&'static str, &'static str>,
    /// Some of: clock, manual-worker, managed-worker, cluster, raw-data.
    pub capabilities: Vec<&'static str>,
    pub ops: Vec<&'static str>,
}

/// A client behind the protocol.
pub trait Driver: Send + Sync + 'static {
    fn declaration(&self) -> Declaration;
    fn call(&self, call: &Call) -> Outcome;

    /// Called for each call in the order of their lines, before `call` and before the next line is read. Start closing a
    /// worker here: otherwise the kit may end its current job first, and the worker's loop takes another one.
    fn start(&self, _call: &Call) {}
}

/// The output for lines of the protocol. Clones share it and write whole lines.
#[derive(Clone)]
pub struct Output(Arc<Mutex<File>>);

extern "C" {
    fn dup2(from: i32, to: i32) -> i32;
}

impl Output {
    /// Reserve stdout for the protocol, and redirect all other output to stderr.
    pub fn take_stdout() -> io::Result<Output> {
        let kept = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        // SAFETY: both descriptors are open, and nothing has been written to stdout yet.
        if unsafe { dup2(io::stderr().as_raw_fd(), io::stdout().as_raw_fd()) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Output(Arc::new(Mutex::new(kept))))
    }

    /// Send an event of a worker or an event reader.
    #[allow(dead_code)]
    pub fn emit(&self, handle: &str, name: &str, args: Value) {
        self.send(&json!({"type": "event", "handle": handle, "name": name, "args": args}));
    }

    fn send(&self, line: &Value) {
        // A panic of another thread must not stop all later answers: the file itself is still usable.
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if file.write_all(format!("{line}\n").as_bytes()).is_err() {
            std::process::exit(0); // the kit is gone
        }
    }
}

/// Answer the kit until stdin ends, then exit immediately, even with open connections: the kit may be dead by then.
pub fn serve(driver: impl Driver, output: &Output) -> io::Result<()> {
    let driver = Arc::new(driver);
    for line in io::stdin().lock().lines() {
        let message: Value = serde_json::from_str(&line?)?;
        match message["type"].as_str() {
            Some("hello") => output.send(&ready(&driver.declaration())),
            Some("call") => {
                let (driver, output, call) = (Arc::clone(&driver), output.clone(), call_of(&message));
                // In this thread: threads do not start in the order in which they are spawned.
                driver.start(&call);
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
    // A panic would end only this thread, and the kit would wait for the answer until its deadline.
    let outcome = catch_unwind(AssertUnwindSafe(|| driver.call(call))).unwrap_or_else(|_| {
        Err(Failure::Unknown { code: "other", message: format!("{} panicked; see stderr", call.op) })
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
