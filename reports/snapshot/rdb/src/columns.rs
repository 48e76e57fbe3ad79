//! The values read, as columns that Arrow can take as they are.

use crate::packed::Element;
use std::io::Write;

/// Texts one after the other, with the offset at which each starts, and the end of the last.
pub struct Texts {
    pub offsets: Vec<i32>,
    pub bytes: Vec<u8>,
}

impl Texts {
    pub fn new() -> Self {
        Texts {
            offsets: vec![0],
            bytes: Vec::new(),
        }
    }

    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    pub fn push(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.close();
    }

    pub fn push_element(&mut self, element: Element<'_>) {
        match element {
            Element::Text(text) => self.push(text),
            Element::Integer(number) => self.push_written(format_args!("{number}")),
        }
    }

    pub fn push_written(&mut self, written: std::fmt::Arguments<'_>) {
        self.bytes.write_fmt(written).expect("memory takes what is written");
        self.close();
    }

    fn close(&mut self) {
        // A page is ended long before: `Columns::size` counts these bytes.
        self.offsets
            .push(i32::try_from(self.bytes.len()).expect("a page holds less than 2 GiB"));
    }

    fn clear(&mut self) {
        self.offsets.truncate(1);
        self.bytes.clear();
    }
}

/// A key, or a piece of one that is continued in the next page. `kind` as in `values::Kind`.
///
/// Its elements are `count` values from `first` on, with names next to them if it is a hash or a stream. `entries`
/// from `first_entry` on are those of a stream, and the scores of a sorted set start at `first_score`. `before`:
/// elements of the pieces before. `expires_ms`: Unix ms; -1: never. `trimmed`: entries that a stream has lost; -1: unknown.
#[repr(C)]
#[derive(Default)]
pub struct KeyRecord {
    pub expires_ms: i64,
    pub before: i64,
    pub first: i64,
    pub count: i64,
    pub first_score: i64,
    pub first_entry: i64,
    pub entries: i64,
    pub trimmed: i64,
    pub kind: i32,
    pub is_whole: i32,
}

/// A page of keys. Elements without names have empty ones. Scores and entries are of the keys that have such.
pub struct Columns {
    pub records: Vec<KeyRecord>,
    pub keys: Texts,
    pub names: Texts,
    pub values: Texts,
    pub scores: Vec<f64>,
    pub entry_ids: Texts,
    pub entry_sizes: Vec<i64>,
}

const BYTES_OF_RECORD: usize = 72;

impl Columns {
    pub fn new() -> Self {
        Columns {
            records: Vec::new(),
            keys: Texts::new(),
            names: Texts::new(),
            values: Texts::new(),
            scores: Vec::new(),
            entry_ids: Texts::new(),
            entry_sizes: Vec::new(),
        }
    }

    pub fn clear(&mut self) {
        for texts in [&mut self.keys, &mut self.names, &mut self.values, &mut self.entry_ids] {
            texts.clear();
        }
        self.records.clear();
        self.scores.clear();
        self.entry_sizes.clear();
    }

    /// About how many bytes it holds.
    pub fn size(&self) -> usize {
        self.names.bytes.len() + self.values.bytes.len() + 8 * self.values.len() + BYTES_OF_RECORD * self.records.len()
    }

    pub fn push_member(&mut self, text: &[u8]) {
        self.names.push(b"");
        self.values.push(text);
    }

    pub fn push_element(&mut self, element: Element<'_>) {
        self.names.push(b"");
        self.values.push_element(element);
    }

    pub fn push_pair(&mut self, name: &[u8], value: &[u8]) {
        self.names.push(name);
        self.values.push(value);
    }

    pub fn push_element_pair(&mut self, name: Element<'_>, value: Element<'_>) {
        self.names.push_element(name);
        self.values.push_element(value);
    }
}
