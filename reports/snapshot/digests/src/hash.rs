//! A hash of bytes: 64 bits, the same on every machine. It distinguishes texts, and keeps no secrets.

const SEEDS: [u64; 3] = [0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03, 0x8cb9_2ba7_2f3d_8dd7];

/// Multiply to 128 bits and fold: every bit of both numbers takes part in every bit of the result.
pub fn mixed(left: u64, right: u64) -> u64 {
    let product = u128::from(left ^ SEEDS[0]) * u128::from(right ^ SEEDS[1]);
    (product >> 64) as u64 ^ product as u64 ^ SEEDS[2].wrapping_add(left.rotate_left(32)) ^ right
}

/// The hash of some bytes and of what came before them (`seed`).
pub fn hash(seed: u64, bytes: &[u8]) -> u64 {
    let mut state = mixed(seed, bytes.len() as u64);
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        state = mixed(state, u64::from_le_bytes(word.try_into().expect("a word has 8 bytes")));
    }
    let mut last = [0; 8];
    last[..words.remainder().len()].copy_from_slice(words.remainder());
    mixed(state, u64::from_le_bytes(last))
}
