//! Why a file is not read any further.

use std::fmt;

/// What is wrong, and at which byte of the file.
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

/// What is wrong inside of a value that was taken out of the file; its place is known to who took it.
#[derive(Debug)]
pub struct Damaged(pub &'static str);
