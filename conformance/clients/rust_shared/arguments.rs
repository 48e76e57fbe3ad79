//! Reading the arguments of a call.

use serde_json::Value;

use super::refusals::{invalid, unsupported};
use crate::serve::Failure;

pub fn text<'a>(args: &'a Value, name: &str) -> &'a str {
    args[name].as_str().unwrap_or_default()
}

pub fn number(args: &Value, name: &str) -> i64 {
    args[name].as_i64().unwrap_or_default()
}

pub fn list<'a>(args: &'a Value, name: &str) -> Vec<&'a Value> {
    args[name].as_array().into_iter().flatten().collect()
}

pub fn texts(args: &Value, name: &str) -> Vec<String> {
    list(args, name).into_iter().filter_map(|word| word.as_str().map(str::to_owned)).collect()
}

/// A JSON text as the value that a user would pass to the client; `null` if the argument is missing.
pub fn parsed(args: &Value, name: &str) -> Result<Value, Failure> {
    serde_json::from_str(args[name].as_str().unwrap_or("null")).map_err(|error| invalid(error.to_string()))
}

/// Refuse an option that the client's type does not have and would drop without an error.
pub fn only(given: &Value, known: &[&str], owner: &str) -> Result<(), Failure> {
    let mut names = given.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
    match names.find(|name| !known.contains(name)) {
        Some(name) => Err(unsupported(format!("{owner} of this client has no {name}"))),
        None => Ok(()),
    }
}
