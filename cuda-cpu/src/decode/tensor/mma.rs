//! `mma`: selects the multiplication and decodes its fragments.

use cuda_ptx::Operand;

use super::sparse::sparse;
use crate::decode::build::builder::{Builder, OPERANDS, Problem, UNKNOWN};
use crate::decode::collective::whole_warp;
use crate::exec::form::Form;
use crate::exec::number::lane::Kind;
use crate::exec::number::rounding::Round;
use crate::exec::tensor::floats::{
    A_E4M3, B_E4M3, BF16, F16, Half, Single, TF32, Widened, bytes, floats,
};
use crate::exec::tensor::integers::{
    A_SIGNED, And, B_SIGNED, Integers, SATURATES, Xor, pick as integers,
};
use crate::exec::tensor::{doubles, quads};
use crate::isa::slot::Slot;
use crate::machine::code::{Handler, Op};

/// Element types.
pub(super) const TYPES: [&str; 15] = [
    "f16", "bf16", "tf32", "f32", "f64", "e4m3", "e5m2", "s8", "u8", "s4", "u4", "b1", "s32",
    "e2m1", "e3m2",
];

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
    let is_sparse = form.take("sp") || form.take("sp::ordered_metadata");
    if form.instruction().modifiers.iter().any(|m| m.starts_with("kind::")) {
        return Err("only the types of sm_90 are supported");
    }
    if !form.take("sync") || !form.take("aligned") {
        return Err("only the `.sync.aligned` form is supported");
    }
    if is_sparse {
        return sparse(b, form);
    }
    let multiply = pick(form).filter(|_| form.is_spent()).ok_or(UNKNOWN)?;
    let [d, x, y, c] = form.instruction().operands.as_slice() else { return Err(OPERANDS) };
    whole_warp(b)?;
    let [kind, sum] = multiply.kinds;
    let sources = [sources(b, x, kind)?, sources(b, y, kind)?, sources(b, c, sum)?];
    let results = dests(b, d, sum)?;
    emit(b, &multiply, &results, &sources)
}

/// Selects the multiplication by the form's shape, layouts and types.
fn pick(form: &mut Form<'_>) -> Option<Multiply> {
    let shapes = [
        "m8n8k4",
        "m16n8k4",
        "m16n8k8",
        "m16n8k16",
        "m8n8k16",
        "m16n8k32",
        "m8n8k32",
        "m16n8k64",
        "m8n8k128",
        "m16n8k128",
        "m16n8k256",
    ];
    let shape = form.take_one(&shapes)?;
    let layouts = [form.take_one(&["row", "col"])?, form.take_one(&["row", "col"])?];
    let types = [(); 4].map(|()| form.take_one(&TYPES).unwrap_or(""));
    match (shape, types) {
        ("m8n8k4", [d, "f16", "f16", c]) => quad(layouts, d, c),
        _ if layouts != ["row", "col"] => None,
        (_, ["f64", ..]) => double(form, shape, types),
        (_, ["s32", ..]) => integer(form, shape, types),
        (_, [d, _, _, c]) if d != c => None,
        _ => float(shape, types),
    }
}

/// Selects a multiplication of f16, bf16, tf32 or bytes. `types` are those of D, A, B and C.
pub(super) fn float(shape: &str, types: [&str; 4]) -> Option<Multiply> {
    let (whole, half) = ([4, 2, 4, 4], [2, 1, 4, 4]);
    Some(match (shape, types) {
        ("m16n8k16", ["f32", "f16", "f16", "f32"]) => {
            Multiply::new(floats::<F16, Single, Single, 8, 16>, whole)
        }
        ("m16n8k8", ["f32", "f16", "f16", "f32"]) => {
            Multiply::new(floats::<F16, Single, Single, 4, 8>, half)
        }
        // Only used as a part of `wmma`.
        ("m16n8k16", ["f32", "f16", "f16", "f16"]) => {
            Multiply::new(floats::<F16, Widened, Single, 8, 16>, [4, 2, 2, 4])
        }
        ("m16n8k16", ["f16", "f16", "f16", "f16"]) => {
            Multiply::new(floats::<F16, Half, Half, 8, 16>, [4, 2, 2, 2])
        }
        ("m16n8k8", ["f16", "f16", "f16", "f16"]) => {
            Multiply::new(floats::<F16, Half, Half, 4, 8>, [2, 1, 2, 2])
        }
        ("m16n8k16", ["f32", "bf16", "bf16", "f32"]) => {
            Multiply::new(floats::<BF16, Single, Single, 8, 16>, whole)
        }
        ("m16n8k8", ["f32", "bf16", "bf16", "f32"]) => {
            Multiply::new(floats::<BF16, Single, Single, 4, 8>, half)
        }
        ("m16n8k8", ["f32", "tf32", "tf32", "f32"]) => {
            Multiply::new(floats::<TF32, Single, Single, 8, 8>, whole)
        }
        ("m16n8k4", ["f32", "tf32", "tf32", "f32"]) => {
            Multiply::new(floats::<TF32, Single, Single, 4, 4>, half)
        }
        (_, [d, a @ ("e4m3" | "e5m2"), b @ ("e4m3" | "e5m2"), c]) if c == d => {
            let multiply = match (shape, d) {
                ("m16n8k32", "f32") => Multiply::new(bytes::<Single, 8, 16>, whole),
                ("m16n8k16", "f32") => Multiply::new(bytes::<Single, 4, 8>, half),
                ("m16n8k32", "f16") => Multiply::new(bytes::<Half, 8, 16>, [4, 2, 2, 2]),
                ("m16n8k16", "f16") => Multiply::new(bytes::<Half, 4, 8>, [2, 1, 2, 2]),
                _ => return None,
            };
            let flag = |ty: &str, flag: u64| if ty == "e4m3" { flag } else { 0 };
            multiply.with(flag(a, A_E4M3) | flag(b, B_E4M3))
        }
        _ => return None,
    })
}

