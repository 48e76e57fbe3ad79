//! Streams: blocks of entries, each a listpack (`t_stream.c`), and behind them what consumer groups know.

use crate::columns::Columns;
use crate::packed::{Element, Elements, Packing};
use crate::refusal::{Damaged, Refusal};
use crate::source::Source;

const IS_DELETED: i64 = 1;
const HAS_FIELDS_OF_BLOCK: i64 = 2;
const BYTES_OF_ID: usize = 16;

struct EntryId {
    ms: u64,
    sequence: u64,
}

/// Read a block of entries; into the columns where it is wanted.
pub fn read_block(source: &mut Source<'_>, wanted: Option<&mut Columns>) -> Result<(), Refusal> {
    let (id, block) = (source.string()?, source.string()?);
    let Some(columns) = wanted else { return Ok(()) };
    source.sound(
        id.text()
            .and_then(|id| unpack(&first_id(&id)?, &block.text()?, columns)),
    )
}

fn first_id(text: &[u8]) -> Result<EntryId, Damaged> {
    let id: [u8; BYTES_OF_ID] = text
        .try_into()
        .map_err(|_| Damaged("the id of a block of a stream is damaged"))?;
    let both = u128::from_be_bytes(id);
    Ok(EntryId {
        ms: (both >> 64) as u64,
        sequence: both as u64,
    })
}

/// The block says how many entries it has and the names of the fields of the first; then come its entries.
fn unpack(first: &EntryId, block: &[u8], columns: &mut Columns) -> Result<(), Damaged> {
    let mut elements = Elements::of(Packing::Listpack, block)?;
    elements.expected()?; // how many entries there are
    elements.expected()?; // how many were deleted and still have their place
    let count = elements.expected()?.integer()?;
    let fields = (0..count).map(|_| elements.expected()).collect::<Result<Vec<_>, _>>()?;
    elements.expected()?; // the end of the head
    while let Some(flags) = elements.next()? {
        unpack_entry(first, flags.integer()?, &fields, &mut elements, columns)?;
    }
    Ok(())
}

fn unpack_entry(
    first: &EntryId,
    flags: i64,
    fields: &[Element<'_>],
    elements: &mut Elements<'_>,
    columns: &mut Columns,
) -> Result<(), Damaged> {
    let ms = first.ms.wrapping_add_signed(elements.expected()?.integer()?);
    let sequence = first.sequence.wrapping_add_signed(elements.expected()?.integer()?);
    let own_fields = flags & HAS_FIELDS_OF_BLOCK == 0;
    let count = if own_fields {
        elements.expected()?.integer()?
    } else {
        fields.len() as i64
    };
    if count < 0 {
        return Err(Damaged("an entry of a stream is damaged"));
    }
    let is_there = flags & IS_DELETED == 0;
    for place in 0..count {
        let name = if own_fields {
            elements.expected()?
        } else {
            fields[place as usize]
        };
        let value = elements.expected()?;
        if is_there {
            columns.push_element_pair(name, value);
        }
    }
    elements.expected()?; // how many elements the entry has
    if is_there {
        columns.entry_ids.push_written(format_args!("{ms}-{sequence}"));
        columns.entry_sizes.push(count);
    }
    Ok(())
}

/// The data behind the entries: counts, ids, and consumer groups.
///
/// Returns how many entries were trimmed: those that were added and are gone, if none was deleted one by one. -1: the
/// file does not say it.
pub fn read_end(source: &mut Source<'_>, generation: u8) -> Result<i64, Refusal> {
    let length = source.length()?;
    source.length()?; // the last id
    source.length()?;
    let mut trimmed = -1;
    if generation >= 2 {
        source.length()?; // the first id
        source.length()?;
        let last_deleted = (source.length()?, source.length()?);
        let added = source.length()?;
        if last_deleted == (0, 0) {
            trimmed = added as i64 - length as i64;
        }
    }
    for _ in 0..source.length()? {
        skip_group(source, generation)?;
    }
    Ok(trimmed)
}

fn skip_group(source: &mut Source<'_>, generation: u8) -> Result<(), Refusal> {
    source.string()?;
    for _ in 0..if generation >= 2 { 3 } else { 2 } {
        source.length()?;
    }
    for _ in 0..source.length()? {
        source.take(BYTES_OF_ID + 8)?; // the entry, and when it was delivered
        source.length()?;
    }
    for _ in 0..source.length()? {
        source.string()?;
        source.take(if generation >= 3 { 16 } else { 8 })?; // when the consumer was seen, and was active
        for _ in 0..source.length()? {
            source.take(BYTES_OF_ID)?;
        }
    }
    Ok(())
}
