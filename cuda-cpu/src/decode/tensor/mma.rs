//! `mma` and `mma.sp`: selects the multiplication and decodes its fragments.

use cuda_ptx::{Operand, ScalarKind, ScalarType as T, Word as W};

use crate::decode::build::builder::{Builder, DISAGREES, Problem};
use crate::decode::collective::whole_warp;
use crate::decode::form::Form;
use crate::exec::number::lane::Kind;
use crate::exec::tensor::fused::{BF16, F16, Half, Single, TF32, Widened};
use crate::exec::tensor::mma::{
    self, A_E4M3, A_SIGNED, And, B_E4M3, B_SIGNED, Integers, SATURATES, Xor, bytes, floats,
    pick_integers,
};
use crate::exec::tensor::sparse::{
    MODES, Metadata, SELECTOR, pick_sparse_integers, sparse_bytes, sparse_floats,
};
use crate::isa::operand::Slot;
use crate::machine::code::{Handler, Op};

/// A multiplication and its handler.
#[derive(Debug, Clone, Copy)]
pub(super) struct Multiply {
    pub(super) run: Handler,
    pub(super) imm: u64,
    /// Number of registers of A, B, C and D.
    pub(in crate::decode) registers: [usize; 4],
    /// Kinds of the registers of A and B, and of C and D.
    pub(super) kinds: [Kind; 2],
}

impl Multiply {
    pub(super) fn new(run: Handler, registers: [usize; 4]) -> Self {
        Self { run, imm: 0, registers, kinds: [Kind::W32; 2] }
    }

    pub(super) fn with(self, imm: u64) -> Self {
        Self { imm, ..self }
    }
}

/// `mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 d, a, b, c;`
pub(crate) fn mma(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let is_sparse = form.take(W::Sp) || form.take(W::SpOrderedMetadata);
    if !form.take(W::Sync) || !form.take(W::Aligned) {
        return Err("only the `.sync.aligned` form is supported");
    }
    if is_sparse {
        return sparse(b, form);
    }
    let multiply = pick(form).ok_or(DISAGREES)?;
    let [d, x, y, c] = form.instruction().operands.as_slice() else { return Err(DISAGREES) };
    whole_warp(b)?;
    let [kind, sum] = multiply.kinds;
    let sources = [sources(b, x, kind)?, sources(b, y, kind)?, sources(b, c, sum)?];
    let results = dests(b, d, sum)?;
    emit(b, &multiply, &results, &sources)
}

/// Selects the multiplication by the form's shape, layouts and types.
fn pick(form: &mut Form<'_>) -> Option<Multiply> {
    let shapes = [
        W::M8n8k4,
        W::M16n8k4,
        W::M16n8k8,
        W::M16n8k16,
        W::M8n8k16,
        W::M16n8k32,
        W::M8n8k32,
        W::M16n8k64,
        W::M8n8k128,
        W::M16n8k128,
        W::M16n8k256,
    ];
    let shape = form.take_one(&shapes)?;
    let layouts = [form.take_one(&[W::Row, W::Col])?, form.take_one(&[W::Row, W::Col])?];
    match (shape, take_types(form)?) {
        (W::M8n8k4, [d, T::F16, T::F16, c]) => quad(layouts, d, c),
        _ if layouts != [W::Row, W::Col] => None,
        (_, types @ [T::F64, ..]) => double(form, shape, types),
        (_, types @ [T::S32, ..]) => integer(form, shape, types),
        (_, [d, _, _, c]) if d != c => None,
        (_, types) => float(shape, types),
    }
}

/// Takes the types of D, A, B and C.
fn take_types(form: &mut Form<'_>) -> Option<[T; 4]> {
    Some([form.ty()?, form.ty()?, form.ty()?, form.ty()?])
}

