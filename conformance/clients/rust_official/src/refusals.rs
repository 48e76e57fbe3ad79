//! What the client says when it does not do something, in the words of the protocol.

use bullmq::Error;

use crate::serve::Failure;

pub fn invalid(message: String) -> Failure {
    Failure::Failed { code: "invalid-argument", message }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let message = error.to_string();
        if let Error::Redis(cause) = &error {
            if cause.is_io_error() || cause.is_timeout() || cause.is_connection_dropped() {
                return Failure::Unknown { code: "connection-lost", message };
            }
        }
        Failure::Failed { code: code_of(&error), message }
    }
}

fn code_of(error: &Error) -> &'static str {
    match error {
        Error::Script { code, .. } => code_of_script(*code),
        Error::JobNotFound(_) => "missing-job",
        Error::JobLocked(_) => "lock-mismatch",
        Error::JobLockNotExist(_) => "missing-lock",
        Error::JobNotInState(..) => "wrong-state",
        Error::JobHasFailedChildren(_) => "failed-children",
        Error::InvalidConfig(text) => code_in(text).map_or("invalid-argument", code_of_script),
        Error::Serialization(_) => "invalid-argument",
        _ => "other",
    }
}

/// The client puts what some scripts answer into a text: "updateProgress failed with code -1".
fn code_in(text: &str) -> Option<i64> {
    text.rsplit_once(" failed with code ")?.1.parse().ok()
}

/// The scripts answer with these numbers (docs/reference/driver-protocol.md, the table of codes).
fn code_of_script(code: i64) -> &'static str {
    match code {
        -1 => "missing-job",
        -2 => "missing-lock",
        -3 => "wrong-state",
        -4 => "pending-dependencies",
        -5 => "missing-parent",
        -6 => "lock-mismatch",
        -7 => "parent-replaced",
        -8 => "scheduler-job",
        -9 => "failed-children",
        -10 | -11 => "scheduler-collision",
        _ => "other",
    }
}
