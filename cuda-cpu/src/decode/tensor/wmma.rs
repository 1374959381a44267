//! `wmma.mma`, composed of `mma` multiplications. For `wmma.load` and `wmma.store` see `wmma_load_store`.
//!
//! Fragments are opaque to programs. The CPU device uses the layout of an H200, which places fragments of `mma` side by
//! side. For `m8n32k16` the product is transposed: the B fragment becomes `mma`'s A operand, and the A fragment its B
//! operand. Fragments of f16 have eight registers. Those that are not needed repeat others.

use cuda_ptx::{ScalarType as T, Word as W};

use super::{
    mma::{Multiply, dests, double, emit, float, integer, sources},
    wmma_load_store,
};
use crate::decode::form::Form;
use crate::{
    decode::{
        build::builder::{Builder, DISAGREES, Problem},
        collective::whole_warp,
    },
    exec::{alu::select, tensor::floats::pack_halves},
    isa::slot::{Class, Slot},
    machine::code::Op,
};

/// Decodes `wmma` in all forms.
pub(crate) fn wmma(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let what = form.take_one(&[W::Load, W::Store, W::Mma]).ok_or(DISAGREES)?;
    if !form.take(W::Sync) || !form.take(W::Aligned) {
        return Err("only the `.sync.aligned` form is supported");
    }
    match what {
        W::Load => wmma_load_store::load(b, form),
        W::Store => wmma_load_store::store(b, form),
        _ => mma(b, form),
    }
}

/// The composition of a shape from multiplications.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Made {
    /// A single multiplication.
    Once,
    /// Two multiplications for the same rows and different columns.
    Wide,
    /// Two multiplications for different rows and the same columns.
    Tall,
    /// As `Tall`, with the product transposed.
    Transposed,
    /// As `Wide`, each in two steps of half the depth.
    Deep,
}

struct Plan {
    multiply: Multiply,
    made: Made,
    /// Whether C is f32 and D is f16, so that the results are rounded again at the end.
    pack: bool,
    /// Number of registers of the fragments of A and B.
    registers: [usize; 2],
}

/// One multiplication, as the indices of the first registers of A, B, C and D. Without C, it accumulates onto D.
type Step = (usize, usize, Option<usize>, usize);

impl Plan {
    fn steps(&self) -> Vec<Step> {
        let [a, b, c, d] = self.multiply.registers;
        match self.made {
            Made::Once => vec![(0, 0, Some(0), 0)],
            Made::Wide => vec![(0, 0, Some(0), 0), (0, b, Some(c), d)],
            Made::Tall | Made::Transposed => vec![(0, 0, Some(0), 0), (a, 0, Some(c), d)],
            Made::Deep => {
                vec![
                    (0, 0, Some(0), 0),
                    (a, b, None, 0),
                    (0, 2 * b, Some(c), d),
                    (a, 3 * b, None, d),
                ]
            }
        }
    }
}

fn plan(form: &mut Form<'_>) -> Option<Plan> {
    let shapes =
        [W::M16n16k16, W::M8n32k16, W::M32n8k16, W::M16n16k8, W::M8n8k4, W::M8n8k32, W::M8n8k128];
    let shape = form.take_one(&shapes)?;
    let layouts = [form.take_one(&[W::Row, W::Col])?, form.take_one(&[W::Row, W::Col])?];
    let (d, second) = (form.ty()?, form.ty()?);
    // The types of A and B are not written if they are f16.
    let (types, halves) = match form.ty() {
        Some(b) => ([d, second, b, form.ty()?], false),
        None => ([d, T::F16, T::F16, second], true),
    };
    let made = match shape {
        W::M16n16k16 => Made::Wide,
        W::M8n32k16 => Made::Transposed,
        W::M32n8k16 => Made::Tall,
        W::M16n16k8 => Made::Deep,
        _ => Made::Once,
    };
    let (multiply, pack) = match (made, types) {
        (Made::Once, [T::F64, ..]) => (double(form, shape, types)?, false),
        (Made::Once, [_, a, b, _]) if layouts == [W::Row, W::Col] && a == b => {
            (integer(form, shape, types)?, false)
        }
        (Made::Deep, [_, T::TF32, ..]) => (float(W::M16n8k4, types)?, false),
        (Made::Once | Made::Deep, _) => return None,
        (_, [T::F16, a, b, T::F32]) if halves => {
            (float(W::M16n8k16, [T::F32, a, b, T::F32])?, true)
        }
        _ if halves => (float(W::M16n8k16, types)?, false),
        (_, [_, T::BF16, ..]) => (float(W::M16n8k16, types)?, false),
        (_, [_, a @ (T::S8 | T::U8), b, _]) if a == b => {
            (integer(form, W::M16n8k16, types)?, false)
        }
        _ => return None,
    };
    let [a, b, ..] = multiply.registers;
    let registers = match made {
        _ if halves => [8, 8],
        Made::Once => [a, b],
        Made::Wide => [a, 2 * b],
        Made::Tall => [2 * a, b],
        Made::Transposed => [b, 2 * a],
        Made::Deep => [2 * a, 4 * b],
    };
    Some(Plan { multiply, made, pack, registers })
}

