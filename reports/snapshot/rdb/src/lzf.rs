//! Strings that Redis has compressed (`rdbcompression`).

use crate::refusal::Damaged;

const DAMAGED: Damaged = Damaged("a compressed string is damaged");
const LONGEST_LITERAL: u8 = 32;
const MOST_FROM_SO_MUCH: usize = 264;

/// The text of a packed string, which must have just that size.
pub fn unpacked(packed: &[u8], size: usize) -> Result<Vec<u8>, Damaged> {
    // No three bytes give more than 264: no memory is allocated for a larger size.
    if size / MOST_FROM_SO_MUCH > packed.len() {
        return Err(DAMAGED);
    }
    let mut text = Vec::with_capacity(size);
    let mut rest = packed;
    while let Some((&control, after)) = rest.split_first() {
        rest = if control < LONGEST_LITERAL {
            let (literal, after) = after.split_at_checked(usize::from(control) + 1).ok_or(DAMAGED)?;
            text.extend_from_slice(literal);
            after
        } else {
            repeat(&mut text, control, after)?
        };
    }
    if text.len() == size {
        Ok(text)
    } else {
        Err(DAMAGED)
    }
}

/// Append what stands further back in the text once more; the two may overlap.
fn repeat<'a>(text: &mut Vec<u8>, control: u8, after: &'a [u8]) -> Result<&'a [u8], Damaged> {
    let mut length = usize::from(control >> 5) + 2;
    let mut rest = after;
    if control >> 5 == 7 {
        let (&more, left) = rest.split_first().ok_or(DAMAGED)?;
        length += usize::from(more);
        rest = left;
    }
    let (&low, rest) = rest.split_first().ok_or(DAMAGED)?;
    let distance = (usize::from(control & 0x1f) << 8 | usize::from(low)) + 1;
    let mut from = text.len().checked_sub(distance).ok_or(DAMAGED)?;
    while length > 0 {
        let at_once = length.min(text.len() - from);
        text.extend_from_within(from..from + at_once);
        from += at_once;
        length -= at_once;
    }
    Ok(rest)
}