/// Selects a multiplication of f16, bf16, tf32 or bytes. `types` are those of D, A, B and C.
pub(super) fn float(shape: W, types: [T; 4]) -> Option<Multiply> {
    let (whole, half) = ([4, 2, 4, 4], [2, 1, 4, 4]);
    Some(match (shape, types) {
        (W::M16n8k16, [T::F32, T::F16, T::F16, T::F32]) => {
            Multiply::new(floats::<F16, Single, Single, 8, 16>, whole)
        }
        (W::M16n8k8, [T::F32, T::F16, T::F16, T::F32]) => {
            Multiply::new(floats::<F16, Single, Single, 4, 8>, half)
        }
        // Only used as a part of `wmma`.
        (W::M16n8k16, [T::F32, T::F16, T::F16, T::F16]) => {
            Multiply::new(floats::<F16, Widened, Single, 8, 16>, [4, 2, 2, 4])
        }
        (W::M16n8k16, [T::F16, T::F16, T::F16, T::F16]) => {
            Multiply::new(floats::<F16, Half, Half, 8, 16>, [4, 2, 2, 2])
        }
        (W::M16n8k8, [T::F16, T::F16, T::F16, T::F16]) => {
            Multiply::new(floats::<F16, Half, Half, 4, 8>, [2, 1, 2, 2])
        }
        (W::M16n8k16, [T::F32, T::BF16, T::BF16, T::F32]) => {
            Multiply::new(floats::<BF16, Single, Single, 8, 16>, whole)
        }
        (W::M16n8k8, [T::F32, T::BF16, T::BF16, T::F32]) => {
            Multiply::new(floats::<BF16, Single, Single, 4, 8>, half)
        }
        (W::M16n8k8, [T::F32, T::TF32, T::TF32, T::F32]) => {
            Multiply::new(floats::<TF32, Single, Single, 8, 8>, whole)
        }
        (W::M16n8k4, [T::F32, T::TF32, T::TF32, T::F32]) => {
            Multiply::new(floats::<TF32, Single, Single, 4, 4>, half)
        }
        (_, [d, a @ (T::E4M3 | T::E5M2), b @ (T::E4M3 | T::E5M2), c]) if c == d => {
            let multiply = match (shape, d) {
                (W::M16n8k32, T::F32) => Multiply::new(bytes::<Single, 8, 16>, whole),
                (W::M16n8k16, T::F32) => Multiply::new(bytes::<Single, 4, 8>, half),
                (W::M16n8k32, T::F16) => Multiply::new(bytes::<Half, 8, 16>, [4, 2, 2, 2]),
                (W::M16n8k16, T::F16) => Multiply::new(bytes::<Half, 4, 8>, [2, 1, 2, 2]),
                _ => return None,
            };
            let flag = |ty: T, flag: u64| if ty == T::E4M3 { flag } else { 0 };
            multiply.with(flag(a, A_E4M3) | flag(b, B_E4M3))
        }
        _ => return None,
    })
}

fn quad([a, b]: [W; 2], d: T, c: T) -> Option<Multiply> {
    let flag = |is: bool, flag: u64| if is { flag } else { 0 };
    let (d, c) = match (d, c) {
        (T::F32, T::F32) => (8, 8),
        (T::F32, T::F16) => (8, 4),
        (T::F16, T::F16) => (4, 4),
        _ => return None,
    };
    let imm = flag(a == W::Col, mma::A_COLUMNS)
        | flag(b == W::Row, mma::B_ROWS)
        | flag(c == 8, mma::C_SINGLE)
        | flag(d == 8, mma::D_SINGLE);
    Some(Multiply::new(mma::quads, [2, 2, c, d]).with(imm))
}

/// Selects a multiplication of f64. Takes a rounding mode from the form if present.
pub(super) fn double(form: &mut Form<'_>, shape: W, types: [T; 4]) -> Option<Multiply> {
    if types != [T::F64; 4] {
        return None;
    }
    let round = form.take_round().unwrap_or(0);
    let multiply = match shape {
        W::M8n8k4 => Multiply::new(mma::pick_doubles::<8, 4>(), [1, 1, 2, 2]),
        W::M16n8k4 => Multiply::new(mma::pick_doubles::<16, 4>(), [2, 1, 4, 4]),
        W::M16n8k8 => Multiply::new(mma::pick_doubles::<16, 8>(), [4, 2, 4, 4]),
        W::M16n8k16 => Multiply::new(mma::pick_doubles::<16, 16>(), [8, 4, 4, 4]),
        _ => return None,
    };
    Some(Multiply { kinds: [Kind::F64; 2], ..multiply }.with(round))
}