fn quad([a, b]: [&str; 2], d: &str, c: &str) -> Option<Multiply> {
    let flag = |is: bool, flag: u64| if is { flag } else { 0 };
    let (d, c) = match (d, c) {
        ("f32", "f32") => (8, 8),
        ("f32", "f16") => (8, 4),
        ("f16", "f16") => (4, 4),
        _ => return None,
    };
    let imm = flag(a == "col", quads::A_COLUMNS)
        | flag(b == "row", quads::B_ROWS)
        | flag(c == 8, quads::C_SINGLE)
        | flag(d == 8, quads::D_SINGLE);
    Some(Multiply::new(quads::quads, [2, 2, c, d]).with(imm))
}

/// Selects a multiplication of f64. Takes a rounding mode from the form if present.
pub(super) fn double(form: &mut Form<'_>, shape: &str, types: [&str; 4]) -> Option<Multiply> {
    if types != ["f64"; 4] {
        return None;
    }
    let round = form.take_one(&["rn", "rz", "rm", "rp"]).map_or(0, Round::code);
    let multiply = match shape {
        "m8n8k4" => Multiply::new(doubles::pick::<8, 4>(), [1, 1, 2, 2]),
        "m16n8k4" => Multiply::new(doubles::pick::<16, 4>(), [2, 1, 4, 4]),
        "m16n8k8" => Multiply::new(doubles::pick::<16, 8>(), [4, 2, 4, 4]),
        "m16n8k16" => Multiply::new(doubles::pick::<16, 16>(), [8, 4, 4, 4]),
        _ => return None,
    };
    Some(Multiply { kinds: [Kind::F64; 2], ..multiply }.with(round))
}

macro_rules! shapes {
    ($shape:expr, $dot:ty, [$small:literal, $tall:literal, $large:literal]) => {
        match $shape {
            $small => Multiply::new(integers::<$dot, 8, 4>(), [1, 1, 2, 2]),
            $tall => Multiply::new(integers::<$dot, 16, 4>(), [2, 1, 4, 4]),
            $large => Multiply::new(integers::<$dot, 16, 8>(), [4, 2, 4, 4]),
            _ => return None,
        }
    };
}

/// Selects a multiplication of integers or bits. Takes `.satfinite` or the bit operation from the form if present.
pub(super) fn integer(form: &mut Form<'_>, shape: &str, types: [&str; 4]) -> Option<Multiply> {
    let ["s32", a, b, "s32"] = types else { return None };
    let multiply = match (a, b) {
        ("s8" | "u8", "s8" | "u8") => {
            shapes!(shape, Integers<8>, ["m8n8k16", "m16n8k16", "m16n8k32"])
        }
        ("s4" | "u4", "s4" | "u4") => {
            shapes!(shape, Integers<4>, ["m8n8k32", "m16n8k32", "m16n8k64"])
        }
        ("b1", "b1") => {
            let how = form.take_one(&["xor", "and"]).filter(|_| form.take("popc"))?;
            return Some(match how {
                "xor" => shapes!(shape, Xor, ["m8n8k128", "m16n8k128", "m16n8k256"]),
                _ => shapes!(shape, And, ["m8n8k128", "m16n8k128", "m16n8k256"]),
            });
        }
        _ => return None,
    };
    Some(multiply.with(integer_modes(form, a, b)))
}

/// Returns the `imm` of an integer multiplication. Takes `.satfinite` from the form if present.
pub(super) fn integer_modes(form: &mut Form<'_>, a: &str, b: &str) -> u64 {
    let flag = |is: bool, flag: u64| if is { flag } else { 0 };
    flag(form.take("satfinite"), SATURATES)
        | flag(a.starts_with('s'), A_SIGNED)
        | flag(b.starts_with('s'), B_SIGNED)
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
        Operand::Reg(id) if b.class_of(*id) != kind.class() => Err(OPERANDS),
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
