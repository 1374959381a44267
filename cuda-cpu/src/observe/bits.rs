//! A bit set that marks the written bytes of a block's own memory.

use crate::memory::written::words;

/// A bit set. Bits beyond the end are clear and cannot be set.
#[derive(Debug, Default, Clone)]
pub(crate) struct Bits {
    words: Vec<u64>,
    set: u64,
}

impl Bits {
    /// Returns `None` if the host has no memory.
    pub(crate) fn new(bits: u64) -> Option<Self> {
        let mut new = Self::default();
        new.grow(bits).then_some(new)
    }

    /// Grows to this number of bits. Returns false if the host has no memory.
    #[must_use]
    pub(crate) fn grow(&mut self, bits: u64) -> bool {
        let words = bits.div_ceil(64) as usize;
        let more = words.saturating_sub(self.words.len());
        if self.words.try_reserve_exact(more).is_err() {
            return false;
        }
        self.words.resize(words.max(self.words.len()), 0);
        true
    }

    /// Returns the host memory for this number of bits, in bytes.
    pub(crate) fn needed(bits: u64) -> u64 {
        bits.div_ceil(64) * 8
    }

    /// Returns the host memory that the set takes, in bytes.
    pub(crate) fn taken(&self) -> u64 {
        self.words.len() as u64 * 8
    }

    pub(crate) fn clear_all(&mut self) {
        if std::mem::take(&mut self.set) != 0 {
            self.words.fill(0);
        }
    }

    /// Returns the number of set bits.
    pub(crate) fn count(&self) -> u64 {
        self.set
    }

    pub(crate) fn set(&mut self, from: u64, bits: u64) {
        for (word, mask) in words(from, bits) {
            let Some(word) = self.words.get_mut(word) else { return };
            self.set += u64::from((mask & !*word).count_ones());
            *word |= mask;
        }
    }

    pub(crate) fn clear(&mut self, from: u64, bits: u64) {
        for (word, mask) in words(from, bits) {
            let Some(word) = self.words.get_mut(word) else { return };
            self.set -= u64::from((mask & *word).count_ones());
            *word &= !mask;
        }
    }

    /// Returns the first clear bit in the range.
    pub(crate) fn first_clear(&self, from: u64, bits: u64) -> Option<u64> {
        words(from, bits).find_map(|(index, mask)| {
            let clear = mask & !self.words.get(index)?;
            (clear != 0).then(|| index as u64 * 64 + u64::from(clear.trailing_zeros()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_and_clears_each_bit() {
        let mut bits = Bits::new(100).unwrap();
        bits.set(10, 80);
        bits.set(20, 10);
        bits.clear(63, 2);
        assert_eq!(bits.count(), 78);
        assert_eq!(bits.first_clear(10, 53), None);
        assert_eq!(bits.first_clear(10, 80), Some(63));
        assert_eq!(bits.first_clear(65, 30), Some(90));
        bits.set(1000, 4);
        assert!(bits.grow(2000));
        assert_eq!(bits.first_clear(1000, 4), Some(1000));
        assert_eq!(bits.first_clear(10, 50), None);
    }
}
