//! Moves small matrices between shared memory and the registers of a warp: `ldmatrix`, `stmatrix` and `movmatrix`.
//!
//! A matrix has 8 rows of 16 bytes, or 16 rows for bytes. One lane provides the address of each row. In registers, each
//! lane holds one word: of the row of its group of four lanes, or if transposed, of the column.
//!
//! The unsafe code dereferences pointers that `locate` has checked for the same access.

use super::{
    layout::{group, place},
    whole_warp,
};
use crate::{
    exec::memory::locate::{Access, Located, locate},
    isa::address::SpaceKind,
    lanes::{FULL, LANES},
    machine::{
        code::{Flow, Op},
        ctx::Ctx,
    },
    memory::access::Word,
};

/// The layout of elements in registers, as a code in `Op::b`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Form {
    /// 16 bits, by row.
    Rows,
    /// 16 bits, by column: `.trans`.
    Columns,
    /// Bytes, by column: `m16n16` loads and `m16n8` stores.
    Bytes,
}

impl Form {
    fn of(op: &Op) -> Self {
        match op.b.0 {
            0 => Self::Rows,
            1 => Self::Columns,
            _ => Self::Bytes,
        }
    }
}

/// Size of a row in bytes.
pub(crate) const ROW: u64 = 16;

type Row = [u32; 4];

/// Locates the rows. `Op::a`, `imm` and `c` are the address, and the first extra operand is the space.
fn locate_rows(ctx: &mut Ctx<'_>, op: &Op, rows: usize, write: bool) -> Result<Located, Flow> {
    let space = SpaceKind::from_code(ctx.extra(op, 0).0);
    let mask = FULL >> (LANES - rows);
    locate(ctx, op, mask, Access { space, bytes: ROW, write })
}

/// Returns a byte of a row.
fn byte(row: &Row, at: usize) -> u32 {
    row[at / 4] >> (8 * (at % 4)) & 0xFF
}

/// Returns a halfword of a row.
fn half(row: &Row, at: usize) -> u32 {
    row[at / 2] >> (16 * (at % 2)) & 0xFFFF
}

/// `ldmatrix`. `Op::d` is the number of registers. The extra operands are the space and the registers.
pub(crate) fn load(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    if let Err(flow) = whole_warp(ctx) {
        return flow;
    }
    let registers = op.d.0 as usize;
    // Each register takes eight rows, also if a matrix has sixteen.
    let found = match locate_rows(ctx, op, 8 * registers, false) {
        Ok(found) => found,
        Err(flow) => return flow,
    };
    let rows: [Row; LANES] = std::array::from_fn(|lane| match lane < 8 * registers {
        // SAFETY: located for 16 bytes and aligned.
        true => std::array::from_fn(|i| unsafe { u32::load(found.at[lane].add(4 * i)) }),
        false => Row::default(),
    });
    let form = Form::of(op);
    for register in 0..registers {
        let words = std::array::from_fn(|lane| loaded(form, &rows, register, lane));
        ctx.write::<u32>(ctx.extra(op, 1 + register), FULL, &words);
    }
    Flow::Next
}

fn loaded(form: Form, rows: &[Row; LANES], register: usize, lane: usize) -> u32 {
    let (line, word) = (group(lane), place(lane));
    let matrix = &rows[8 * register..];
    match form {
        Form::Rows => matrix[line][word],
        Form::Columns => half(&matrix[2 * word], line) | half(&matrix[2 * word + 1], line) << 16,
        Form::Bytes => {
            let (matrix, column) = (&rows[8 * (register & !1)..], line + 8 * (register & 1));
            (0..4).fold(0, |all, i| all | byte(&matrix[4 * word + i], column) << (8 * i))
        }
    }
}

/// `stmatrix`. The operands are the same as for [`load`].
pub(crate) fn store(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    if let Err(flow) = whole_warp(ctx) {
        return flow;
    }
    let registers = op.d.0 as usize;
    let found = match locate_rows(ctx, op, 8 * registers, true) {
        Ok(found) => found,
        Err(flow) => return flow,
    };
    let form = Form::of(op);
    for register in 0..registers {
        let words = ctx.read::<u32>(ctx.extra(op, 1 + register));
        for line in 0..8 {
            let row = stored(form, &words, line);
            for (i, word) in row.into_iter().enumerate() {
                // SAFETY: located for 16 bytes and aligned.
                unsafe { u32::store(found.at[8 * register + line].add(4 * i), word) };
            }
        }
    }
    Flow::Next
}

/// Returns a row in its memory layout.
fn stored(form: Form, words: &[u32; LANES], line: usize) -> Row {
    let lane = |group: usize, place: usize| words[4 * group + place];
    std::array::from_fn(|at| match form {
        Form::Rows => lane(line, at),
        Form::Columns => {
            let half = |row: usize| lane(row, line / 2) >> (16 * (line % 2)) & 0xFFFF;
            half(2 * at) | half(2 * at + 1) << 16
        }
        Form::Bytes => (0..4).fold(0, |all, i| {
            let row = 4 * at + i;
            let byte = lane(row % 8, line / 2) >> (8 * (2 * (row / 8) + line % 2)) & 0xFF;
            all | byte << (8 * i)
        }),
    })
}

/// `movmatrix`: transposes one matrix of 16-bit elements in registers.
pub(crate) fn transpose(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    if let Err(flow) = whole_warp(ctx) {
        return flow;
    }
    let words = ctx.read::<u32>(op.a);
    let transposed =
        std::array::from_fn(|lane| stored(Form::Columns, &words, group(lane))[place(lane)]);
    ctx.write::<u32>(op.d, FULL, &transposed);
    Flow::Next
}