macro_rules! shapes {
    ($shape:expr, $dot:ty, [$small:pat, $tall:pat, $large:pat]) => {
        match $shape {
            $small => Multiply::new(pick_integers::<$dot, 8, 4>(), [1, 1, 2, 2]),
            $tall => Multiply::new(pick_integers::<$dot, 16, 4>(), [2, 1, 4, 4]),
            $large => Multiply::new(pick_integers::<$dot, 16, 8>(), [4, 2, 4, 4]),
            _ => return None,
        }
    };
}

/// Selects a multiplication of integers or bits. Takes `.satfinite` or the bit operation from the form if present.
pub(super) fn integer(form: &mut Form<'_>, shape: W, types: [T; 4]) -> Option<Multiply> {
    let [T::S32, a, b, T::S32] = types else { return None };
    let multiply = match (a, b) {
        (T::S8 | T::U8, T::S8 | T::U8) => {
            shapes!(shape, Integers<8>, [W::M8n8k16, W::M16n8k16, W::M16n8k32])
        }
        (T::S4 | T::U4, T::S4 | T::U4) => {
            shapes!(shape, Integers<4>, [W::M8n8k32, W::M16n8k32, W::M16n8k64])
        }
        (T::B1, T::B1) => {
            let how = form.take_one(&[W::Xor, W::And]).filter(|_| form.take(W::Popc))?;
            return Some(match how {
                W::Xor => shapes!(shape, Xor, [W::M8n8k128, W::M16n8k128, W::M16n8k256]),
                _ => shapes!(shape, And, [W::M8n8k128, W::M16n8k128, W::M16n8k256]),
            });
        }
        _ => return None,
    };
    Some(multiply.with(integer_modes(form, a, b)))
}

/// Returns the `imm` of an integer multiplication. Takes `.satfinite` from the form if present.
fn integer_modes(form: &mut Form<'_>, a: T, b: T) -> u64 {
    let flag = |is: bool, flag: u64| if is { flag } else { 0 };
    flag(form.take(W::Satfinite), SATURATES)
        | flag(a.kind() == ScalarKind::Signed, A_SIGNED)
        | flag(b.kind() == ScalarKind::Signed, B_SIGNED)
}

/// Returns the registers of an operand, which is a vector or a single register.
fn list(operand: &Operand) -> &[Operand] {
    match operand {
        Operand::Vector(parts) => parts,
        one => std::slice::from_ref(one),
    }
}

pub(super) fn sources(
    b: &mut Builder<'_>,
    operand: &Operand,
    kind: Kind,
) -> Result<Vec<Slot>, Problem> {
    list(operand).iter().map(|part| b.source(part, kind)).collect()
}

pub(super) fn dests(
    b: &mut Builder<'_>,
    operand: &Operand,
    kind: Kind,
) -> Result<Vec<Slot>, Problem> {
    let one = |part: &Operand| match part {
        Operand::Reg(id) if b.class_of(*id) != kind.class() => Err(DISAGREES),
        part => b.dest(part, kind, false),
    };
    list(operand).iter().map(one).collect()
}

/// Emits the multiplication. Fails if the fragments have the wrong sizes.
pub(super) fn emit(
    b: &mut Builder<'_>,
    multiply: &Multiply,
    d: &[Slot],
    [x, y, c]: &[Vec<Slot>; 3],
) -> Result<(), Problem> {
    if [x.len(), y.len(), c.len(), d.len()] != multiply.registers {
        return Err("the fragments do not match the shape");
    }
    let mut op = Op::new(multiply.run);
    op.imm = multiply.imm;
    op.extra = b.extras([d, x, y, c].into_iter().flatten().copied());
    b.emit(op)
}

