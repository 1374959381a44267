//! Inputs of the kernels.

/// Floats between 0 and 4 with few significant bits.
pub fn floats(count: usize) -> Vec<f32> {
    (0..count).map(|i| (i * 7919 % 61) as f32 / 16.0 + 0.125).collect()
}

/// The same sequence from element `skipped` on.
pub fn floats_from(skipped: usize, count: usize) -> Vec<f32> {
    floats(skipped + count).split_off(skipped)
}

/// Bytes with about equal frequencies.
pub fn bytes(count: u32) -> Vec<u8> {
    (0..count).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}
