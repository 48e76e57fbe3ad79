//! What the client says when it does not do something, in the words of the protocol.

use bullmq_rs::BullmqError;

use crate::serve::Failure;

pub fn invalid(message: String) -> Failure {
    Failure::Failed { code: "invalid-argument", message }
}

pub fn unsupported(reason: &str) -> Failure {
    Failure::Unsupported(reason.to_owned())
}

impl From<BullmqError> for Failure {
    fn from(error: BullmqError) -> Failure {
        let message = error.to_string();
        if let BullmqError::Redis(cause) = &error {
            if cause.is_io_error() || cause.is_timeout() || cause.is_connection_dropped() {
                return Failure::Unknown { code: "connection-lost", message };
            }
        }
        Failure::Failed { code: code_of(&error, &message), message }
    }
}

/// The client has types for few of its errors. The others are told apart by their text.
fn code_of(error: &BullmqError, message: &str) -> &'static str {
    const TEXTS: [(&str, &str); 14] = [
        ("because it is locked", "lock-mismatch"),
        ("belongs to a job scheduler", "scheduler-job"),
        ("is not in delayed state", "wrong-state"),
        ("options are defined for this repeatable job", "invalid-argument"),
        ("options must be defined for this repeatable job", "invalid-argument"),
        ("only supports failed or completed", "invalid-argument"),
        ("only supports completed or failed", "invalid-argument"),
        ("Cannot clean waiting-children", "invalid-argument"),
        ("is past its end date", "invalid-argument"),
        ("Invalid cron pattern", "invalid-argument"),
        ("Invalid timezone", "invalid-argument"),
        ("No next occurrence for cron pattern", "invalid-argument"),
        ("reached its iteration limit", "invalid-argument"),
        ("job id collision", "scheduler-collision"),
    ];
    let by_text = TEXTS.iter().find(|(text, _)| message.contains(text)).map(|(_, code)| *code);
    match error {
        BullmqError::JobNotFound(_) => "missing-job",
        BullmqError::LockMismatch => "lock-mismatch",
        BullmqError::ScriptError(text) => by_text.or(code_in(text).map(code_of_script)).unwrap_or("other"),
        _ => by_text.unwrap_or("other"),
    }
}

/// What a script answered stands at the end of the text: "changePriority returned unexpected code: -3".
fn code_in(text: &str) -> Option<i64> {
    text.rsplit_once(": ")?.1.trim_start_matches("int(").trim_end_matches(')').parse().ok()
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
