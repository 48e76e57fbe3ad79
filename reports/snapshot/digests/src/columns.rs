//! Arrow's columns of texts, and maps of texts to texts, as they lie in memory.

use std::slice;

/// A column of texts: offsets into its bytes, one more than there are texts.
#[repr(C)]
pub struct TextsView {
    offsets: *const i32,
    bytes: *const u8,
}

/// A column of maps: where the pairs of each row start, and all names and values.
#[repr(C)]
pub struct MapsView {
    offsets: *const i32,
    names: TextsView,
    values: TextsView,
}

#[derive(Clone, Copy)]
pub struct Texts<'a> {
    offsets: &'a [i32],
    bytes: *const u8,
}

impl<'a> Texts<'a> {
    /// # Safety
    /// The view must be of a column of at least `count` texts, which stays where it is.
    pub unsafe fn of(view: &TextsView, count: usize) -> Self {
        Texts {
            offsets: unsafe { slice::from_raw_parts(view.offsets, count + 1) },
            bytes: view.bytes,
        }
    }

    pub fn at(&self, place: usize) -> &'a [u8] {
        let (start, end) = (self.offsets[place] as usize, self.offsets[place + 1] as usize);
        if start == end {
            return &[]; // a column of nothing but empty texts may have no bytes at all
        }
        // As `of` was promised.
        unsafe { slice::from_raw_parts(self.bytes.add(start), end - start) }
    }
}

pub struct Maps<'a> {
    offsets: &'a [i32],
    names: Texts<'a>,
    values: Texts<'a>,
}

impl<'a> Maps<'a> {
    /// # Safety
    /// As for `Texts::of`.
    pub unsafe fn of(view: &MapsView, count: usize) -> Self {
        let offsets = unsafe { slice::from_raw_parts(view.offsets, count + 1) };
        let pairs = offsets[count] as usize;
        let (names, values) = unsafe { (Texts::of(&view.names, pairs), Texts::of(&view.values, pairs)) };
        Maps { offsets, names, values }
    }

    pub fn pairs(&self, row: usize) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + '_ {
        (self.offsets[row]..self.offsets[row + 1]).map(|place| (self.names.at(place as usize), self.values.at(place as usize)))
    }
}

/// Whether a text holds another one, which is not empty.
pub fn mentions(text: &[u8], wanted: &[u8]) -> bool {
    let Some(last) = text.len().checked_sub(wanted.len()) else {
        return false;
    };
    (0..=last).any(|place| text[place] == wanted[0] && &text[place..place + wanted.len()] == wanted)
}

/// A whole number with an allowed number of digits, and nothing else; -1 for every other text.
pub fn whole_number(text: &[u8], digits: std::ops::RangeInclusive<usize>) -> i64 {
    if !digits.contains(&text.len()) || !text.iter().all(u8::is_ascii_digit) {
        return -1;
    }
    text.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0'))
}