/// `wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 d, a, b, c;`
fn mma(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let plan = plan(form).ok_or(DISAGREES)?;
    let [d, x, y, c] = form.instruction().operands.as_slice() else { return Err(DISAGREES) };
    let [kind, sum] = plan.multiply.kinds;
    whole_warp(b)?;
    let (x, y, c) = (sources(b, x, kind)?, sources(b, y, kind)?, sources(b, c, sum)?);
    let d = dests(b, d, sum)?;
    let sums = if plan.made == Made::Once { 1 } else { 2 } * plan.multiply.registers[3];
    let results = if plan.pack { sums / 2 } else { sums };
    if [x.len(), y.len()] != plan.registers || d.len() != results {
        return Err("the fragments do not match the shape");
    }
    // A result register may be the source of a later step.
    let aside = plan.pack
        || plan.made != Made::Once && d.iter().any(|d| [&x, &y, &c].iter().any(|s| s.contains(d)));
    let class = sum.class();
    let into: Vec<Slot> =
        if aside { (0..sums).map(|_| b.frame.temporary(class)).collect() } else { d.clone() };
    let (first, second) = if plan.made == Made::Transposed { (&y, &x) } else { (&x, &y) };
    run(b, &plan, [first, second, &c], &into)?;
    match (aside, plan.pack) {
        (true, true) => pack(b, &into, &d),
        (true, false) => copy(b, &into, &d, class),
        _ => Ok(()),
    }
}

fn run(
    b: &mut Builder<'_>,
    plan: &Plan,
    [x, y, c]: [&Vec<Slot>; 3],
    into: &[Slot],
) -> Result<(), Problem> {
    let [of_x, of_y, of_c, of_d] = plan.multiply.registers;
    let part = |slots: &[Slot], first: usize, count: usize| {
        slots.get(first..first + count).map(<[Slot]>::to_vec).ok_or(DISAGREES)
    };
    for (at_x, at_y, at_c, at_d) in plan.steps() {
        let results = part(into, at_d, of_d)?;
        let sums = match at_c {
            Some(at) => part(c, at, of_c)?,
            None => results.clone(),
        };
        let sources = [part(x, at_x, of_x)?, part(y, at_y, of_y)?, sums];
        emit(b, &plan.multiply, &results, &sources)?;
    }
    Ok(())
}

fn pack(b: &mut Builder<'_>, from: &[Slot], to: &[Slot]) -> Result<(), Problem> {
    for (from, to) in from.chunks(2).zip(to) {
        let mut op = Op::new(pack_halves);
        (op.a, op.b, op.d) = (from[0], from[1], *to);
        b.emit(op)?;
    }
    Ok(())
}

fn copy(b: &mut Builder<'_>, from: &[Slot], to: &[Slot], class: Class) -> Result<(), Problem> {
    for (from, to) in from.iter().zip(to) {
        let mut op = Op::new(match class {
            Class::W64 => select::copy::<u64>,
            _ => select::copy::<u32>,
        });
        (op.a, op.d) = (*from, *to);
        b.emit(op)?;
    }
    Ok(())
}
