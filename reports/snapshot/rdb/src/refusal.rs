//! Why a file is not read any further.

use std::fmt;

/// The problem, and the byte of the file at which it is.
#[derive(Debug)]
pub struct Refusal {
    pub what: String,
    pub place: usize,
}

impl fmt::Display for Refusal {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} (at byte {})", self.what, self.place)
    }
}

/// The problem inside of a value that was taken out of the file; the caller knows its place.
#[derive(Debug)]
pub struct Damaged(pub &'static str);
