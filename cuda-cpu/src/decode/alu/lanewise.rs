//! Lane-wise instructions: macros that select a handler by type, and the emission, which converts the operands to the
//! kinds of the handler.

use cuda_ptx::Operand;

use crate::decode::build::builder::{Builder, DISAGREES, Problem};
use crate::decode::form::Form;
use crate::exec::map::Pick;
use crate::isa::operand::Slot;
use crate::machine::code::Op;

/// Emits a lane-wise instruction with the selected handler. Fails if there is none.
pub(crate) fn lanewise(
    pick: Option<Pick>,
    b: &mut Builder<'_>,
    form: &Form<'_>,
) -> Result<(), Problem> {
    let op = operands(b, form, &pick.ok_or(DISAGREES)?)?;
    b.emit(op)
}

/// Creates an op with the destination and sources that the handler requires.
pub(crate) fn operands(b: &mut Builder<'_>, form: &Form<'_>, pick: &Pick) -> Result<Op, Problem> {
    let written = form.instruction().operands.len() - form.constants_taken;
    let sources = pick.sources.iter().flatten().count();
    if written + usize::from(form.zero_appended) != sources + 1 {
        return Err(DISAGREES);
    }
    let mut op = Op::new(pick.run);
    op.imm = pick.imm;
    let mut slots = [Slot::NONE; 3];
    for (i, kind) in pick.sources.iter().enumerate() {
        let Some(kind) = *kind else { continue };
        let zero = Operand::Int(0);
        let operand = form.operand(i + 1).filter(|_| i + 1 < written).unwrap_or(&zero);
        slots[i] = b.source(operand, kind)?;
    }
    [op.a, op.b, op.c] = slots;
    op.d = b.dest(form.operand(0).ok_or(DISAGREES)?, pick.d, pick.signed)?;
    Ok(op)
}

/// Selects a handler by type, as in `by_type!(ty, binary, Add, [U32: u32, S32: i32])`. Returns `None` for other types.
macro_rules! by_type {
    ($ty:expr, $make:ident, $op:ident, [$($name:ident: $t:ty),* $(,)?]) => {
        match $ty {
            $(cuda_ptx::ScalarType::$name => Some($crate::exec::map::$make::<$op<$t>>()),)*
            _ => None,
        }
    };
    ($ty:expr, $make:ident, $op:ident, int) => {
        $crate::decode::alu::lanewise::by_type!($ty, $make, $op,
            [U16: u16, S16: i16, U32: u32, S32: i32, U64: u64, S64: i64])
    };
    // The signed types of 32 and 64 bits share the handlers of the unsigned ones.
    ($ty:expr, $make:ident, $op:ident, wrapping) => {
        match $ty {
            cuda_ptx::ScalarType::S32 => Some($crate::exec::map::$make::<$op<u32>>().signed()),
            cuda_ptx::ScalarType::S64 => Some($crate::exec::map::$make::<$op<u64>>().signed()),
            ty => $crate::decode::alu::lanewise::by_type!(ty, $make, $op,
                [U16: u16, S16: i16, U32: u32, U64: u64]),
        }
    };
    ($ty:expr, $make:ident, $op:ident, bits) => {
        $crate::decode::alu::lanewise::by_type!($ty, $make, $op, [B16: u16, B32: u32, B64: u64])
    };
}

/// Defines functions that select the handler of an instruction whose only modifier is its type.
macro_rules! of_type {
    ($($name:ident: $make:ident $op:ident $types:tt;)*) => { $(
        pub(crate) fn $name(form: &mut $crate::decode::form::Form<'_>) -> Option<$crate::exec::map::Pick> {
            let ty = form.ty()?;
            $crate::decode::alu::lanewise::by_type!(ty, $make, $op, $types)
        }
    )* };
}

pub(super) use {by_type, of_type};
