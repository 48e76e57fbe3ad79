//! The file, byte by byte: numbers, lengths and strings as Redis' `rdb.c` writes them.

use crate::lzf;
use crate::refusal::{Damaged, Refusal};
use std::borrow::Cow;

/// A string as it is in the file; it is not unpacked before its text is needed.
pub enum Stored<'a> {
    Plain(&'a [u8]),
    Integer(i64),
    Compressed { packed: &'a [u8], size: usize },
}

impl<'a> Stored<'a> {
    pub fn text(&self) -> Result<Cow<'a, [u8]>, Damaged> {
        match self {
            Stored::Plain(text) => Ok(Cow::Borrowed(text)),
            Stored::Integer(number) => Ok(Cow::Owned(number.to_string().into_bytes())),
            Stored::Compressed { packed, size } => Ok(Cow::Owned(lzf::unpacked(packed, *size)?)),
        }
    }
}

enum Length {
    Plain(u64),
    Encoding(u8),
}

/// A place in the file, which only moves forward.
#[derive(Clone)]
pub struct Source<'a> {
    data: &'a [u8],
    place: usize,
}

impl<'a> Source<'a> {
    pub fn new(data: &'a [u8]) -> Self {
        Source { data, place: 0 }
    }

    pub fn place(&self) -> usize {
        self.place
    }

    pub fn is_at_end(&self) -> bool {
        self.place == self.data.len()
    }

    pub fn between(&self, start: usize, end: usize) -> &'a [u8] {
        &self.data[start..end]
    }

    pub fn refuse<T>(&self, what: impl Into<String>) -> Result<T, Refusal> {
        Err(Refusal {
            what: what.into(),
            place: self.place,
        })
    }

    /// A value just taken out of the file, or a refusal at its place if it is damaged.
    pub fn sound<T>(&self, found: Result<T, Damaged>) -> Result<T, Refusal> {
        found.or_else(|damaged| self.refuse(damaged.0))
    }

    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Refusal> {
        match self
            .place
            .checked_add(count)
            .and_then(|end| self.data.get(self.place..end))
        {
            Some(taken) => {
                self.place += count;
                Ok(taken)
            }
            None => self.refuse("it is cut off"),
        }
    }

    fn array<const SIZE: usize>(&mut self) -> Result<[u8; SIZE], Refusal> {
        let mut bytes = [0; SIZE];
        bytes.copy_from_slice(self.take(SIZE)?);
        Ok(bytes)
    }

    pub fn byte(&mut self) -> Result<u8, Refusal> {
        Ok(self.array::<1>()?[0])
    }

    pub fn int32(&mut self) -> Result<i32, Refusal> {
        Ok(i32::from_le_bytes(self.array()?))
    }

    pub fn int64(&mut self) -> Result<i64, Refusal> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    pub fn float64(&mut self) -> Result<f64, Refusal> {
        Ok(f64::from_le_bytes(self.array()?))
    }

    /// A length; one that announces an encoding is refused.
    pub fn length(&mut self) -> Result<u64, Refusal> {
        match self.any_length()? {
            Length::Plain(length) => Ok(length),
            Length::Encoding(_) => self.refuse("a length is expected here"),
        }
    }

    fn any_length(&mut self) -> Result<Length, Refusal> {
        let first = self.byte()?;
        Ok(match first >> 6 {
            0 => Length::Plain(u64::from(first)),
            1 => Length::Plain(u64::from(first & 0x3f) << 8 | u64::from(self.byte()?)),
            2 if first == 0x80 => Length::Plain(u64::from(u32::from_be_bytes(self.array()?))),
            2 if first == 0x81 => Length::Plain(u64::from_be_bytes(self.array()?)),
            2 => return self.refuse("a length is expected here"),
            _ => Length::Encoding(first & 0x3f),
        })
    }

    pub fn string(&mut self) -> Result<Stored<'a>, Refusal> {
        match self.any_length()? {
            Length::Plain(length) => Ok(Stored::Plain(self.take(length as usize)?)),
            Length::Encoding(0) => Ok(Stored::Integer(i64::from(i8::from_le_bytes(self.array()?)))),
            Length::Encoding(1) => Ok(Stored::Integer(i64::from(i16::from_le_bytes(self.array()?)))),
            Length::Encoding(2) => Ok(Stored::Integer(i64::from(self.int32()?))),
            Length::Encoding(3) => {
                let (packed, size) = (self.length()? as usize, self.length()? as usize);
                Ok(Stored::Compressed {
                    packed: self.take(packed)?,
                    size,
                })
            }
            Length::Encoding(other) => self.refuse(format!("string encoding {other} is not known")),
        }
    }

    pub fn text(&mut self) -> Result<Cow<'a, [u8]>, Refusal> {
        let stored = self.string()?;
        self.sound(stored.text())
    }
}