/// `mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 d, a, b, c, e, 0;`. The `sp` modifier has been taken already.
pub(super) fn sparse(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let (multiply, metadata) = pick_sparse(form).ok_or(DISAGREES)?;
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

fn pick_sparse(form: &mut Form<'_>) -> Option<(Multiply, Metadata)> {
    let shapes = [W::M16n8k8, W::M16n8k16, W::M16n8k32, W::M16n8k64, W::M16n8k128];
    let shape = form.take_one(&shapes)?;
    if !form.take(W::Row) || !form.take(W::Col) {
        return None;
    }
    match take_types(form)? {
        [T::S32, a, b, T::S32] => integer_sparse(form, shape, a, b),
        [d, a, b, c] if d == c => float_sparse(shape, d, a, b),
        _ => None,
    }
}

/// Number of registers of A, of B, of C with the metadata, and of D.
const SMALL: [usize; 4] = [2, 2, 5, 4];
const LARGE: [usize; 4] = [4, 4, 5, 4];

fn float_sparse(shape: W, d: T, a: T, b: T) -> Option<(Multiply, Metadata)> {
    use Metadata::{FourLanes, OneLane, TwoLanesMixed};
    let halves = |[a, b, ..]: [usize; 4]| [a, b, 3, 2];
    let (handler, registers, metadata): (Handler, _, _) = match (shape, d, a, b) {
        (W::M16n8k16, T::F16, T::F16, T::F16) => {
            (sparse_floats::<F16, Half, 4, 8, 8, 16>, halves(SMALL), OneLane)
        }
        (W::M16n8k32, T::F16, T::F16, T::F16) => {
            (sparse_floats::<F16, Half, 8, 16, 16, 32>, halves(LARGE), TwoLanesMixed)
        }
        (W::M16n8k16, T::F32, T::F16, T::F16) => {
            (sparse_floats::<F16, Single, 4, 8, 8, 16>, SMALL, OneLane)
        }
        (W::M16n8k32, T::F32, T::F16, T::F16) => {
            (sparse_floats::<F16, Single, 8, 16, 16, 32>, LARGE, TwoLanesMixed)
        }
        (W::M16n8k16, T::F32, T::BF16, T::BF16) => {
            (sparse_floats::<BF16, Single, 4, 8, 8, 16>, SMALL, OneLane)
        }
        (W::M16n8k32, T::F32, T::BF16, T::BF16) => {
            (sparse_floats::<BF16, Single, 8, 16, 16, 32>, LARGE, TwoLanesMixed)
        }
        (W::M16n8k8, T::F32, T::TF32, T::TF32) => {
            (sparse_floats::<TF32, Single, 4, 4, 8, 8>, SMALL, OneLane)
        }
        (W::M16n8k16, T::F32, T::TF32, T::TF32) => {
            (sparse_floats::<TF32, Single, 8, 8, 16, 16>, LARGE, TwoLanesMixed)
        }
        (W::M16n8k64, T::F32, T::E4M3 | T::E5M2, T::E4M3 | T::E5M2) => {
            (sparse_bytes::<16>, LARGE, FourLanes)
        }
        _ => return None,
    };
    let flag = |ty: T, flag: u64| if ty == T::E4M3 { flag } else { 0 };
    let multiply = Multiply::new(handler, registers).with(flag(a, A_E4M3) | flag(b, B_E4M3));
    Some((multiply, metadata))
}

fn integer_sparse(form: &mut Form<'_>, shape: W, a: T, b: T) -> Option<(Multiply, Metadata)> {
    use Metadata::{FourLanes, TwoLanes};
    let (handler, registers, metadata) = match (a, b, shape) {
        (T::S8 | T::U8, T::S8 | T::U8, W::M16n8k32) => {
            (pick_sparse_integers::<8, 4, 8>(), SMALL, TwoLanes)
        }
        (T::S8 | T::U8, T::S8 | T::U8, W::M16n8k64) => {
            (pick_sparse_integers::<8, 8, 16>(), LARGE, FourLanes)
        }
        (T::S4 | T::U4, T::S4 | T::U4, W::M16n8k64) => {
            (pick_sparse_integers::<4, 4, 8>(), SMALL, TwoLanes)
        }
        (T::S4 | T::U4, T::S4 | T::U4, W::M16n8k128) => {
            (pick_sparse_integers::<4, 8, 16>(), LARGE, FourLanes)
        }
        _ => return None,
    };
    let multiply = Multiply::new(handler, registers).with(integer_modes(form, a, b));
    Some((multiply, metadata))
}
