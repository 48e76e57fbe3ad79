//! The whole file: what stands before, between and behind the keys.

use crate::columns::{Columns, KeyRecord, Texts};
use crate::crc64;
use crate::refusal::Refusal;
use crate::source::Source;
use crate::values::{skip_of_module, Form, Kind};
use std::ops::RangeInclusive;

const BYTES_OF_HEAD: usize = 9;

/// How a file starts, and which versions of the format behind it are read.
const FORMATS: [(&str, RangeInclusive<u32>); 2] = [
    ("REDIS", 9..=12),   // Redis 5.0 to 8.0, Valkey 7.2 to 8.1
    ("VALKEY", 80..=80), // Valkey 9
];

const SLOT_INFO: u8 = 0xf4;
const FUNCTION: u8 = 0xf5;
const MODULE: u8 = 0xf7;
const IDLE: u8 = 0xf8;
const FREQUENCY: u8 = 0xf9;
const FACT: u8 = 0xfa;
const SIZES: u8 = 0xfb;
const EXPIRES_MS: u8 = 0xfc;
const EXPIRES_S: u8 = 0xfd;
const DATABASE: u8 = 0xfe;
const END: u8 = 0xff;

const NEVER: i64 = -1;

/// A key that is being read.
struct OpenKey {
    record: KeyRecord,
    form: Form,
    parts: u64,
    name: Option<Vec<u8>>,
}

/// The wanted keys: those of one database with this prefix.
pub struct Wanted {
    pub database: u64,
    pub prefix: Vec<u8>,
}

/// A file on its way through memory.
pub struct Dump<'a> {
    source: Source<'a>,
    wanted: Wanted,
    checksum: u64,
    checked: usize,
    database: u64,
    expires_ms: i64,
    open: Option<OpenKey>,
    is_over: bool,
    pub columns: Columns,
    pub fact_names: Texts,
    pub fact_values: Texts,
}

impl<'a> Dump<'a> {
    pub fn new(data: &'a [u8], wanted: Wanted) -> Self {
        Dump {
            source: Source::new(data),
            wanted,
            checksum: 0,
            checked: 0,
            database: 0,
            expires_ms: NEVER,
            open: None,
            is_over: false,
            columns: Columns::new(),
            fact_names: Texts::new(),
            fact_values: Texts::new(),
        }
    }

    /// Fill the columns with about `most_bytes`. Returns whether there may be more.
    pub fn read(&mut self, most_bytes: usize) -> Result<bool, Refusal> {
        self.columns.clear();
        if self.source.place() == 0 {
            self.read_head()?;
        }
        while !self.is_over && self.columns.size() < most_bytes {
            match self.open.take() {
                Some(key) => self.read_on(key, most_bytes)?,
                None => self.read_item()?,
            }
        }
        self.check_so_far();
        Ok(!self.is_over)
    }

    /// How many bytes of the file are behind.
    pub fn place(&self) -> usize {
        self.source.place()
    }

    fn read_head(&mut self) -> Result<(), Refusal> {
        let mut head = self.source.clone();
        let text = head.take(BYTES_OF_HEAD).unwrap_or_default();
        for (product, versions) in FORMATS {
            let Some(version) = text.strip_prefix(product.as_bytes()).and_then(number) else {
                continue;
            };
            if versions.contains(&version) {
                self.source = head;
                return Ok(());
            }
            let (oldest, newest) = (versions.start(), versions.end());
            return self.source.refuse(format!(
                "it has version {version} of the format {product}; {oldest} to {newest} are read"
            ));
        }
        self.source.refuse("it does not begin as an RDB file does")
    }

