//! The addresses of an op's accesses, and the registers that its effects name.

use crate::fault::FaultSpace;
use crate::isa::MAX_SHARED_BYTES;
use crate::isa::address::{SpaceKind, generic};
use crate::isa::effect::{Access, Bulk, Values};
use crate::isa::operand::{Class, Slot};
use crate::lanes::{FULL, LANES, lanes_of};
use crate::machine::ctx::Ctx;

/// The addresses of the executing lanes whose accesses the handler will not reject.
pub(crate) struct Places {
    global: u32,
    shared: u32,
    local: u32,
    at: [u64; LANES],
}

impl Places {
    pub(crate) fn new(ctx: &Ctx<'_>, access: &Access, active: u32) -> Self {
        let mut places = Self { global: 0, shared: 0, local: 0, at: access.addresses(ctx) };
        let active = active & access.lanes;
        match access.space {
            SpaceKind::Global => places.global = active,
            SpaceKind::Shared => places.shared = active,
            SpaceKind::Local => places.local = active,
            SpaceKind::Generic => places.resolve(active),
        }
        // The sizes of accesses are powers of two.
        let bytes = u64::from(access.bytes());
        let inside = |size: u64| {
            let limit = size.checked_sub(bytes);
            let good = |at: u64| limit.is_some_and(|limit| at <= limit) && at & (bytes - 1) == 0;
            (0..LANES).fold(0, |lanes, lane| lanes | u32::from(good(places.at[lane])) << lane)
        };
        let own = &ctx.spaces;
        let sizes = [
            (places.global, u64::MAX),
            (places.shared, own.shared.size),
            (places.local, own.local.size),
        ];
        [places.global, places.shared, places.local] =
            sizes.map(|(lanes, size)| if lanes == 0 { 0 } else { lanes & inside(size) });
        places
    }

    /// Resolves each generic address to its space and its address there.
    fn resolve(&mut self, active: u32) {
        for lane in lanes_of(active) {
            let (space, at) = generic(self.at[lane]);
            match space {
                FaultSpace::Global => self.global |= 1 << lane,
                FaultSpace::Shared => self.shared |= 1 << lane,
                FaultSpace::Local => self.local |= 1 << lane,
                FaultSpace::Param => {}
            }
            self.at[lane] = at;
        }
    }

    /// Returns the lanes that access this space.
    pub(crate) fn lanes(&self, space: FaultSpace) -> u32 {
        match space {
            FaultSpace::Global => self.global,
            FaultSpace::Shared => self.shared,
            FaultSpace::Local => self.local,
            FaultSpace::Param => 0,
        }
    }

    /// Iterates over the lanes that access this space, with their addresses.
    #[inline]
    pub(crate) fn of(&self, space: FaultSpace) -> impl Iterator<Item = (usize, u64)> {
        lanes_of(self.lanes(space)).map(|lane| (lane, self.at[lane]))
    }

    /// Calls `each` with a mask of lanes and their common address, for all accesses to this space. Consecutive lanes
    /// with the same address form a group. Lanes also form a group if the addresses repeat in each half of the warp,
    /// each quarter and so on.
    #[inline]
    pub(crate) fn for_groups(&self, space: FaultSpace, mut each: impl FnMut(u32, u64)) {
        let all = self.lanes(space);
        let mut period = LANES;
        while all == FULL && period > 1 && self.at[..period / 2] == self.at[period / 2..period] {
            period /= 2;
        }
        let again = u64::from(FULL) / ((1 << period) - 1);
        let mut left = all & (FULL >> (LANES - period));
        while left != 0 {
            let at = self.at[left.trailing_zeros() as usize & 31];
            let mut lanes = 0;
            while left != 0 && self.at[left.trailing_zeros() as usize & 31] == at {
                lanes |= left & left.wrapping_neg();
                left &= left - 1;
            }
            each((u64::from(lanes) * again) as u32, at);
        }
    }

