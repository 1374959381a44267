//! `alloca`, `stacksave` and `stackrestore`.
//!
//! A function with one of them keeps the end of each lane's local memory in a hidden register. Its calls start above
//! that end.

use cuda_ptx::{Opcode as O, Operand, ScalarType as T};

use crate::decode::build::builder::{Builder, DISAGREES, Problem};
use crate::decode::form::Form;
use crate::exec::alu::select;
use crate::exec::number::lane::Kind;
use crate::exec::special;
use crate::isa::operand::{Class, PresetValue, Slot};
use crate::machine::code::{Alloca, Control, Op};

/// Minimum and maximum alignment of `alloca`, in bytes.
const LEAST_ALIGN: u64 = 8;
const MAX_ALIGN: u64 = 1 << 23;

/// Emits the start of a function: initializes the hidden register if the function needs it.
pub(crate) fn begin(b: &mut Builder<'_>) {
    let opcodes = [O::Alloca, O::Stacksave, O::Stackrestore];
    if !b
        .body
        .instructions
        .iter()
        .any(|ins| ins.opcode.as_ref().is_ok_and(|opcode| opcodes.contains(opcode)))
    {
        return;
    }
    let mut op = Op::new(select::copy::<u32>);
    (op.a, op.d) = (bottom(b), b.frame.register(Class::W32));
    b.stack_top = Some(op.d);
    b.emit_plain(op);
}

/// Returns the end of the function's variables, where its stack starts.
fn bottom(b: &mut Builder<'_>) -> Slot {
    let bytes = b.locals.bytes;
    b.frame.preset(Class::W32, PresetValue::Local(bytes))
}

/// Takes the address type.
fn address_kind(form: &mut Form<'_>) -> Result<Kind, Problem> {
    match form.ty() {
        Some(T::U32) => Ok(Kind::W32),
        Some(T::U64) => Ok(Kind::W64),
        _ => Err(DISAGREES),
    }
}

/// `alloca.type address, bytes{, align};`
pub(crate) fn alloca(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let kind = address_kind(form)?;
    let (d, bytes, align) = match form.instruction().operands.as_slice() {
        [d, bytes] => (d, bytes, LEAST_ALIGN),
        [d, bytes, Operand::Int(align)] => (d, bytes, *align),
        _ => return Err(DISAGREES),
    };
    if !align.is_power_of_two() || align > MAX_ALIGN {
        return Err("the alignment must be a power of two up to 8388608");
    }
    let bytes = b.source(bytes, kind)?;
    let address = b.dest(d, kind, false)?;
    let align = align.max(LEAST_ALIGN) as u32;
    let (class, top) = (kind.class(), b.stack_top.ok_or(DISAGREES)?);
    b.control(Control::Alloca(Alloca { bytes, address, class, align, top }))
}

/// `stacksave.type d;`
pub(crate) fn save(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let kind = address_kind(form)?;
    let [d] = form.instruction().operands.as_slice() else { return Err(DISAGREES) };
    let wide = kind.class() == Class::W64;
    let mut op = Op::new(if wide { select::widen } else { select::copy::<u32> });
    op.a = b.stack_top.ok_or(DISAGREES)?;
    op.d = b.dest(d, kind, false)?;
    b.emit(op)
}

/// `stackrestore.type a;`
pub(crate) fn restore(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let kind = address_kind(form)?;
    let [a] = form.instruction().operands.as_slice() else { return Err(DISAGREES) };
    let wide = kind.class() == Class::W64;
    let mut op = Op::new(if wide { special::restore::<u64> } else { special::restore::<u32> });
    op.a = b.source(a, kind)?;
    (op.b, op.d) = (bottom(b), b.stack_top.ok_or(DISAGREES)?);
    b.emit(op)
}
