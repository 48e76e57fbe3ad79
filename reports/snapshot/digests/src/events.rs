//! An entry of an event stream in a few numbers.

use crate::columns::{mentions, whole_number, Maps, Texts};
use crate::hash::{hash, mixed};
use crate::jobs::key_of;

/// A rule inspects such an event: it has a time in it, names a key, or has an odd id.
pub const IS_ODD: u32 = 1;
pub const IS_ADDED: u32 = 2;

const PART_OF_ID: std::ops::RangeInclusive<usize> = 1..=18;

/// `key`: of which job; `content`: name and fields, in their order, without the job's id, and of an odd event also the id
/// of its entry. `added_ms`: when Redis took an event `added` (Unix ms), -1 for every other one.
#[repr(C)]
pub struct EventRecord {
    key: u64,
    content: u64,
    added_ms: i64,
    flags: u32,
    reserved: u32,
}

/// The columns of a page of events.
pub struct EventColumns<'a> {
    pub queues: Texts<'a>,
    pub jobs: Texts<'a>,
    pub names: Texts<'a>,
    pub ids: Texts<'a>,
    pub fields: Maps<'a>,
}

pub fn event_records(columns: &EventColumns<'_>, prefix: &[u8], records: &mut [EventRecord]) {
    for (row, record) in records.iter_mut().enumerate() {
        *record = event_record(columns, row, prefix);
    }
}

fn event_record(columns: &EventColumns<'_>, row: usize, prefix: &[u8]) -> EventRecord {
    let (name, id) = (columns.names.at(row), columns.ids.at(row));
    let taken_ms = ms_of(id);
    let mut content = hash(8, name);
    let mut is_odd = name == b"delayed" || taken_ms.is_none();
    for (field, value) in columns.fields.pairs(row) {
        let told_by_key = field == b"jobId";
        content = mixed(hash(content, field), if told_by_key { 0 } else { hash(9, value) });
        is_odd |= mentions(value, prefix) || mentions(field, prefix);
    }
    if is_odd {
        content = hash(content, id); // rules compare its fields with the time in the id
    }
    let is_added = name == b"added";
    EventRecord {
        key: key_of(columns.queues.at(row), columns.jobs.at(row)),
        content,
        added_ms: if is_added { taken_ms.unwrap_or(-1) } else { -1 },
        flags: if is_odd { IS_ODD } else { 0 } | if is_added { IS_ADDED } else { 0 },
        reserved: 0,
    }
}

/// All events of a job. `content`: of all of them, in the order of the stream. `added_ms`: of the first event `added`.
#[repr(C)]
pub struct HistoryRecord {
    key: u64,
    content: u64,
    added_ms: i64,
    flags: u32,
    count: u32,
}

/// The events of a bucket, as they are in the streams.
pub struct EventNumbers<'a> {
    pub keys: &'a [u64],
    pub contents: &'a [u64],
    pub added_ms: &'a [i64],
    pub flags: &'a [u32],
}

/// One record for each job, in the order of their first events; `histories` has room for as many as there are events.
pub fn histories(events: &EventNumbers<'_>, histories: &mut [HistoryRecord]) -> usize {
    let mask = (2 * events.keys.len()).next_power_of_two() - 1;
    // The place of a job's history, plus one. Keys are hashes, so that their low bits spread them well.
    let mut places = vec![0u32; mask + 1];
    let mut found = 0;
    for (row, &key) in events.keys.iter().enumerate() {
        let mut slot = key as usize & mask;
        while places[slot] != 0 && histories[places[slot] as usize - 1].key != key {
            slot = (slot + 1) & mask;
        }
        if places[slot] == 0 {
            histories[found] = HistoryRecord {
                key,
                content: 0,
                added_ms: -1,
                flags: 0,
                count: 0,
            };
            found += 1;
            places[slot] = found as u32;
        }
        let history = &mut histories[places[slot] as usize - 1];
        if events.flags[row] & !history.flags & IS_ADDED != 0 {
            history.added_ms = events.added_ms[row];
        }
        history.content = mixed(history.content, events.contents[row]);
        history.flags |= events.flags[row];
        history.count += 1;
    }
    found
}

/// The ms in the id of an entry; None for what is none.
fn ms_of(id: &[u8]) -> Option<i64> {
    let dash = id.iter().position(|byte| *byte == b'-')?;
    let (ms, sequence) = (whole_number(&id[..dash], PART_OF_ID), whole_number(&id[dash + 1..], PART_OF_ID));
    (ms >= 0 && sequence >= 0).then_some(ms)
}
