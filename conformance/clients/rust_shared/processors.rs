//! Parts of the protocol's processors that do not depend on the client.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{json, Value};
use tokio::sync::oneshot;

use super::arguments::text;
use super::refusals::invalid;
use crate::serve::{Outcome, Output};

/// Jobs of processor `ask` that wait for `resolve`: by id, the oldest first.
pub struct PendingJobs {
    handle: String,
    output: Output,
    waiting: Mutex<HashMap<String, VecDeque<oneshot::Sender<Value>>>>,
}

impl PendingJobs {
    pub fn new(handle: &str, output: Output) -> PendingJobs {
        PendingJobs { handle: handle.to_owned(), output, waiting: Mutex::default() }
    }

    /// Hand the job to the kit, and wait for the arguments of its `resolve`.
    pub async fn ask(&self, id: &str, event: Value) -> Value {
        let (send, receive) = oneshot::channel();
        // Stored before the event is sent, because the kit may resolve the job at once.
        self.waiting().entry(id.to_owned()).or_default().push_back(send);
        self.output.emit(&self.handle, "job", event);
        receive.await.unwrap_or_default()
    }

    pub fn resolve(&self, args: &Value) -> Outcome {
        let id = text(args, "job");
        let pending = self.waiting().get_mut(id).and_then(VecDeque::pop_front);
        match pending.map(|answer| answer.send(args.clone())) {
            Some(Ok(())) => Ok(json!({})),
            _ => Err(invalid(format!("job {id} is not waiting for `resolve` at {}", self.handle))),
        }
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<String, VecDeque<oneshot::Sender<Value>>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub async fn sleep(settings: &Value) {
    tokio::time::sleep(Duration::from_millis(settings["ms"].as_u64().unwrap_or(0))).await;
}

/// The message of a job that fails on request.
pub fn failure_message(settings: &Value) -> String {
    settings["message"].as_str().unwrap_or("failed on request").to_owned()
}
