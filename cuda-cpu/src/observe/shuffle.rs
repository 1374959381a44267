//! Orders that depend on a seed: of blocks and warps, and the length of time slices.

use super::options::Schedule;
use crate::random::Random;

/// Binary exponent of the longest time slice, in instructions. Each exponent up to this is equally likely.
const LONGEST: u64 = 12;

/// The order in which blocks start.
pub(crate) struct BlockOrder {
    random: Option<Random>,
    blocks: u64,
    /// A mask of ones, at least as large as the highest block number.
    mask: u64,
    keys: [u64; 3],
}

impl BlockOrder {
    pub(crate) fn new(schedule: Schedule, blocks: u64) -> Self {
        let mut random = match schedule {
            Schedule::Shuffled { seed } => Some(Random::new(seed)),
            Schedule::Parallel | Schedule::Fixed => None,
        };
        let mask = blocks.checked_next_power_of_two().map_or(u64::MAX, |power| power - 1);
        let mut key = || random.as_mut().map_or(0, Random::next);
        let keys = [key() | 1, key(), key() | 1];
        Self { random, blocks, mask, keys }
    }

    /// Returns the `index`th block to start.
    pub(crate) fn block(&self, index: u64) -> u64 {
        if self.random.is_none() || index >= self.blocks {
            return index;
        }
        // Each step is a bijection on the numbers up to the mask. Numbers that are not a block are mapped again.
        let mut at = index;
        loop {
            at = at.wrapping_mul(self.keys[0]).wrapping_add(self.keys[1]) & self.mask;
            at ^= at >> (self.mask.count_ones() / 2).max(1);
            at = at.wrapping_mul(self.keys[2]) & self.mask;
            if at < self.blocks {
                return at;
            }
        }
    }

    /// Selects one of `count` started blocks to run next. Also returns whether another block starts as well.
    pub(crate) fn turn(&mut self, count: usize) -> (usize, bool) {
        self.random.as_mut().map_or((0, true), |random| {
            (random.below(count as u64) as usize, random.next().is_multiple_of(2))
        })
    }
}

/// The order of a block's warps, and the lengths of their time slices.
pub(crate) struct Shuffle {
    random: Random,
    /// Instructions left in this time slice.
    left: u64,
    order: Vec<usize>,
}

impl Shuffle {
    pub(crate) fn new(seed: u64) -> Self {
        // The seed differs from that of the block order.
        Self { random: Random::new(!seed), left: 0, order: Vec::new() }
    }

    /// Starts a time slice. Returns the warp that runs as the `index`th of `count` in this round.
    pub(crate) fn begin_slice(&mut self, index: usize, count: usize) -> usize {
        let longest = 1 << self.random.below(LONGEST + 1);
        self.left = 1 + self.random.below(longest);
        if index == 0 {
            self.order.clear();
            self.order.extend(0..count);
        }
        let left = count.saturating_sub(index) as u64;
        let other = index + self.random.below(left) as usize;
        if other < self.order.len() {
            self.order.swap(index, other);
        }
        self.order.get(index).copied().unwrap_or(index)
    }

    /// Counts an instruction. Returns whether it still belongs to the time slice.
    #[inline]
    pub(crate) fn step(&mut self) -> bool {
        let more = self.left > 0;
        self.left = self.left.saturating_sub(1);
        more
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_starts_once() {
        for blocks in [1, 2, 3, 7, 64, 1000] {
            for seed in 0..5 {
                let order = BlockOrder::new(Schedule::Shuffled { seed }, blocks);
                let mut all: Vec<_> = (0..blocks).map(|index| order.block(index)).collect();
                assert!(blocks < 64 || !all.is_sorted());
                all.sort_unstable();
                assert_eq!(all, (0..blocks).collect::<Vec<_>>());
            }
        }
        let fixed = BlockOrder::new(Schedule::Fixed, 10);
        assert!((0..10).all(|index| fixed.block(index) == index));
        let many = 0x7FFF_FFFF * 65535 * 65535;
        assert!(BlockOrder::new(Schedule::Shuffled { seed: 1 }, many).block(5) < many);
    }

    #[test]
    fn every_warp_runs_once_per_round() {
        let mut shuffle = Shuffle::new(9);
        for count in [1, 2, 32] {
            let mut round: Vec<_> = (0..count).map(|i| shuffle.begin_slice(i, count)).collect();
            round.sort_unstable();
            assert_eq!(round, (0..count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn slices_vary_and_are_never_empty() {
        let mut shuffle = Shuffle::new(2);
        let mut length = || {
            shuffle.begin_slice(0, 1);
            (0..10_000).take_while(|_| shuffle.step()).count()
        };
        let lengths: Vec<_> = (0..1000).map(|_| length()).collect();
        assert!(lengths.contains(&1) && lengths.iter().any(|&l| l > 1000));
        assert!(lengths.iter().all(|&l| (1..=1 << LONGEST).contains(&l)));
    }
}
