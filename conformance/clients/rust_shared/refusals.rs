//! Errors of a client as errors of the protocol.

use crate::serve::Failure;

pub fn invalid(message: impl Into<String>) -> Failure {
    Failure::Failed { code: "invalid-argument", message: message.into() }
}

pub fn unsupported(reason: impl Into<String>) -> Failure {
    Failure::Unsupported(reason.into())
}

/// An error of the connection. The call is undecided if the connection broke: Redis may have run the script before.
pub fn redis_failure(cause: &redis::RedisError, message: String) -> Failure {
    if cause.is_io_error() || cause.is_timeout() || cause.is_connection_dropped() {
        return Failure::Unknown { code: "connection-lost", message };
    }
    Failure::Failed { code: "other", message }
}

/// The code of the protocol for a number that a script returned (docs/reference/driver-protocol.md, the table of codes).
pub fn code_of_script(code: i64) -> &'static str {
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
