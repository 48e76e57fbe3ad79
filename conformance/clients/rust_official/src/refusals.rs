//! The client's errors as errors of the protocol.

use bullmq::Error;

use crate::serve::Failure;
use crate::shared::refusals::{code_of_script, redis_failure};

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let message = error.to_string();
        match &error {
            Error::Redis(cause) => redis_failure(cause, message),
            _ => Failure::Failed { code: code_of(&error), message },
        }
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

/// Some numbers that scripts return are only in the text of the error: "updateProgress failed with code -1".
fn code_in(text: &str) -> Option<i64> {
    text.rsplit_once(" failed with code ")?.1.parse().ok()
}
