//! The checksum at the end of the file: CRC-64 of Jones, as Redis' `crc64.c` has it.

const POLYNOMIAL: u64 = 0x95ac_9329_ac4b_c9b5; // its bits reversed
const AT_ONCE: usize = 8;

static TABLES: [[u64; 256]; AT_ONCE] = tables();

const fn tables() -> [[u64; 256]; AT_ONCE] {
    let mut tables = [[0; 256]; AT_ONCE];
    let mut byte = 0;
    while byte < 256 {
        let mut sum = byte as u64;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum & 1 == 1 { sum >> 1 ^ POLYNOMIAL } else { sum >> 1 };
            bit += 1;
        }
        tables[0][byte] = sum;
        byte += 1;
    }
    let mut table = 1;
    while table < AT_ONCE {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[table - 1][byte];
            tables[table][byte] = tables[0][(before & 0xff) as usize] ^ before >> 8;
            byte += 1;
        }
        table += 1;
    }
    tables
}

/// The checksum of what came before and of these bytes.
pub fn extended(before: u64, bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(AT_ONCE);
    let rest = words.remainder();
    let sum = words.fold(before, |sum, word| {
        let mut mixed = sum.to_le_bytes();
        mixed.iter_mut().zip(word).for_each(|(mixed, byte)| *mixed ^= byte);
        (0..AT_ONCE).fold(0, |found, place| {
            found ^ TABLES[AT_ONCE - 1 - place][usize::from(mixed[place])]
        })
    });
    rest.iter()
        .fold(sum, |sum, byte| TABLES[0][usize::from(sum as u8 ^ byte)] ^ sum >> 8)
}
