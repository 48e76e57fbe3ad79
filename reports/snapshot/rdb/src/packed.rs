//! Small containers in one string: listpacks, ziplists (before Redis 7) and sets of integers.

use crate::refusal::Damaged;

const DAMAGED: Damaged = Damaged("a packed value is damaged");
const END: u8 = 0xff;

/// One element of a packed container.
#[derive(Clone, Copy)]
pub enum Element<'a> {
    Text(&'a [u8]),
    Integer(i64),
}

impl Element<'_> {
    pub fn integer(&self) -> Result<i64, Damaged> {
        match self {
            Element::Integer(number) => Ok(*number),
            Element::Text(text) => parsed(text),
        }
    }

    pub fn score(&self) -> Result<f64, Damaged> {
        match self {
            Element::Integer(number) => Ok(*number as f64),
            Element::Text(text) => parsed(text),
        }
    }
}

fn parsed<T: std::str::FromStr>(text: &[u8]) -> Result<T, Damaged> {
    std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or(DAMAGED)
}

/// How a container is packed.
#[derive(Clone, Copy)]
pub enum Packing {
    Listpack,
    Ziplist,
}

/// The elements of a packed container, one after the other.
pub struct Elements<'a> {
    packing: Packing,
    rest: &'a [u8],
}

impl<'a> Elements<'a> {
    pub fn of(packing: Packing, packed: &'a [u8]) -> Result<Self, Damaged> {
        let mut elements = Elements { packing, rest: packed };
        let size = u32::from_le_bytes(elements.array()?);
        elements.take(match packing {
            Packing::Listpack => 2, // how many elements there are, which may be unknown
            Packing::Ziplist => 6,  // where the last one is, and the same
        })?;
        if size as usize == packed.len() {
            Ok(elements)
        } else {
            Err(DAMAGED)
        }
    }

    /// The next element; none behind the last.
    pub fn next(&mut self) -> Result<Option<Element<'a>>, Damaged> {
        if *self.rest.first().ok_or(DAMAGED)? == END {
            return if self.rest.len() == 1 { Ok(None) } else { Err(DAMAGED) };
        }
        match self.packing {
            Packing::Listpack => self.next_in_listpack().map(Some),
            Packing::Ziplist => self.next_in_ziplist().map(Some),
        }
    }

    /// The next element, which must be there.
    pub fn expected(&mut self) -> Result<Element<'a>, Damaged> {
        self.next()?.ok_or(DAMAGED)
    }

    fn next_in_listpack(&mut self) -> Result<Element<'a>, Damaged> {
        let before = self.rest.len();
        let first = self.byte()?;
        let element = match first {
            0x00..=0x7f => Element::Integer(i64::from(first)),
            0x80..=0xbf => Element::Text(self.take(usize::from(first & 0x3f))?),
            0xc0..=0xdf => {
                let number = i64::from(first & 0x1f) << 8 | i64::from(self.byte()?);
                Element::Integer(if number < 1 << 12 { number } else { number - (1 << 13) })
            }
            0xe0..=0xef => {
                let size = usize::from(first & 0x0f) << 8 | usize::from(self.byte()?);
                Element::Text(self.take(size)?)
            }
            0xf0 => {
                let size = u32::from_le_bytes(self.array()?);
                Element::Text(self.take(size as usize)?)
            }
            0xf1 => self.int16()?,
            0xf2 => self.int24()?,
            0xf3 => self.int32()?,
            0xf4 => self.int64()?,
            _ => return Err(DAMAGED),
        };
        self.take(size_of_back_length(before - self.rest.len()))?;
        Ok(element)
    }

    fn next_in_ziplist(&mut self) -> Result<Element<'a>, Damaged> {
        if self.byte()? == 0xfe {
            self.take(4)?; // the length of the element before, where it is long
        }
        let first = self.byte()?;
        match first {
            0x00..=0x3f => Ok(Element::Text(self.take(usize::from(first))?)),
            0x40..=0x7f => {
                let size = usize::from(first & 0x3f) << 8 | usize::from(self.byte()?);
                Ok(Element::Text(self.take(size)?))
            }
            0x80 => {
                let size = u32::from_be_bytes(self.array()?);
                Ok(Element::Text(self.take(size as usize)?))
            }
            0xc0 => self.int16(),
            0xd0 => self.int32(),
            0xe0 => self.int64(),
            0xf0 => self.int24(),
            0xf1..=0xfd => Ok(Element::Integer(i64::from(first) - 0xf1)),
            0xfe => Ok(Element::Integer(i64::from(i8::from_le_bytes(self.array()?)))),
            _ => Err(DAMAGED),
        }
    }

    fn int16(&mut self) -> Result<Element<'a>, Damaged> {
        Ok(Element::Integer(i64::from(i16::from_le_bytes(self.array()?))))
    }

    fn int24(&mut self) -> Result<Element<'a>, Damaged> {
        let [low, middle, high] = self.array()?;
        Ok(Element::Integer(i64::from(
            i32::from_le_bytes([0, low, middle, high]) >> 8,
        )))
    }

    fn int32(&mut self) -> Result<Element<'a>, Damaged> {
        Ok(Element::Integer(i64::from(i32::from_le_bytes(self.array()?))))
    }

    fn int64(&mut self) -> Result<Element<'a>, Damaged> {
        Ok(Element::Integer(i64::from_le_bytes(self.array()?)))
    }

    fn byte(&mut self) -> Result<u8, Damaged> {
        Ok(self.array::<1>()?[0])
    }

    fn array<const SIZE: usize>(&mut self) -> Result<[u8; SIZE], Damaged> {
        let mut bytes = [0; SIZE];
        bytes.copy_from_slice(self.take(SIZE)?);
        Ok(bytes)
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Damaged> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(DAMAGED)?;
        self.rest = rest;
        Ok(taken)
    }
}

/// Behind each element of a listpack stands its length once more, seven bits a byte.
fn size_of_back_length(size: usize) -> usize {
    match size {
        0..=0x7f => 1,
        0x80..=0x3fff => 2,
        0x4000..=0x1f_ffff => 3,
        0x20_0000..=0xfff_ffff => 4,
        _ => 5,
    }
}

/// The members of a set of integers, which are of 2, 4 or 8 bytes.
pub fn integers(packed: &[u8]) -> Result<Vec<i64>, Damaged> {
    let (head, body) = packed.split_at_checked(8).ok_or(DAMAGED)?;
    let width = usize::from(head[0]);
    let count = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
    if ![2, 4, 8].contains(&width) || head[1..4] != [0; 3] || body.len() != width * count {
        return Err(DAMAGED);
    }
    Ok(body.chunks_exact(width).map(signed).collect())
}

fn signed(bytes: &[u8]) -> i64 {
    let negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
    let mut wide = if negative { [0xff; 8] } else { [0; 8] };
    wide[..bytes.len()].copy_from_slice(bytes);
    i64::from_le_bytes(wide)
}
