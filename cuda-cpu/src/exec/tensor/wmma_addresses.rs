//! Positions of matrix fragment elements in memory.

use super::layout::{group, place};
use crate::machine::code::{Flow, Op};
use crate::machine::ctx::Ctx;

/// A coordinate of each lane's element: a base, a step per group of lanes, and a step per place in a group.
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

/// The position of each lane's element: its row (or column) in memory, its index there, and its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Elements {
    pub(crate) major: Linear,
    pub(crate) minor: Linear,
    /// Size of an element in bits.
    pub(crate) bits: u32,
    /// Size of the access in bytes: one element, or several contiguous ones.
    pub(crate) bytes: u32,
}

impl Elements {
    /// Packs the fields for [`element_addresses`]. All are below 256.
    pub(crate) fn pack(self) -> u64 {
        self.major.pack() | self.minor.pack() << 24 | u64::from(self.bits) << 48
    }

    fn unpack(bits: u64) -> Self {
        let (major, minor) = (Linear::unpack(bits), Linear::unpack(bits >> 24));
        let bits = (bits >> 48) as u32;
        Self { major, minor, bits, bytes: bits / 8 }
    }
}

/// Computes the address of each lane's element in the matrix at `a`, with a stride of `b` elements.
pub(crate) fn element_addresses(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let (bases, strides) = (ctx.read::<u64>(op.a), ctx.read::<u32>(op.b));
    let Elements { major, minor, bits, .. } = Elements::unpack(op.imm);
    let addresses = std::array::from_fn(|lane| {
        // A stride is a 32-bit integer, so the product does not overflow.
        let rows = u64::from(major.at(lane)) * u64::from(strides[lane]);
        bases[lane].wrapping_add((rows + u64::from(minor.at(lane))) * u64::from(bits) / 8)
    });
    ctx.write::<u64>(op.d, ctx.mask, &addresses);
    Flow::Next
}
