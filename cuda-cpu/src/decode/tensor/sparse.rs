//! `mma.sp`: selects the multiplication and decodes its fragments.

use cuda_ptx::{Operand, ScalarType as T, Word as W};

use super::mma::{Multiply, dests, emit, integer_modes, sources, take_types};
use crate::decode::build::builder::{Builder, DISAGREES, Problem};
use crate::decode::collective::whole_warp;
use crate::decode::form::Form;
use crate::exec::number::lane::Kind;
use crate::exec::tensor::floats::{A_E4M3, B_E4M3, BF16, F16, Half, Single, TF32};
use crate::exec::tensor::sparse::{
    MODES, Metadata, SELECTOR, bytes, floats, pick_integers as integers,
};
use crate::machine::code::Handler;

/// `mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 d, a, b, c, e, 0;`. The `sp` modifier has been taken already.
pub(super) fn sparse(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let (multiply, metadata) = pick(form).ok_or(DISAGREES)?;
    let [d, x, y, c, e, Operand::Int(selector)] = form.instruction().operands.as_slice() else {
        return Err(DISAGREES);
    };
    let selectors = match metadata {
        Metadata::OneLane => 4,
        Metadata::TwoLanesMixed | Metadata::TwoLanes => 2,
        Metadata::FourLanes => 1,
    };
    if *selector >= selectors {
        return Err("invalid selector");
    }
    whole_warp(b)?;
    let mut c = sources(b, c, Kind::F32)?;
    let [x, y] = [sources(b, x, Kind::W32)?, sources(b, y, Kind::W32)?];
    // The handler expects the metadata after the registers of C.
    c.push(b.source(e, Kind::W32)?);
    let d = dests(b, d, Kind::F32)?;
    let imm = metadata as u64 | selector << SELECTOR | multiply.imm << MODES;
    emit(b, &Multiply { imm, ..multiply }, &d, &[x, y, c])
}

fn pick(form: &mut Form<'_>) -> Option<(Multiply, Metadata)> {
    let shapes = [W::M16n8k8, W::M16n8k16, W::M16n8k32, W::M16n8k64, W::M16n8k128];
    let shape = form.take_one(&shapes)?;
    if !form.take(W::Row) || !form.take(W::Col) {
        return None;
    }
    match take_types(form)? {
        [T::S32, a, b, T::S32] => integer(form, shape, a, b),
        [d, a, b, c] if d == c => float(shape, d, a, b),
        _ => None,
    }
}

/// Number of registers of A, of B, of C with the metadata, and of D.
const SMALL: [usize; 4] = [2, 2, 5, 4];
const LARGE: [usize; 4] = [4, 4, 5, 4];

fn float(shape: W, d: T, a: T, b: T) -> Option<(Multiply, Metadata)> {
    use Metadata::{FourLanes, OneLane, TwoLanesMixed};
    let halves = |[a, b, ..]: [usize; 4]| [a, b, 3, 2];
    let (handler, registers, metadata): (Handler, _, _) = match (shape, d, a, b) {
        (W::M16n8k16, T::F16, T::F16, T::F16) => {
            (floats::<F16, Half, 4, 8, 8, 16>, halves(SMALL), OneLane)
        }
        (W::M16n8k32, T::F16, T::F16, T::F16) => {
            (floats::<F16, Half, 8, 16, 16, 32>, halves(LARGE), TwoLanesMixed)
        }
        (W::M16n8k16, T::F32, T::F16, T::F16) => {
            (floats::<F16, Single, 4, 8, 8, 16>, SMALL, OneLane)
        }
        (W::M16n8k32, T::F32, T::F16, T::F16) => {
            (floats::<F16, Single, 8, 16, 16, 32>, LARGE, TwoLanesMixed)
        }
        (W::M16n8k16, T::F32, T::BF16, T::BF16) => {
            (floats::<BF16, Single, 4, 8, 8, 16>, SMALL, OneLane)
        }
        (W::M16n8k32, T::F32, T::BF16, T::BF16) => {
            (floats::<BF16, Single, 8, 16, 16, 32>, LARGE, TwoLanesMixed)
        }
        (W::M16n8k8, T::F32, T::TF32, T::TF32) => {
            (floats::<TF32, Single, 4, 4, 8, 8>, SMALL, OneLane)
        }
        (W::M16n8k16, T::F32, T::TF32, T::TF32) => {
            (floats::<TF32, Single, 8, 8, 16, 16>, LARGE, TwoLanesMixed)
        }
        (W::M16n8k64, T::F32, T::E4M3 | T::E5M2, T::E4M3 | T::E5M2) => {
            (bytes::<16>, LARGE, FourLanes)
        }
        _ => return None,
    };
    let flag = |ty: T, flag: u64| if ty == T::E4M3 { flag } else { 0 };
    let multiply = Multiply::new(handler, registers).with(flag(a, A_E4M3) | flag(b, B_E4M3));
    Some((multiply, metadata))
}

fn integer(form: &mut Form<'_>, shape: W, a: T, b: T) -> Option<(Multiply, Metadata)> {
    use Metadata::{FourLanes, TwoLanes};
    let (handler, registers, metadata) = match (a, b, shape) {
        (T::S8 | T::U8, T::S8 | T::U8, W::M16n8k32) => (integers::<8, 4, 8>(), SMALL, TwoLanes),
        (T::S8 | T::U8, T::S8 | T::U8, W::M16n8k64) => (integers::<8, 8, 16>(), LARGE, FourLanes),
        (T::S4 | T::U4, T::S4 | T::U4, W::M16n8k64) => (integers::<4, 4, 8>(), SMALL, TwoLanes),
        (T::S4 | T::U4, T::S4 | T::U4, W::M16n8k128) => (integers::<4, 8, 16>(), LARGE, FourLanes),
        _ => return None,
    };
    let multiply = Multiply::new(handler, registers).with(integer_modes(form, a, b));
    Some((multiply, metadata))
}
