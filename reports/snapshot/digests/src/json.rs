//! Strict JSON: whether a text is some, and a hash of an object that does not depend on the order of its names.
//!
//! Only a part of what Python accepts is accepted here. Odd JSON (an escape in a name, a name that comes twice,
//! an exponent, a long number, deep nesting) is refused: the caller then takes the text as it is.

use crate::hash::{hash, mixed};

const DEEPEST: usize = 64;
const LONGEST_NUMBER: usize = 15;

const TEXT: u64 = 1;
const PLAIN: u64 = 2;
const ARRAY: u64 = 3;
const OBJECT: u64 = 4;

struct Parser<'a> {
    text: &'a [u8],
    place: usize,
}

/// A hash of the value that a text encodes; None if the text is refused.
pub fn value_hash(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?;
    let mut parser = Parser { text, place: 0 };
    let found = parser.value(0)?;
    parser.skip_blanks();
    (parser.place == text.len()).then_some(found)
}

/// How many texts an array holds; None if it is not an array of texts alone.
pub fn texts_in_array(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?;
    let mut parser = Parser { text, place: 0 };
    let mut count = 0;
    parser.skip_blanks();
    parser.expect(b'[')?;
    if !parser.is_closed(b']') {
        loop {
            parser.skip_blanks();
            parser.string()?;
            count += 1;
            if !parser.goes_on(b']')? {
                break;
            }
        }
    }
    parser.skip_blanks();
    (parser.place == text.len()).then_some(count)
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.place).copied()
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.place += 1)
    }

    fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.place += 1;
        }
    }

    fn value(&mut self, depth: usize) -> Option<u64> {
        self.skip_blanks();
        if depth > DEEPEST {
            return None;
        }
        match self.peek()? {
            b'"' => Some(hash(TEXT, self.string()?)),
            b'{' => self.object(depth),
            b'[' => self.array(depth),
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'n' => self.word(b"null"),
            _ => self.number(),
        }
    }

    fn word(&mut self, word: &[u8]) -> Option<u64> {
        let found = self.text.get(self.place..self.place + word.len())?;
        self.place += word.len();
        (found == word).then(|| hash(PLAIN, word))
    }

    /// The text between the quotation marks, as it is written.
    fn string(&mut self) -> Option<&'a [u8]> {
        self.expect(b'"')?;
        let start = self.place;
        loop {
            match self.peek()? {
                b'"' => break,
                b'\\' => self.escape()?,
                byte if byte < 0x20 => return None,
                _ => self.place += 1,
            }
        }
        self.place += 1;
        Some(&self.text[start..self.place - 1])
    }

    fn escape(&mut self) -> Option<()> {
        let kind = *self.text.get(self.place + 1)?;
        let digits = match kind {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => 0,
            // Halves of surrogate pairs are read differently by different parsers.
            b'u' => 4,
            _ => return None,
        };
        let code = self.text.get(self.place + 2..self.place + 2 + digits)?;
        let is_half = digits > 0 && matches!(code[0], b'd' | b'D') && code[1] > b'7';
        self.place += 2 + digits;
        (!is_half && code.iter().all(u8::is_ascii_hexdigit)).then_some(())
    }

    fn number(&mut self) -> Option<u64> {
        let start = self.place;
        let _ = self.expect(b'-');
        let whole = self.digits()?;
        if whole.len() > 1 && whole[0] == b'0' {
            return None;
        }
        if self.expect(b'.').is_some() {
            self.digits()?;
        }
        let found = &self.text[start..self.place];
        let is_odd = matches!(self.peek(), Some(b'e' | b'E')) || found.len() > LONGEST_NUMBER;
        (!is_odd).then(|| hash(PLAIN, found))
    }

    fn digits(&mut self) -> Option<&'a [u8]> {
        let start = self.place;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.place += 1;
        }
        (self.place > start).then(|| &self.text[start..self.place])
    }

    fn is_closed(&mut self, end: u8) -> bool {
        self.skip_blanks();
        self.expect(end).is_some()
    }

    /// Whether another element follows; None where neither that nor the end does.
    fn goes_on(&mut self, end: u8) -> Option<bool> {
        self.skip_blanks();
        if self.expect(b',').is_some() {
            return Some(true);
        }
        self.expect(end).map(|()| false)
    }

    fn array(&mut self, depth: usize) -> Option<u64> {
        self.place += 1;
        let mut found = ARRAY;
        if !self.is_closed(b']') {
            loop {
                found = mixed(found, self.value(depth + 1)?);
                if !self.goes_on(b']')? {
                    break;
                }
            }
        }
        Some(found)
    }

    fn object(&mut self, depth: usize) -> Option<u64> {
        self.place += 1;
        let mut names = Vec::new();
        let mut found: u64 = 0;
        if !self.is_closed(b'}') {
            loop {
                self.skip_blanks();
                let name = self.string()?;
                if name.contains(&b'\\') {
                    return None;
                }
                self.skip_blanks();
                self.expect(b':')?;
                let named = hash(OBJECT, name);
                found = found.wrapping_add(mixed(named, self.value(depth + 1)?));
                names.push(named);
                if !self.goes_on(b'}')? {
                    break;
                }
            }
        }
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        (names.len() == count).then(|| mixed(found, OBJECT + count as u64))
    }
}
