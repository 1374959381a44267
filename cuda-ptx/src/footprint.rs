//! Upper bounds of the memory of variables.

use crate::types::Space;

/// Alignments up to 2^20 bytes ([`limits::MAX_ALIGNMENT`](crate::limits::MAX_ALIGNMENT)).
const ALIGNMENTS: usize = 21;

/// The variables of one state space, with an upper bound of their bytes for every order of placement.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Footprint {
    /// Sum of the sizes, without padding; saturates.
    bytes: u64,
    /// Number of variables by the binary logarithm of their alignment.
    by_alignment: [u64; ALIGNMENTS],
    /// Every size is a multiple of 2^granule.
    granule: u32,
    /// Whether a variable was declared whose size cannot be determined.
    unknown: bool,
}

impl Footprint {
    const EMPTY: Self =
        Self { bytes: 0, by_alignment: [0; ALIGNMENTS], granule: u64::BITS, unknown: false };

    fn add(&mut self, bytes: u64, align: u32) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.granule = self.granule.min(bytes.trailing_zeros());
        if let Some(count) = self.by_alignment.get_mut(align.max(1).ilog2() as usize) {
            *count = count.saturating_add(1);
        }
    }

    fn merge(&mut self, other: &Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.granule = self.granule.min(other.granule);
        self.unknown |= other.unknown;
        for (count, more) in self.by_alignment.iter_mut().zip(&other.by_alignment) {
            *count = count.saturating_add(*more);
        }
    }

    /// Returns the bytes with the largest padding of any order, or `None` if a size is unknown.
    ///
    /// Each variable ends at a multiple of the granule, so a variable of alignment `a` is padded by at most
    /// `a - granule` bytes. The first variable of an order is not padded.
    fn upper_bound(&self) -> Option<u64> {
        let (mut total, mut least) = (self.bytes, u64::MAX);
        for (align, count) in self.by_alignment.iter().enumerate().filter(|(_, count)| **count > 0)
        {
            let granule = 1_u64.checked_shl(self.granule).unwrap_or(u64::MAX);
            let padding = (1_u64 << align).saturating_sub(granule);
            total = total.saturating_add(padding.saturating_mul(*count));
            least = least.min(padding);
        }
        let saved = if total == u64::MAX || least == u64::MAX { 0 } else { least };
        (!self.unknown).then_some(total.saturating_sub(saved))
    }
}

/// The variables of a function or module, by state space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Storage {
    global: Footprint,
    constant: Footprint,
    shared: Footprint,
    local: Footprint,
}

impl Storage {
    pub(crate) const EMPTY: Self = Self {
        global: Footprint::EMPTY,
        constant: Footprint::EMPTY,
        shared: Footprint::EMPTY,
        local: Footprint::EMPTY,
    };

    /// Adds a variable.
    pub(crate) fn add(&mut self, space: Space, bytes: u64, align: u32) {
        if let Some(footprint) = self.space(space) {
            footprint.add(bytes, align);
        }
    }

    /// Records that a variable was declared whose size cannot be determined.
    pub(crate) fn add_unknown(&mut self, space: Space) {
        if let Some(footprint) = self.space(space) {
            footprint.unknown = true;
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.global.merge(&other.global);
        self.constant.merge(&other.constant);
        self.shared.merge(&other.shared);
        self.local.merge(&other.local);
    }

    pub(crate) fn global(&self) -> Option<u64> {
        self.global.upper_bound()
    }

    pub(crate) fn constant(&self) -> Option<u64> {
        self.constant.upper_bound()
    }

    pub(crate) fn shared(&self) -> Option<u64> {
        self.shared.upper_bound()
    }

    pub(crate) fn local(&self) -> Option<u64> {
        self.local.upper_bound()
    }

    fn space(&mut self, space: Space) -> Option<&mut Footprint> {
        match space {
            Space::Global => Some(&mut self.global),
            Space::Const => Some(&mut self.constant),
            Space::Shared => Some(&mut self.shared),
            Space::Local => Some(&mut self.local),
            Space::Param => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(variables: &[(u64, u32)]) -> Option<u64> {
        let mut footprint = Footprint::EMPTY;
        variables.iter().for_each(|(bytes, align)| footprint.add(*bytes, *align));
        footprint.upper_bound()
    }

    #[test]
    fn equal_alignments_need_no_padding() {
        assert_eq!(bound(&[]), Some(0));
        assert_eq!(bound(&[(10, 4)]), Some(10));
        assert_eq!(bound(&[(1024, 4), (128, 4), (8, 8)]), Some(1160));
        assert_eq!(bound(&[(0, 16), (16, 16)]), Some(16));
    }

    #[test]
    fn bound_holds_for_every_order() {
        let variables = [(3, 1), (8, 8), (12, 4), (20, 16)];
        let bound = bound(&variables).unwrap();
        let mut worst = 0;
        // All orders of four variables.
        for code in 0..256_usize {
            let order = [code & 3, code >> 2 & 3, code >> 4 & 3, code >> 6];
            if (0..4).all(|i| order.contains(&i)) {
                let end = order.iter().map(|i| variables[*i]).fold(0_u64, |at, (bytes, align)| {
                    at.next_multiple_of(u64::from(align)) + bytes
                });
                worst = worst.max(end);
            }
        }
        assert!(worst > 43 && worst <= bound, "{worst} {bound}");
    }

    #[test]
    fn sums_saturate() {
        assert_eq!(bound(&[(u64::MAX, 4), (u64::MAX, 16)]), Some(u64::MAX));
        assert_eq!(bound(&[(u64::MAX, 1)]), Some(u64::MAX));
    }
}