    /// Read what comes next, which may be the beginning of a key.
    fn read_item(&mut self) -> Result<(), Refusal> {
        let source = &mut self.source;
        match source.byte()? {
            SLOT_INFO => (0..3).try_for_each(|_| source.length().map(drop)),
            FUNCTION => source.string().map(drop),
            MODULE => {
                (0..3).try_for_each(|_| source.length().map(drop))?;
                skip_of_module(source)
            }
            IDLE => source.length().map(drop),
            FREQUENCY => source.byte().map(drop),
            FACT => {
                self.fact_names.push(&source.text()?);
                self.fact_values.push(&source.text()?);
                Ok(())
            }
            SIZES => self.read_sizes(),
            EXPIRES_MS => Ok(self.expires_ms = source.int64()?),
            EXPIRES_S => Ok(self.expires_ms = 1000 * i64::from(source.int32()?)),
            DATABASE => Ok(self.database = source.length()?),
            END => self.read_end(),
            kind => match Form::of(kind) {
                Ok(form) => self.open_key(form),
                Err(what) => source.refuse(what),
            },
        }
    }

    fn read_sizes(&mut self) -> Result<(), Refusal> {
        let keys = self.source.length()?;
        self.source.length()?; // how many of them expire
        if self.database == self.wanted.database {
            self.fact_names.push(b"keys");
            self.fact_values.push_written(format_args!("{keys}"));
        }
        Ok(())
    }

    fn open_key(&mut self, form: Form) -> Result<(), Refusal> {
        let name = self.source.text()?;
        let is_wanted = self.database == self.wanted.database && name.starts_with(&self.wanted.prefix);
        let parts = form.parts(&mut self.source)?;
        let expires_ms = std::mem::replace(&mut self.expires_ms, NEVER);
        let record = KeyRecord {
            expires_ms,
            kind: form.kind() as i32,
            ..KeyRecord::default()
        };
        self.open = Some(OpenKey {
            record,
            form,
            parts,
            name: is_wanted.then(|| name.into_owned()),
        });
        Ok(())
    }

    /// Read the parts of a key until it ends or the page is full.
    fn read_on(&mut self, mut key: OpenKey, most_bytes: usize) -> Result<(), Refusal> {
        let columns = &mut self.columns;
        let is_wanted = key.name.is_some();
        let (first, first_score, first_entry) = (columns.values.len(), columns.scores.len(), columns.entry_ids.len());
        while key.parts > 0 && columns.size() < most_bytes {
            key.form
                .read_part(&mut self.source, is_wanted.then_some(&mut *columns))?;
            key.parts -= 1;
        }
        let is_whole = key.parts == 0;
        let trimmed = if is_whole {
            key.form.read_end(&mut self.source)?
        } else {
            -1
        };
        if let Some(name) = &key.name {
            let count = (columns.values.len() - first) as i64;
            columns.keys.push(name);
            columns.records.push(KeyRecord {
                first: first as i64,
                count,
                first_score: first_score as i64,
                first_entry: first_entry as i64,
                entries: (columns.entry_ids.len() - first_entry) as i64,
                is_whole: i32::from(is_whole),
                trimmed,
                ..key.record
            });
            key.record.before += count;
        }
        self.open = (!is_whole).then_some(key);
        Ok(())
    }

    /// The checksum, which is 0 if the server writes none (`rdbchecksum no`).
    fn read_end(&mut self) -> Result<(), Refusal> {
        self.check_so_far();
        let expected = self.source.int64()? as u64;
        if expected != 0 && expected != self.checksum {
            return self.source.refuse("its checksum is not that of what stands in it");
        }
        if !self.source.is_at_end() {
            return self
                .source
                .refuse("something stands behind its end, as in an append-only file");
        }
        self.is_over = true;
        Ok(())
    }

    fn check_so_far(&mut self) {
        if !self.is_over {
            let place = self.source.place();
            self.checksum = crc64::extended(self.checksum, self.source.between(self.checked, place));
            self.checked = place;
        }
    }
}

fn number(digits: &[u8]) -> Option<u32> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

const _: () = assert!(
    Kind::Text as i32 == 0,
    "a record of zeros is of a key that holds a text"
);
