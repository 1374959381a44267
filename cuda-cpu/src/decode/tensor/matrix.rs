//! `ldmatrix`, `stmatrix` and `movmatrix`.

use cuda_ptx::{Address, Operand, ScalarType as T, Word as W};

use super::mma::{dests, sources};
use crate::decode::build::builder::{Builder, DISAGREES, Problem};
use crate::decode::collective::whole_warp;
use crate::decode::form::Form;
use crate::exec::memory::locate::NARROW_ADDRESS;
use crate::exec::number::lane::Kind;
use crate::exec::tensor::matrix;
use crate::exec::tensor::matrix::Form as Layout;
use crate::isa::address::SpaceKind;
use crate::isa::effect::{Access, AccessKind, Effect};
use crate::isa::operand::Slot;
use crate::lanes::{FULL, LANES};
use crate::machine::code::{Handler, Op};

/// The matrices that an instruction moves.
struct Matrices {
    layout: Layout,
    registers: usize,
    space: SpaceKind,
}

fn take(form: &mut Form<'_>, shape_of_bytes: W) -> Result<Matrices, Problem> {
    if !form.take(W::Sync) || !form.take(W::Aligned) {
        return Err("only the `.sync.aligned` form is supported");
    }
    let shape = form.take_one(&[W::M8n8, W::M16n16, W::M16n8, W::M8n16]).ok_or(DISAGREES)?;
    let count = form.take_from(&[(W::X1, 1), (W::X2, 2), (W::X4, 4)]).ok_or(DISAGREES)?;
    let transposed = form.take(W::Trans);
    let space = match form.take_one(&[W::Shared, W::SharedCta]) {
        Some(_) => SpaceKind::Shared,
        None => SpaceKind::Generic,
    };
    if form.has(W::B8x16) {
        return Err("the CPU device does not support elements of 4 or 6 bits");
    }
    let ty = form.ty().ok_or(DISAGREES)?;
    let layout = match (shape, ty, transposed) {
        (W::M8n8, T::B16, false) => Layout::Rows,
        (W::M8n8, T::B16, true) => Layout::Columns,
        (shape, T::B8, true) if shape == shape_of_bytes => Layout::Bytes,
        _ => return Err(DISAGREES),
    };
    // A matrix of 16 x 16 bytes takes two registers.
    let registers = if shape == W::M16n16 { 2 * count } else { count };
    if registers > 4 {
        return Err(DISAGREES);
    }
    Ok(Matrices { layout, registers, space })
}

/// `ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {r0, r1, r2, r3}, [p];`
pub(crate) fn load(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let matrices = take(form, W::M16n16)?;
    let [to, Operand::Address(address)] = form.instruction().operands.as_slice() else {
        return Err(DISAGREES);
    };
    whole_warp(b)?;
    let registers = dests(b, to, Kind::W32)?;
    emit(b, (matrix::load, AccessKind::Read), &matrices, address, registers)
}

/// `stmatrix.sync.aligned.m8n8.x4.shared.b16 [p], {r0, r1, r2, r3};`
pub(crate) fn store(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let matrices = take(form, W::M16n8)?;
    let [Operand::Address(address), from] = form.instruction().operands.as_slice() else {
        return Err(DISAGREES);
    };
    whole_warp(b)?;
    let registers = sources(b, from, Kind::W32)?;
    emit(b, (matrix::store, AccessKind::Write), &matrices, address, registers)
}

fn emit(
    b: &mut Builder<'_>,
    (run, kind): (Handler, AccessKind),
    matrices: &Matrices,
    address: &Address,
    registers: Vec<Slot>,
) -> Result<(), Problem> {
    if registers.len() != matrices.registers {
        return Err(DISAGREES);
    }
    let mut op = Op::new(run);
    let (base, offset, narrow) = b.address(address, matrices.space)?;
    op.a = base;
    op.imm = offset as u64;
    op.c = if narrow { NARROW_ADDRESS } else { Slot::NONE };
    op.cache = b.new_cache();
    (op.b, op.d) = (Slot(matrices.layout as u32), Slot(matrices.registers as u32));
    op.extra = b.extras([Slot(matrices.space as u32)].into_iter().chain(registers));
    // Eight lanes per register provide the row addresses.
    let lanes = FULL >> (LANES - 8 * matrices.registers);
    let access = Access::new(kind, matrices.space, matrix::ROW as u32, op.a);
    b.states(Effect::Access(Access { lanes, narrow, offset: op.imm, ..access }));
    b.emit(op)
}

/// `movmatrix.sync.aligned.m8n8.trans.b16 d, a;`
pub(crate) fn transpose(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let modifiers = [W::Sync, W::Aligned, W::M8n8, W::Trans];
    if !modifiers.into_iter().all(|m| form.take(m)) || !form.take_ty(T::B16) {
        return Err(DISAGREES);
    }
    let [d, a] = form.instruction().operands.as_slice() else { return Err(DISAGREES) };
    whole_warp(b)?;
    let mut op = Op::new(matrix::transpose);
    op.a = b.source(a, Kind::W32)?;
    op.d = b.dest(d, Kind::W32, false)?;
    b.emit(op)
}
