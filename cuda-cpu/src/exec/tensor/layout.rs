//! The layout of matrices in the lanes' registers, and the positions of their elements in memory.
//!
//! A lane belongs to a group of four (its number divided by four) and has a place in it. A register holds one word: one
//! element, or several contiguous ones along a row of A or a column of B.
//!
//! The functions that read and write matrices are not inlined: many handlers share them, and their loops are unrolled.

use crate::lanes::{FULL, LANES};
use crate::machine::code::{Flow, Op};
use crate::machine::ctx::{Ctx, Raw};

/// Returns the lane's group of four.
#[inline(always)]
pub(crate) const fn group(lane: usize) -> usize {
    lane >> 2
}

/// Returns the lane's place in its group.
#[inline(always)]
pub(crate) const fn place(lane: usize) -> usize {
    lane & 3
}

/// Reads the words of `M` rows of A, or of 8 columns of B, with `N` words each. Groups hold lines, places hold words.
#[inline(never)]
pub(super) fn lines<R: Raw, const M: usize, const N: usize>(
    ctx: &Ctx<'_>,
    op: &Op,
    first: usize,
) -> [[R; N]; M] {
    let mut lines = [[R::default(); N]; M];
    for register in 0..M * N / LANES {
        let words = ctx.read::<R>(ctx.extra(op, first + register));
        let (line, word) = match M {
            16 => (8 * (register & 1), 4 * (register >> 1)),
            _ => (0, 4 * register),
        };
        for lane in 0..LANES {
            lines[line + group(lane)][word + place(lane)] = words[lane];
        }
    }
    lines
}

/// Reads C with one element per register.
#[inline(never)]
pub(super) fn sums<R: Raw, const M: usize>(ctx: &Ctx<'_>, op: &Op, first: usize) -> [[R; 8]; M] {
    let mut sums = [[R::default(); 8]; M];
    for register in 0..M / 4 {
        let words = ctx.read::<R>(ctx.extra(op, first + register));
        for (lane, word) in words.into_iter().enumerate() {
            let (row, column) =
                (group(lane) + 8 * (register >> 1), 2 * place(lane) + (register & 1));
            sums[row][column] = word;
        }
    }
    sums
}

/// Writes D in the layout of [`sums`].
#[inline(never)]
pub(super) fn set_sums<R: Raw, const M: usize>(ctx: &mut Ctx<'_>, op: &Op, sums: &[[R; 8]; M]) {
    for register in 0..M / 4 {
        let words = std::array::from_fn(|lane| {
            sums[group(lane) + 8 * (register >> 1)][2 * place(lane) + (register & 1)]
        });
        ctx.write(ctx.extra(op, register), FULL, &words);
    }
}

/// Reads C of 16 rows with two halves per register.
#[inline(never)]
pub(super) fn half_sums(ctx: &Ctx<'_>, op: &Op, first: usize) -> [[u32; 8]; 16] {
    let mut sums = [[0; 8]; 16];
    for register in 0..2 {
        let words = ctx.read::<u32>(ctx.extra(op, first + register));
        for (lane, word) in words.into_iter().enumerate() {
            let (row, column) = (group(lane) + 8 * register, 2 * place(lane));
            sums[row][column] = word & 0xFFFF;
            sums[row][column + 1] = word >> 16;
        }
    }
    sums
}

/// Writes D in the layout of [`half_sums`].
#[inline(never)]
pub(super) fn set_half_sums(ctx: &mut Ctx<'_>, op: &Op, sums: &[[u32; 8]; 16]) {
    for register in 0..2 {
        let words = std::array::from_fn(|lane| {
            let (row, column) = (group(lane) + 8 * register, 2 * place(lane));
            sums[row][column] | sums[row][column + 1] << 16
        });
        ctx.write(ctx.extra(op, register), FULL, &words);
    }
}

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