    /// Iterates over all lanes, with the space and address of their access.
    pub(crate) fn all(&self) -> impl Iterator<Item = (usize, FaultSpace, u64)> {
        let spaces = [FaultSpace::Global, FaultSpace::Shared, FaultSpace::Local];
        spaces.into_iter().flat_map(|s| self.of(s).map(move |(lane, at)| (lane, s, at)))
    }

    /// Returns the address of a lane's access.
    pub(crate) fn of_lane(&self, lane: usize) -> u64 {
        self.at[lane]
    }
}

impl Bulk {
    /// Splits the access into pieces of 16 bytes per lane. One side of a transfer is shared memory, so the size of
    /// shared memory limits the number of pieces of a valid transfer.
    pub(crate) fn pieces(self, ctx: &Ctx<'_>, active: u32) -> Vec<Access> {
        let most = MAX_SHARED_BYTES / PIECE;
        let of = |lane: usize| {
            let count = (ctx.lane::<u32>(self.bytes, lane) / PIECE).min(most);
            (0..count).map(move |i| Access {
                offset: (i * PIECE).into(),
                lanes: 1 << lane,
                ..Access::new(self.kind, self.space, PIECE, self.register)
            })
        };
        lanes_of(active).flat_map(of).collect()
    }
}

/// Size of a piece in bytes.
const PIECE: u32 = 16;

impl Access {
    /// Returns the addresses of all lanes. Those of lanes that do not execute are not meaningful.
    pub(super) fn addresses(&self, ctx: &Ctx<'_>) -> [u64; LANES] {
        if self.narrow {
            let add = |at: u32| u64::from(at.wrapping_add(self.offset as u32));
            ctx.read::<u32>(self.register).map(add)
        } else {
            ctx.read::<u64>(self.register).map(|at| at.wrapping_add(self.offset))
        }
    }

    /// Returns the source register of a written element, if known.
    pub(crate) fn source(&self, ctx: &Ctx<'_>, index: u32) -> Option<(Slot, Class)> {
        match self.values {
            Values::Unknown => None,
            Values::One(slot, class) => Some((slot, class)),
            Values::Many(first, class) => Some((ctx.code.extras[(first + index) as usize], class)),
        }
    }

    /// Returns byte `at` of the value that a lane writes, if known.
    pub(crate) fn value(&self, ctx: &Ctx<'_>, lane: usize, at: u32) -> Option<u8> {
        let (slot, class) = self.source(ctx, at / self.element)?;
        let word = match class {
            Class::W64 => ctx.lane::<u64>(slot, lane),
            _ => u64::from(ctx.lane::<u32>(slot, lane)),
        };
        Some((word >> (8 * (at % self.element))) as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(shared: u32, at: impl Fn(u64) -> u64) -> Vec<(u32, u64)> {
        let at = std::array::from_fn(|lane| at(lane as u64));
        let mut found = Vec::new();
        let places = Places { global: 0, shared, local: 0, at };
        places.for_groups(FaultSpace::Shared, |lanes, at| found.push((lanes, at)));
        found
    }

    #[test]
    fn lanes_with_equal_addresses_form_groups() {
        assert_eq!(groups(FULL, |_| 8), [(FULL, 8)]);
        assert_eq!(groups(0xFF0, |_| 8), [(0xFF0, 8)]);
        assert_eq!(groups(FULL, |lane| lane / 16), [(0xFFFF, 0), (0xFFFF_0000, 1)]);
        assert_eq!(groups(FULL, |lane| lane % 2), [(0x5555_5555, 0), (0xAAAA_AAAA, 1)]);
        assert_eq!(groups(0b1011, |lane| lane % 2), [(0b0001, 0), (0b1010, 1)]);
        assert_eq!(groups(0, |_| 8), []);
        for (period, halves) in [(32, 1), (16, 0x1_0001), (8, 0x101_0101)] {
            let each = groups(FULL, |lane| 4 * (lane % period));
            assert_eq!(each, (0..period).map(|i| (halves << i, 4 * i)).collect::<Vec<_>>());
        }
        // The second half differs.
        let all = groups(FULL, |lane| if lane == 31 { 9 } else { lane % 16 });
        assert_eq!((all.len(), all[31]), (32, (1 << 31, 9)));
    }
}
