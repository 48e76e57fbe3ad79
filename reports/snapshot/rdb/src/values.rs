//! The values of keys: every encoding in which Redis and Valkey write the types that BullMQ uses.
//!
//! A value is read part by part (a field, a node of a list, a block of a stream), so that a container of any length
//! fills page after page.

use crate::columns::Columns;
use crate::packed::{integers, Elements, Packing};
use crate::refusal::{Damaged, Refusal};
use crate::source::Source;
use crate::streams;

/// The type of a value, as numbers that the other side of the border knows.
#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    Text = 0,
    List = 1,
    Set = 2,
    SortedSet = 3,
    Hash = 4,
    Stream = 5,
    Module = 6,
}

/// The form of a value in the file.
#[derive(Clone, Copy)]
pub enum Form {
    Text,
    List(Packing),
    SetTable,
    SetOfIntegers,
    SetListpack,
    ScoreTable,
    ScorePacked(Packing),
    HashTable,
    HashPacked(Packing),
    Stream { generation: u8 },
    Module,
}

impl Form {
    /// The form behind a type of `rdb.h`; an error says what the type is, where that is known.
    pub fn of(kind: u8) -> Result<Form, String> {
        Ok(match kind {
            0 => Form::Text,
            2 => Form::SetTable,
            4 => Form::HashTable,
            5 => Form::ScoreTable,
            7 => Form::Module,
            11 => Form::SetOfIntegers,
            12 => Form::ScorePacked(Packing::Ziplist),
            13 => Form::HashPacked(Packing::Ziplist),
            14 => Form::List(Packing::Ziplist),
            15 => Form::Stream { generation: 1 },
            16 => Form::HashPacked(Packing::Listpack),
            17 => Form::ScorePacked(Packing::Listpack),
            18 => Form::List(Packing::Listpack),
            19 => Form::Stream { generation: 2 },
            20 => Form::SetListpack,
            21 => Form::Stream { generation: 3 },
            22..=25 => {
                return Err(format!(
                    "type {kind}, a hash with times to live of single fields, is not read"
                ))
            }
            _ => return Err(format!("type {kind} is not known")),
        })
    }

    pub fn kind(self) -> Kind {
        match self {
            Form::Text => Kind::Text,
            Form::List(_) => Kind::List,
            Form::SetTable | Form::SetOfIntegers | Form::SetListpack => Kind::Set,
            Form::ScoreTable | Form::ScorePacked(_) => Kind::SortedSet,
            Form::HashTable | Form::HashPacked(_) => Kind::Hash,
            Form::Stream { .. } => Kind::Stream,
            Form::Module => Kind::Module,
        }
    }

    /// How many parts follow; read from the file where it is not one.
    pub fn parts(self, source: &mut Source<'_>) -> Result<u64, Refusal> {
        match self {
            Form::List(_) | Form::SetTable | Form::ScoreTable | Form::HashTable | Form::Stream { .. } => {
                source.length()
            }
            _ => Ok(1),
        }
    }

    /// Read one part; into the columns where it is wanted.
    pub fn read_part(self, source: &mut Source<'_>, wanted: Option<&mut Columns>) -> Result<(), Refusal> {
        match self {
            Form::HashTable => {
                let (name, value) = (source.string()?, source.string()?);
                let Some(columns) = wanted else { return Ok(()) };
                source.sound(
                    name.text()
                        .and_then(|name| Ok(columns.push_pair(&name, &value.text()?))),
                )
            }
            Form::ScoreTable => {
                let (member, score) = (source.string()?, source.float64()?);
                let Some(columns) = wanted else { return Ok(()) };
                columns.scores.push(score);
                source.sound(member.text().map(|member| columns.push_member(&member)))
            }
            Form::List(packing) => read_list_node(source, packing, wanted),
            Form::Stream { .. } => streams::read_block(source, wanted),
            Form::Module => read_module(source, wanted),
            _ => {
                let stored = source.string()?;
                let Some(columns) = wanted else { return Ok(()) };
                source.sound(stored.text().and_then(|text| self.unpack(&text, columns)))
            }
        }
    }

    /// Read the data behind the last part. Returns how many entries of a stream were trimmed (-1: unknown).
    pub fn read_end(self, source: &mut Source<'_>) -> Result<i64, Refusal> {
        match self {
            Form::Stream { generation } => streams::read_end(source, generation),
            _ => Ok(-1),
        }
    }

    fn unpack(self, text: &[u8], columns: &mut Columns) -> Result<(), Damaged> {
        match self {
            Form::SetOfIntegers => integers(text)?.into_iter().for_each(|number| {
                columns.names.push(b"");
                columns.values.push_written(format_args!("{number}"));
            }),
            Form::SetListpack => unpack_members(Packing::Listpack, text, columns)?,
            Form::HashPacked(packing) => {
                let mut elements = Elements::of(packing, text)?;
                while let Some(name) = elements.next()? {
                    columns.push_element_pair(name, elements.expected()?);
                }
            }
            Form::ScorePacked(packing) => {
                let mut elements = Elements::of(packing, text)?;
                while let Some(member) = elements.next()? {
                    columns.push_element(member);
                    columns.scores.push(elements.expected()?.score()?);
                }
            }
            _ => columns.push_member(text),
        }
        Ok(())
    }
}

fn unpack_members(packing: Packing, text: &[u8], columns: &mut Columns) -> Result<(), Damaged> {
    let mut elements = Elements::of(packing, text)?;
    while let Some(member) = elements.next()? {
        columns.push_element(member);
    }
    Ok(())
}

const NODE_OF_ONE: u64 = 1;
const NODE_OF_MANY: u64 = 2;

/// A node of a list: many elements in one string, or since Redis 7 one that is too long for that.
fn read_list_node(source: &mut Source<'_>, packing: Packing, wanted: Option<&mut Columns>) -> Result<(), Refusal> {
    let holds = match packing {
        Packing::Listpack => source.length()?,
        Packing::Ziplist => NODE_OF_MANY,
    };
    let stored = source.string()?;
    let Some(columns) = wanted else { return Ok(()) };
    let text = source.sound(stored.text())?;
    match holds {
        NODE_OF_ONE => Ok(columns.push_member(&text)),
        NODE_OF_MANY => source.sound(unpack_members(packing, &text, columns)),
        other => source.refuse(format!("a node of a list of kind {other} is not known")),
    }
}

const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const LETTERS_OF_TYPE: u32 = 9;

/// A value of a module: only the name of its type is read.
fn read_module(source: &mut Source<'_>, wanted: Option<&mut Columns>) -> Result<(), Refusal> {
    let id = source.length()?;
    skip_of_module(source)?;
    if let Some(columns) = wanted {
        let letter = |place: u32| LETTERS[(id >> (10 + 6 * (LETTERS_OF_TYPE - 1 - place)) & 63) as usize];
        columns.push_member(&(0..LETTERS_OF_TYPE).map(letter).collect::<Vec<u8>>());
    }
    Ok(())
}

/// Skip the data of a module, each item of which names its type.
pub fn skip_of_module(source: &mut Source<'_>) -> Result<(), Refusal> {
    loop {
        match source.length()? {
            0 => return Ok(()),
            1 | 2 => drop(source.length()?),
            3 => drop(source.take(4)?),
            4 => drop(source.take(8)?),
            5 => drop(source.string()?),
            other => return source.refuse(format!("item {other} of a module is not known")),
        }
    }
}
