//! The client's errors as errors of the protocol.

use bullmq_rs::BullmqError;

use crate::serve::Failure;
use crate::shared::refusals::{code_of_script, redis_failure};

impl From<BullmqError> for Failure {
    fn from(error: BullmqError) -> Failure {
        let message = error.to_string();
        if let BullmqError::Redis(cause) = &error {
            if let lost @ Failure::Unknown { .. } = redis_failure(cause, message.clone()) {
                return lost;
            }
        }
        Failure::Failed { code: code_of(&error, &message), message }
    }
}

/// The client has types for few of its errors. The others differ only in their text.
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

/// The number that a script returned is at the end of the text: "changePriority returned unexpected code: -3".
fn code_in(text: &str) -> Option<i64> {
    text.rsplit_once(": ")?.1.trim_start_matches("int(").trim_end_matches(')').parse().ok()
}
