//! Takes the place of your own client: its MessagePack, scores and key names.

use serde_json::Value;

/// MessagePack as BullMQ writes it: objects have 16-bit headers and keep their order, numbers beyond 32 bits are doubles.
pub fn pack(value: &Value) -> Vec<u8> {
    match value {
        Value::Null => vec![0xc0],
        Value::Bool(is) => vec![if *is { 0xc3 } else { 0xc2 }],
        Value::Number(number) => pack_number(number.as_f64().unwrap()),
        Value::String(text) => {
            let header = match text.len() {
                length @ 0..=31 => vec![0xa0 | length as u8],
                length @ 32..=255 => sized(0xd9, length as u64, 1),
                length => sized(0xda, length as u64, 2),
            };
            [header, text.clone().into_bytes()].concat()
        }
        Value::Array(items) => {
            let header = match items.len() {
                length @ 0..=15 => vec![0x90 | length as u8],
                length => sized(0xdc, length as u64, 2),
            };
            [header, items.iter().flat_map(pack).collect()].concat()
        }
        Value::Object(members) => {
            let inside = members
                .iter()
                .flat_map(|(name, member)| [pack(&name.as_str().into()), pack(member)].concat());
            [sized(0xde, members.len() as u64, 2), inside.collect()].concat()
        }
    }
}

fn pack_number(value: f64) -> Vec<u8> {
    let whole = value as i64;
    match whole {
        _ if value.fract() != 0.0 || !(-2147483648.0..4294967296.0).contains(&value) => {
            sized(0xcb, value.to_bits(), 8)
        }
        -32..=127 => vec![whole as u8],
        128..=0xff => sized(0xcc, whole as u64, 1),
        0x100..=0xffff => sized(0xcd, whole as u64, 2),
        0x10000..=i64::MAX => sized(0xce, whole as u64, 4),
        -128..=-33 => sized(0xd0, whole as u64, 1),
        -32768..=-129 => sized(0xd1, whole as u64, 2),
        _ => sized(0xd2, whole as u64, 4),
    }
}

fn sized(kind: u8, value: u64, width: usize) -> Vec<u8> {
    [&[kind], &value.to_be_bytes()[8 - width..]].concat()
}

/// The score of a job that is due at a time (Unix ms), after a number of others of the same ms.
pub fn delayed_score(due_ms: i64, before: i64) -> f64 {
    (due_ms * 0x1000 + before) as f64
}

/// The score of a job with a priority; `counter` is the queue's key `pc`.
pub fn priority_score(priority: i64, counter: i64) -> f64 {
    ((priority << 32) + counter) as f64
}

/// The KEYS of the script addStandardJob.
pub fn add_keys(prefix: &str, queue: &str) -> Vec<String> {
    [
        "wait",
        "paused",
        "meta",
        "id",
        "completed",
        "delayed",
        "active",
        "events",
        "marker",
    ]
    .iter()
    .map(|name| format!("{prefix}:{queue}:{name}"))
    .collect()
}
