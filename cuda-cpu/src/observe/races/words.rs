//! The words that an op accesses, with the lanes of each.

use super::cells::WORD;
use crate::fault::FaultSpace;
use crate::lanes::lanes_of;
use crate::observe::places::Places;

/// Bytes of a word as a mask, and the lanes that access exactly these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Accessed {
    pub(crate) word: u32,
    pub(crate) bytes: u8,
    pub(crate) lanes: u32,
}

/// The accessed words of an op. The buffer is reused for the next op.
#[derive(Default)]
pub(crate) struct Words {
    all: Vec<Accessed>,
    /// End of the highest word so far.
    end: u32,
    /// Position at which the next word is expected. Most ops access consecutive words, once or repeatedly.
    next: usize,
}

impl Words {
    /// Returns the words that these lanes access, `bytes` bytes each.
    pub(crate) fn find(&mut self, places: &Places, lanes: u32, bytes: u32) -> &[Accessed] {
        self.all.clear();
        (self.end, self.next) = (0, 0);
        for lane in lanes_of(places.lanes(FaultSpace::Shared) & lanes) {
            let at = places.of_lane(lane);
            for_words(at, bytes, |word, mask| self.add(word, mask, lane));
        }
        &self.all
    }

    #[inline]
    fn add(&mut self, word: u32, bytes: u8, lane: usize) {
        let lanes = 1 << lane;
        let is_it = |own: &Accessed| (own.word, own.bytes) == (word, bytes);
        let likely = [self.next.wrapping_sub(1), self.next];
        let known = likely.into_iter().find(|&at| self.all.get(at).is_some_and(is_it));
        let known = match known {
            None if word < self.end => self.all.iter().position(is_it),
            known => known,
        };
        let at = known.unwrap_or(self.all.len());
        match self.all.get_mut(at) {
            Some(own) => own.lanes |= lanes,
            None => self.all.push(Accessed { word, bytes, lanes }),
        }
        self.end = self.end.max(word + 1);
        self.next = at + 1;
    }
}

/// Calls `each` for every word of an access, with the mask of its bytes.
#[inline]
pub(crate) fn for_words(at: u64, bytes: u32, mut each: impl FnMut(u32, u8)) {
    let bytes = u64::from(bytes);
    if bytes == WORD {
        return each((at / WORD) as u32, 15);
    }
    for word in at / WORD..(at + bytes).div_ceil(WORD) {
        let (low, high) = (at.max(word * WORD), (at + bytes).min((word + 1) * WORD));
        let mask = (((1u32 << (high - low)) - 1) << (low % WORD)) as u8;
        each(word as u32, mask);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(lanes: &[(u32, u8)]) -> Vec<(u32, u8, u32)> {
        let mut words = Words::default();
        for (lane, &(word, bytes)) in lanes.iter().enumerate() {
            words.add(word, bytes, lane);
        }
        words.all.iter().map(|own| (own.word, own.bytes, own.lanes)).collect()
    }

    #[test]
    fn lanes_with_equal_bytes_form_groups() {
        assert_eq!(words(&[(7, 15); 3]), [(7, 15, 0b111)]);
        assert_eq!(words(&[(1, 15), (2, 15), (1, 15), (2, 15)]), [(1, 15, 5), (2, 15, 10)]);
        assert_eq!(
            words(&[(9, 15), (4, 15), (9, 15), (4, 3)]),
            [(9, 15, 5), (4, 15, 2), (4, 3, 8)]
        );
        assert_eq!(words(&[(1, 1), (1, 2), (1, 1), (1, 2)]), [(1, 1, 5), (1, 2, 10)]);
    }
}
