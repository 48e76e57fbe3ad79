//! Digests of rows, for a process that calls this library through C with columns that lie in its memory.

mod columns;
mod events;
mod hash;
mod jobs;
mod json;

use columns::{Maps, MapsView, Texts, TextsView};
use events::{EventColumns, EventNumbers, EventRecord, HistoryRecord};
use jobs::JobRecord;
use std::slice;

/// The key of each job: which it is, in 64 bits.
///
/// # Safety
/// All columns must have at least `count` rows, and `keys` room for as many.
#[no_mangle]
pub unsafe extern "C" fn digest_keys(queues: &TextsView, ids: &TextsView, count: usize, keys: *mut u64) {
    let (queues, ids) = unsafe { (Texts::of(queues, count), Texts::of(ids, count)) };
    let keys = unsafe { slice::from_raw_parts_mut(keys, count) };
    for (row, key) in keys.iter_mut().enumerate() {
        *key = jobs::key_of(queues.at(row), ids.at(row));
    }
}

/// A record of each job. `prefix`: with its colon.
///
/// # Safety
/// As for `digest_keys`; `prefix` must have `prefix_size` bytes, more than none.
#[no_mangle]
pub unsafe extern "C" fn digest_jobs(
    queues: &TextsView,
    ids: &TextsView,
    fields: &MapsView,
    count: usize,
    prefix: *const u8,
    prefix_size: usize,
    records: *mut JobRecord,
) {
    let (queues, ids, fields) = unsafe { (Texts::of(queues, count), Texts::of(ids, count), Maps::of(fields, count)) };
    let (prefix, records) = unsafe {
        (
            slice::from_raw_parts(prefix, prefix_size),
            slice::from_raw_parts_mut(records, count),
        )
    };
    jobs::job_records(queues, ids, &fields, prefix, records);
}

/// A record of each event. `prefix`: with its colon.
///
/// # Safety
/// As for `digest_jobs`.
#[no_mangle]
pub unsafe extern "C" fn digest_events(
    queues: &TextsView,
    jobs: &TextsView,
    names: &TextsView,
    ids: &TextsView,
    fields: &MapsView,
    count: usize,
    prefix: *const u8,
    prefix_size: usize,
    records: *mut EventRecord,
) {
    let columns = unsafe {
        EventColumns {
            queues: Texts::of(queues, count),
            jobs: Texts::of(jobs, count),
            names: Texts::of(names, count),
            ids: Texts::of(ids, count),
            fields: Maps::of(fields, count),
        }
    };
    let (prefix, records) = unsafe {
        (
            slice::from_raw_parts(prefix, prefix_size),
            slice::from_raw_parts_mut(records, count),
        )
    };
    events::event_records(&columns, prefix, records);
}

/// Bring the events of each job together; returns how many jobs there are.
///
/// # Safety
/// The columns must have `count` numbers, and `histories` room for as many records.
#[no_mangle]
pub unsafe extern "C" fn digest_histories(
    keys: *const u64,
    contents: *const u64,
    added_ms: *const i64,
    flags: *const u32,
    count: usize,
    histories: *mut HistoryRecord,
) -> usize {
    let (events, histories) = unsafe {
        (
            EventNumbers {
                keys: slice::from_raw_parts(keys, count),
                contents: slice::from_raw_parts(contents, count),
                added_ms: slice::from_raw_parts(added_ms, count),
                flags: slice::from_raw_parts(flags, count),
            },
            slice::from_raw_parts_mut(histories, count),
        )
    };
    events::histories(&events, histories)
}
