//! Where the elements of a matrix fragment are in memory.

use super::layout::{group, place};
use crate::engine::ctx::Ctx;
use crate::engine::op::{Flow, Op};

/// A coordinate of the lanes' elements: a base, and a step for each group of lanes and each place in a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Linear {
    pub(crate) group: u32,
    pub(crate) place: u32,
    pub(crate) base: u32,
}

impl Linear {
    fn pack(self) -> u64 {
        u64::from(self.group | self.place << 8 | self.base << 16)
    }

    fn unpack(bits: u64) -> Self {
        let byte = |at: u32| (bits >> at & 0xFF) as u32;
        Self { group: byte(0), place: byte(8), base: byte(16) }
    }

    #[inline(always)]
    fn at(self, lane: usize) -> u32 {
        self.group * group(lane) as u32 + self.place * place(lane) as u32 + self.base
    }
}

/// An element of each lane: the row (or column) as it lies in memory, the place there, and the size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Elements {
    pub(crate) major: Linear,
    pub(crate) minor: Linear,
    /// Of an element.
    pub(crate) bits: u32,
    /// Of what is accessed there: one element, or some that follow each other.
    pub(crate) bytes: u32,
}

impl Elements {
    /// For [`element_addresses`]: everything here is below 256.
    pub(crate) fn pack(self) -> u64 {
        self.major.pack() | self.minor.pack() << 24 | u64::from(self.bits) << 48
    }

    fn unpack(bits: u64) -> Self {
        let (major, minor) = (Linear::unpack(bits), Linear::unpack(bits >> 24));
        let bits = (bits >> 48) as u32;
        Self { major, minor, bits, bytes: bits / 8 }
    }
}

/// The address of each lane's element: of the matrix at `a`, with `b` elements from row to row.
pub(crate) fn element_addresses(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let (bases, strides) = (ctx.read::<u64>(op.a), ctx.read::<u32>(op.b));
    let Elements { major, minor, bits, .. } = Elements::unpack(op.imm);
    let addresses = std::array::from_fn(|lane| {
        // A stride is a 32-bit integer; the products of such do not overflow.
        let rows = u64::from(major.at(lane)) * u64::from(strides[lane]);
        bases[lane].wrapping_add((rows + u64::from(minor.at(lane))) * u64::from(bits) / 8)
    });
    ctx.write::<u64>(op.d, ctx.mask, &addresses);
    Flow::Next
}
