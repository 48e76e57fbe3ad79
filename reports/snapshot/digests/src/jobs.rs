//! The hash of a job in a few numbers.

use crate::columns::{mentions, whole_number, Maps, Texts};
use crate::hash::{hash, mixed};
use crate::json;

/// Nothing about the job is unusual: see `reports/diff/equality.py`.
pub const USUAL: u32 = 1;
/// The required fields are there, numbers are numbers, and JSON is JSON: see the same.
pub const GOOD: u32 = 2;
pub const HAS_PROCESSED: u32 = 4;
pub const HAS_FINISHED: u32 = 8;
pub const HAS_RESULT: u32 = 16;
pub const HAS_REASON: u32 = 32;

const REQUIRED: [&[u8]; 6] = [b"name", b"data", b"opts", b"timestamp", b"delay", b"priority"];
const FLOW_OR_ITERATION: [&[u8]; 3] = [b"parent", b"parentKey", b"rjk"];
const NUMBER: std::ops::RangeInclusive<usize> = 1..=9;
const TIME: std::ops::RangeInclusive<usize> = 13..=13;
const GENERATED_NUMBER: std::ops::RangeInclusive<usize> = 1..=18;

/// `key`: which job. `texts`: all fields but the times, equal where the rules find them equal; a time that is not
/// understood is a text. `opts`, `stacktrace`: these as they are written, 0 where there is none. Times in Unix ms; -1:
/// none, or none that is understood. `number`: the id where it is one that Redis counts. `flags`: above.
#[repr(C)]
#[derive(Default)]
pub struct JobRecord {
    key: u64,
    texts: u64,
    opts: u64,
    stacktrace: u64,
    timestamp: i64,
    processed: i64,
    finished: i64,
    number: i64,
    delay: i32,
    priority: i32,
    flags: u32,
    reserved: u32,
}

pub fn key_of(queue: &[u8], id: &[u8]) -> u64 {
    hash(hash(0, queue), id)
}

/// The facts that checks and rules need besides the texts.
struct Seen {
    required: usize,
    is_usual: bool,
    is_good: bool,
    counts: [i64; 3],
}

pub fn job_record(queue: &[u8], id: &[u8], fields: &Maps<'_>, row: usize, prefix: &[u8]) -> JobRecord {
    let mut record = JobRecord {
        key: key_of(queue, id),
        timestamp: -1,
        processed: -1,
        finished: -1,
        delay: -1,
        priority: -1,
        number: if id.first() == Some(&b'0') { -1 } else { whole_number(id, GENERATED_NUMBER) },
        ..JobRecord::default()
    };
    let mut seen = Seen {
        required: 0,
        is_usual: !names_a_key(queue, id, prefix),
        is_good: true,
        counts: [0; 3],
    };
    for (name, value) in fields.pairs(row) {
        seen.is_usual &= !mentions(value, prefix) && !mentions(name, prefix);
        let text = take_field(name, value, &mut record, &mut seen);
        record.texts = record.texts.wrapping_add(mixed(hash(1, name), text));
    }
    let [ats, atm, stc] = seen.counts;
    seen.is_good &= seen.required == REQUIRED.len() && record.delay >= 0 && record.priority >= 0;
    seen.is_good &= ats >= 0 && atm >= 0 && stc >= 0 && atm <= ats;
    record.flags |= if seen.is_usual { USUAL } else { 0 } | if seen.is_good { GOOD } else { 0 };
    record
}

/// Whether the key of the job, as a text, could be taken for another one with a prefix, or for an iteration.
fn names_a_key(queue: &[u8], id: &[u8], prefix: &[u8]) -> bool {
    let key = [queue, b":", id].concat();
    mentions(&key, prefix) || mentions(&key, b":repeat:")
}

/// Notes what is known of a field; returns the hash of its value, which is the same for all times.
fn take_field(name: &[u8], value: &[u8], record: &mut JobRecord, seen: &mut Seen) -> u64 {
    seen.required += usize::from(REQUIRED.contains(&name));
    seen.is_usual &= !FLOW_OR_ITERATION.contains(&name);
    match name {
        b"timestamp" => {
            record.timestamp = whole_number(value, TIME);
            return if record.timestamp < 0 { hash(10, value) } else { 0 };
        }
        b"processedOn" => {
            record.processed = whole_number(value, TIME);
            record.flags |= HAS_PROCESSED;
            return if record.processed < 0 { hash(10, value) } else { 0 };
        }
        b"finishedOn" => {
            record.finished = whole_number(value, TIME);
            record.flags |= HAS_FINISHED;
            return if record.finished < 0 { hash(10, value) } else { 0 };
        }
        b"opts" => return opts_hash(value, record, seen),
        b"stacktrace" => {
            record.stacktrace = hash(2, value);
            let texts = json::texts_in_array(value);
            seen.is_good &= value.first() == Some(&b'[') && texts.is_some();
            return texts.map_or_else(|| hash(3, value), |count| mixed(4, count));
        }
        b"delay" => record.delay = whole_number(value, NUMBER) as i32,
        b"priority" => record.priority = whole_number(value, NUMBER) as i32,
        b"ats" => seen.counts[0] = whole_number(value, NUMBER),
        b"atm" => seen.counts[1] = whole_number(value, NUMBER),
        b"stc" => seen.counts[2] = whole_number(value, NUMBER),
        b"returnvalue" => record.flags |= HAS_RESULT,
        b"failedReason" => record.flags |= HAS_REASON,
        _ => {}
    }
    if matches!(name, b"data" | b"returnvalue" | b"progress") {
        seen.is_good &= json::value_hash(value).is_some();
    }
    hash(5, value)
}

/// Options are compared as JSON. A chosen timestamp, and escapes that encode any character, make a job unusual.
fn opts_hash(value: &[u8], record: &mut JobRecord, seen: &mut Seen) -> u64 {
    record.opts = hash(2, value);
    seen.is_usual &= !mentions(value, b"\"timestamp\"") && !mentions(value, b"\\u");
    let is_object = value.first() == Some(&b'{');
    let found = is_object.then(|| json::value_hash(value)).flatten();
    seen.is_good &= found.is_some();
    found.map_or_else(|| hash(6, value), |form| mixed(7, form))
}

/// One record for each row. `prefix`: with its colon.
pub fn job_records<'a>(
    queues: Texts<'a>,
    ids: Texts<'a>,
    fields: &Maps<'a>,
    prefix: &[u8],
    records: &mut [JobRecord],
) {
    for (row, record) in records.iter_mut().enumerate() {
        *record = job_record(queues.at(row), ids.at(row), fields, row, prefix);
    }
}
