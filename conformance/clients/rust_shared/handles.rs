//! The client's objects by the handles of the kit, and the jobs that a queue has handed out.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::json;

use super::refusals::{invalid, unsupported};
use crate::serve::{Failure, Outcome};

/// How long `reset` waits for one object to close its connections. A reset starts the next scenario, and one object that
/// waits for a job of the last scenario must not use up the deadline of the call.
const ABANDON: Duration = Duration::from_secs(1);

/// How many of its latest jobs a queue keeps: more than any scenario uses at a time.
const HELD: usize = 100;

/// An object of the client that a handle names.
pub trait Close: Send + Sync + 'static {
    /// Start to close, without waiting for the end.
    fn start_close(&self, _force: bool) {}

    fn close(&self, force: bool) -> impl Future<Output = Result<(), Failure>> + Send;
}

pub struct Handles<O> {
    open: Mutex<HashMap<String, Arc<O>>>,
    /// The objects of `close` calls that were read and have not run yet. Calls run concurrently, so a `reset` that was read
    /// later may run first and free the name for another object.
    closing: Mutex<Vec<(String, Arc<O>)>>,
}

impl<O: Close> Handles<O> {
    pub fn new() -> Handles<O> {
        Handles { open: Mutex::default(), closing: Mutex::default() }
    }

    /// Store the object that `opening` connects.
    pub async fn open(&self, name: &str, opening: impl Future<Output = Result<O, Failure>>) -> Outcome {
        if name.is_empty() || self.all().contains_key(name) {
            return Err(invalid(format!("the handle {name:?} is open already, or has no name")));
        }
        // No lock is held here: connecting may take seconds, and other calls must go on.
        let opened = opening.await?;
        self.all().insert(name.to_owned(), Arc::new(opened));
        Ok(json!({}))
    }

    /// Remember which object a `close` means, and start to close it. Called in the order in which the calls are read.
    pub fn start_close(&self, name: &str, force: bool) {
        let Ok(opened) = self.named(name) else { return };
        opened.start_close(force);
        self.closing().push((name.to_owned(), opened));
    }

    /// Close one object as the client's user would, and forget its handle.
    pub async fn close(&self, name: &str, force: bool) -> Outcome {
        let opened = self.take_closing(name).map_or_else(|| self.named(name), Ok)?;
        opened.close(force).await?;
        let mut open = self.all();
        // While the object was closing, the next scenario may have opened another one under the same name.
        if open.get(name).is_some_and(|named| Arc::ptr_eq(named, &opened)) {
            open.remove(name);
        }
        Ok(json!({}))
    }

    /// Forget all handles, and close their objects without waiting for jobs.
    pub async fn abandon_all(&self) -> Outcome {
        let abandoned: Vec<_> = self.all().drain().map(|(_, opened)| opened).collect();
        let closing: Vec<_> = abandoned
            .into_iter()
            // In parallel: one after the other, many hanging objects would exceed the deadline of `reset`.
            .map(|opened| tokio::spawn(async move { tokio::time::timeout(ABANDON, opened.close(true)).await }))
            .collect();
        for task in closing {
            if let Err(problem) = task.await {
                eprintln!("an object did not close: {problem}");
            }
        }
        Ok(json!({}))
    }

    pub fn named(&self, name: &str) -> Result<Arc<O>, Failure> {
        self.all().get(name).cloned().ok_or_else(|| invalid(format!("unknown handle {name:?}")))
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Arc<O>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_closing(&self, name: &str) -> Option<Arc<O>> {
        let mut closing = self.closing();
        // The oldest one: it belongs to the `close` that was read first.
        let place = closing.iter().position(|(noted, _)| noted == name)?;
        Some(closing.remove(place).1)
    }

    fn closing(&self) -> MutexGuard<'_, Vec<(String, Arc<O>)>> {
        self.closing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A queue and the latest Job objects that it has returned. A user can still call methods of a Job whose hash has been
/// deleted, and the client then has to report what is missing.
pub struct OpenQueue<Q, J> {
    pub queue: Q,
    held: Mutex<VecDeque<(String, J)>>,
}

impl<Q, J: Clone> OpenQueue<Q, J> {
    pub fn new(queue: Q) -> OpenQueue<Q, J> {
        OpenQueue { queue, held: Mutex::default() }
    }

    pub fn hold(&self, id: &str, job: &J) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        // The newest object of a job counts: it has the values that the user saw last.
        held.retain(|(other, _)| other != id);
        held.push_back((id.to_owned(), job.clone()));
        if held.len() > HELD {
            held.pop_front();
        }
    }

    /// The Job object of a deleted job. Unsupported if the client never returned one.
    pub fn held(&self, id: &str) -> Result<J, Failure> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let job = held.iter().find(|(other, _)| other == id).map(|(_, job)| job.clone());
        job.ok_or_else(|| unsupported(format!("job {id} does not exist, so the client returns no Job object for it")))
    }
}
