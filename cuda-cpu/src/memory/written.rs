//! Records which bytes of an allocation were written, with a bit for each byte.
//!
//! Bits are only set, except by a copy, which gives the bits of its source to its target. Several threads may set bits
//! of the same word. A reader of bytes that are being written races in the program, so either answer is correct.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The number of bytes of an overlapping copy whose bits are moved in one step.
const PIECE: u64 = 64 << 10;

/// The bits of an allocation, one for each byte.
#[derive(Debug)]
pub(crate) struct Written {
    words: Vec<AtomicU64>,
    bytes: u64,
    /// Whether all bytes were written in one access and none has become unwritten since, so that no bits have to be
    /// read.
    all: AtomicBool,
}

/// Iterates over the words with the bits from `from` on, each with the mask of those bits.
pub(crate) fn words(from: u64, bits: u64) -> impl Iterator<Item = (usize, u64)> {
    let end = from.saturating_add(bits);
    let mut at = from;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let (word, low) = (at / 64, at % 64);
        let count = (end - at).min(64 - low);
        at += count;
        Some((word as usize, (u64::MAX >> (64 - count)) << low))
    })
}

impl Written {
    /// Creates a record of `bytes` unwritten bytes. Returns `None` if the host is out of memory.
    pub(super) fn new(bytes: u64) -> Option<Self> {
        let count = usize::try_from(bytes.div_ceil(64)).ok()?;
        let mut words = Vec::new();
        words.try_reserve_exact(count).ok()?;
        words.resize_with(count, AtomicU64::default);
        Some(Self { words, bytes, all: AtomicBool::new(false) })
    }

    /// Marks bytes as written. Bytes outside the allocation are ignored.
    pub(crate) fn mark(&self, from: u64, bytes: u64) {
        if self.all.load(Ordering::Relaxed) {
            return;
        }
        for (word, mask) in words(from, bytes) {
            let Some(word) = self.words.get(word) else { return };
            // The bits are usually set already. The check avoids a write to a shared cache line.
            if word.load(Ordering::Relaxed) & mask != mask {
                word.fetch_or(mask, Ordering::Relaxed);
            }
        }
        if from == 0 && bytes >= self.bytes {
            self.all.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the first of these bytes that was never written.
    pub(crate) fn first_missing(&self, from: u64, bytes: u64) -> Option<u64> {
        if self.all.load(Ordering::Relaxed) {
            return None;
        }
        words(from, bytes).find_map(|(index, mask)| {
            let missing = mask & !self.words.get(index)?.load(Ordering::Relaxed);
            let bit = u64::from(missing.trailing_zeros());
            (missing != 0).then_some(index as u64 * 64 + bit)
        })
    }

    /// Copies the bits of bytes that were copied from `source`. Source and target may be the same record and may
    /// overlap.
    pub(super) fn copy(&self, to: u64, source: &Self, from: u64, bytes: u64) {
        self.all.store(false, Ordering::Relaxed);
        let backwards = from < to;
        let mut done = 0;
        while done < bytes {
            let piece = (bytes - done).min(PIECE);
            let at = if backwards { bytes - done - piece } else { done };
            let bits: Vec<u64> = source.chunks(from + at, piece).collect();
            for (index, bits) in bits.into_iter().enumerate() {
                let at = at + index as u64 * 64;
                self.set(to + at, (bytes - at).min(64), bits);
            }
            done += piece;
        }
    }

    /// Iterates over the bits from `from` on, 64 at a time. Bits beyond the end are undefined.
    fn chunks(&self, from: u64, bits: u64) -> impl Iterator<Item = u64> {
        let word =
            |at: u64| self.words.get(at as usize).map_or(0, |word| word.load(Ordering::Relaxed));
        (0..bits.div_ceil(64)).map(move |i| {
            let (at, low) = ((from + i * 64) / 64, from % 64);
            let high = if low == 0 { 0 } else { word(at + 1) << (64 - low) };
            word(at) >> low | high
        })
    }

    /// Sets `count` bits, at most 64, to those of `bits`.
    fn set(&self, from: u64, count: u64, bits: u64) {
        let low = from % 64;
        for (i, (word, mask)) in words(from, count).enumerate() {
            let Some(word) = self.words.get(word) else { return };
            let value = if i == 0 { bits << low } else { bits >> (64 - low) };
            let old = word.load(Ordering::Relaxed);
            // Set and clear separately, to keep the other bits of the word.
            word.fetch_or(value & mask & !old, Ordering::Relaxed);
            word.fetch_and(value | !mask, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn pattern(written: &Written, bytes: u64) -> Vec<bool> {
        (0..bytes).map(|at| written.first_missing(at, 1).is_none()).collect()
    }

    #[test]
    fn first_missing_is_exact_to_a_byte() {
        let written = Written::new(300).unwrap();
        written.mark(60, 10);
        written.mark(128, 64);
        written.mark(290, 100);
        let expected =
            |at| (60..70).contains(&at) || (128..192).contains(&at) || (290..300).contains(&at);
        assert_eq!(pattern(&written, 300), (0..300).map(expected).collect::<Vec<_>>());
        assert_eq!(written.first_missing(60, 20), Some(70));
        assert_eq!(written.first_missing(128, 64), None);
        assert_eq!(written.first_missing(0, 0), None);
        let none = Written::new(300).unwrap();
        written.mark(0, 300);
        assert_eq!(written.first_missing(0, 300), None);
        written.copy(10, &none, 0, 5);
        assert_eq!(
            (written.first_missing(0, 300), written.first_missing(15, 285)),
            (Some(10), None)
        );
    }

    #[test]
    fn copies_take_the_bits_of_their_source() {
        let mut random = Random::new(3);
        let size = 70_000;
        for round in 0..40 {
            let (a, b) = (Written::new(size).unwrap(), Written::new(size).unwrap());
            for _ in 0..200 {
                a.mark(random.below(size), random.below(200));
                b.mark(random.below(size), random.below(200));
            }
            let source = if round % 2 == 0 { &a } else { &b };
            let (from, to) = (random.below(size), random.below(size));
            // Half of the copies overlap mostly and are longer than a piece.
            let (from, to) = if round % 4 < 2 { (from % 200, to % 200) } else { (from, to) };
            let bytes = random.below(size - from.max(to)) | 1;
            let mut expected = pattern(&a, size);
            let copied = pattern(source, size)[from as usize..(from + bytes) as usize].to_vec();
            expected[to as usize..(to + bytes) as usize].copy_from_slice(&copied);
            a.copy(to, source, from, bytes);
            assert_eq!(pattern(&a, size), expected, "round {round}");
        }
    }
}
