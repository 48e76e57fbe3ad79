//! An RDB file as columns, for a process that calls this library through C.
//!
//! `rdb_open`, `rdb_read` until it returns 0, `rdb_close`; after each `rdb_read` the page is in `rdb_page`, until
//! the next call. Every read of the file is checked against its end.

mod columns;
mod crc64;
mod dump;
mod lzf;
mod packed;
mod refusal;
mod source;
mod streams;
mod values;

use columns::{KeyRecord, Texts};
use dump::{Dump, Wanted};
use std::slice;

/// A column of texts: `count + 1` offsets into its bytes.
#[repr(C)]
pub struct TextsView {
    offsets: *const i32,
    bytes: *const u8,
    count: usize,
}

/// A page of keys, as `columns::Columns` describes it, and the facts in the file so far.
#[repr(C)]
pub struct PageView {
    records: *const KeyRecord,
    keys: TextsView,
    names: TextsView,
    values: TextsView,
    scores: *const f64,
    score_count: usize,
    entry_ids: TextsView,
    entry_sizes: *const i64,
    fact_names: TextsView,
    fact_values: TextsView,
}

/// A file that is being read, and why it is read no further.
pub struct Reader {
    dump: Dump<'static>,
    refusal: String,
}

fn view(texts: &Texts) -> TextsView {
    TextsView {
        offsets: texts.offsets.as_ptr(),
        bytes: texts.bytes.as_ptr(),
        count: texts.len(),
    }
}

/// Start to read a file in memory.
///
/// # Safety
/// `data` must be readable until `rdb_close`, and `prefix` during this call.
#[no_mangle]
pub unsafe extern "C" fn rdb_open(
    data: *const u8,
    size: usize,
    prefix: *const u8,
    prefix_size: usize,
    database: u64,
) -> *mut Reader {
    let (data, prefix) = unsafe {
        (
            slice::from_raw_parts(data, size),
            slice::from_raw_parts(prefix, prefix_size),
        )
    };
    let dump = Dump::new(
        data,
        Wanted {
            database,
            prefix: prefix.to_vec(),
        },
    );
    Box::into_raw(Box::new(Reader {
        dump,
        refusal: String::new(),
    }))
}

/// Read the next page of about `most_bytes`: 1 there may be more, 0 that was the last, -1 the file is refused.
///
/// # Safety
/// `reader` must come from `rdb_open` and not be closed.
#[no_mangle]
pub unsafe extern "C" fn rdb_read(reader: *mut Reader, most_bytes: usize) -> i32 {
    let reader = unsafe { &mut *reader };
    match reader.dump.read(most_bytes) {
        Ok(more) => i32::from(more),
        Err(refusal) => {
            reader.refusal = refusal.to_string();
            -1
        }
    }
}

/// How many bytes of the file are behind, and need not be in memory any more.
///
/// # Safety
/// As for `rdb_read`.
#[no_mangle]
pub unsafe extern "C" fn rdb_place(reader: *const Reader) -> usize {
    unsafe { (*reader).dump.place() }
}

/// The addresses of the page's columns.
///
/// # Safety
/// As for `rdb_read`. `page` must be writable.
#[no_mangle]
pub unsafe extern "C" fn rdb_page(reader: *const Reader, page: *mut PageView) {
    let dump = unsafe { &(*reader).dump };
    let columns = &dump.columns;
    let found = PageView {
        records: columns.records.as_ptr(),
        keys: view(&columns.keys),
        names: view(&columns.names),
        values: view(&columns.values),
        scores: columns.scores.as_ptr(),
        score_count: columns.scores.len(),
        entry_ids: view(&columns.entry_ids),
        entry_sizes: columns.entry_sizes.as_ptr(),
        fact_names: view(&dump.fact_names),
        fact_values: view(&dump.fact_values),
    };
    unsafe { page.write(found) };
}

/// Why the file is refused, in UTF-8; returns how many bytes that is.
///
/// # Safety
/// As for `rdb_read`. `text` must be writable.
#[no_mangle]
pub unsafe extern "C" fn rdb_refusal(reader: *const Reader, text: *mut *const u8) -> usize {
    let refusal = unsafe { &(*reader).refusal };
    unsafe { text.write(refusal.as_ptr()) };
    refusal.len()
}

/// Give back the memory.
///
/// # Safety
/// `reader` must come from `rdb_open`; it is gone afterwards.
#[no_mangle]
pub unsafe extern "C" fn rdb_close(reader: *mut Reader) {
    drop(unsafe { Box::from_raw(reader) });
}
