//! Video instructions, as in `vadd.s32.u32.s32 d, a.h1, b.b0;` or `vadd4.u32.u32.u32.add d.b10, a.b3210, b.b7654, c;`.
//!
//! The scalar instructions behave as on an H200, which differs from the manual in places: see `exec::alu::video`.

use cuda_ptx::{Operand, ScalarType as T, Word as W};

use crate::decode::build::builder::{Builder, DISAGREES, Problem};
use crate::decode::form::Form;
use crate::exec::alu::video::Scalar;
use crate::exec::alu::video::{
    A_PART_AT, A_SIGNED, ACCUMULATE, B_PART_AT, B_SIGNED, COMPARE_AT, D_SIGNED, LARGER, MASK_AT,
    NEGATE_C, NEGATE_PRODUCT, PLUS_ONE, SATURATE, SCALE_AT, SMALLER, Simd, Video, WRAP, part_code,
};
use crate::exec::map::ternary;
use crate::exec::number::lane::Kind;
use crate::machine::code::Op;

/// Comparison operators, by their number in `imm`.
const COMPARE: [W; 6] = [W::Eq, W::Ne, W::Lt, W::Le, W::Gt, W::Ge];

/// Decodes a video instruction. A SIMD instruction has 2 or 4 parts, others have 1.
pub(crate) fn video(
    b: &mut Builder<'_>,
    form: &mut Form<'_>,
    video: Video,
    parts: u32,
) -> Result<(), Problem> {
    let modifiers = modifiers(form, video, parts > 1).ok_or(DISAGREES)?;
    let operands = form.instruction().operands.as_slice();
    let merges = parts == 1 && operands.first().is_some_and(|d| !part(d).is_empty());
    let second = modifiers & (ACCUMULATE | SMALLER | LARGER) != 0;
    let three = parts > 1 || second || merges || video == Video::MultiplyAdd;
    let (d, x, y, c) = match operands {
        _ if merges && (second || video == Video::MultiplyAdd) => return Err(DISAGREES),
        [d, x, y] if !three => (d, x, y, None),
        [d, x, y, c] if three => (d, x, y, Some(c)),
        _ => return Err(DISAGREES),
    };
    let signs = match (video, c) {
        (Video::MultiplyAdd, Some(c)) if modifiers & PLUS_ONE == 0 => negations(x, y, c)?,
        _ if [x, y].into_iter().chain(c).any(is_negated) => return Err(DISAGREES),
        _ => 0,
    };
    let (run, chosen) = match parts {
        1 => (ternary::<Scalar>(), scalar_parts([d, x, y])?),
        2 => (ternary::<Simd<2>>(), simd_parts([d, x, y], 2)?),
        _ => (ternary::<Simd<4>>(), simd_parts([d, x, y], 4)?),
    };
    let mut op = Op::new(run.run);
    op.imm = video as u64 | modifiers | signs | chosen;
    let zero = Operand::Int(0);
    op.a = b.source(&whole(x), Kind::W32)?;
    op.b = b.source(&whole(y), Kind::W32)?;
    op.c = b.source(&whole(c.unwrap_or(&zero)), Kind::W32)?;
    op.d = b.dest(&whole(d), Kind::W32, false)?;
    b.emit(op)
}

/// Returns types, saturation and the other modifiers as `imm` bits.
fn modifiers(form: &mut Form<'_>, video: Video, simd: bool) -> Option<u64> {
    let mut imm = 0;
    let signs: &[u64] = match video {
        // The result of a comparison has no type of its own.
        Video::Set => &[A_SIGNED, B_SIGNED],
        _ => &[D_SIGNED, A_SIGNED, B_SIGNED],
    };
    for sign in signs {
        imm |= match form.ty()? {
            T::S32 => *sign,
            T::U32 => 0,
            _ => return None,
        };
    }
    match video {
        Video::Set => {
            imm |= form.take_code(&COMPARE)? << COMPARE_AT;
        }
        Video::ShiftLeft | Video::ShiftRight => {
            if imm & B_SIGNED != 0 {
                return None;
            }
            imm |= if form.take_one(&[W::Clamp, W::Wrap])? == W::Wrap { WRAP } else { 0 };
        }
        _ => {}
    }
    if video != Video::Set && form.take(W::Sat) {
        imm |= SATURATE;
    }
    if video == Video::MultiplyAdd {
        let scale = match form.take_one(&[W::Shr7, W::Shr15]) {
            Some(W::Shr7) => 7,
            Some(_) => 15,
            None => 0,
        };
        let one = if form.take(W::Po) { PLUS_ONE } else { 0 };
        return Some(imm | scale << SCALE_AT | one);
    }
    let second: &[W] = if simd { &[W::Add] } else { &[W::Add, W::Min, W::Max] };
    imm |= match form.take_one(second) {
        Some(W::Add) => ACCUMULATE,
        Some(W::Min) => SMALLER,
        Some(_) => LARGER,
        None => 0,
    };
    Some(imm)
}

fn is_negated(operand: &Operand) -> bool {
    matches!(operand, Operand::Part(p) if p.negated)
}

/// Returns the negations of `vmad`: of the product or of `c`.
fn negations(x: &Operand, y: &Operand, c: &Operand) -> Result<u64, Problem> {
    let product = is_negated(x) != is_negated(y);
    match (product, is_negated(c)) {
        (true, true) => Err("either the product or the third source can be negated, not both"),
        (true, false) => Ok(NEGATE_PRODUCT),
        (false, true) => Ok(NEGATE_C),
        (false, false) => Ok(0),
    }
}

/// Returns the part selector of an operand. It is empty if there is none.
fn part(operand: &Operand) -> &str {
    match operand {
        Operand::Part(p) => &p.part,
        _ => "",
    }
}

/// Returns the operand without its part selector.
fn whole(operand: &Operand) -> Operand {
    match operand {
        Operand::Part(p) => Operand::Reg(p.register),
        other => other.clone(),
    }
}

fn scalar_parts(operands: [&Operand; 3]) -> Result<u64, Problem> {
    let at = [MASK_AT, A_PART_AT, B_PART_AT];
    operands.into_iter().zip(at).try_fold(0, |imm, (operand, at)| {
        Ok(imm | part_code(part(operand)).ok_or(DISAGREES)? << at)
    })
}

/// Returns the mask of results, and three bits for each source field: first those of `a`, then those of `b`.
fn simd_parts([d, x, y]: [&Operand; 3], parts: u32) -> Result<u64, Problem> {
    let letter = if parts == 2 { 'h' } else { 'b' };
    let digits = |operand: &Operand, most: u32| -> Result<Vec<u64>, Problem> {
        let Some(text) = part(operand).strip_prefix(letter) else {
            return if part(operand).is_empty() { Ok(Vec::new()) } else { Err(DISAGREES) };
        };
        let digits = text.chars().rev().map(|c| c.to_digit(most).map(u64::from));
        digits.collect::<Option<_>>().ok_or(DISAGREES)
    };
    let mask = match digits(d, parts)? {
        none if none.is_empty() => (1 << parts) - 1,
        some => some.iter().fold(0, |mask, digit| mask | 1 << digit),
    };
    let mut imm = mask << MASK_AT;
    for (operand, at, first) in [(x, A_PART_AT, 0), (y, B_PART_AT, u64::from(parts))] {
        let chosen = match digits(operand, 2 * parts)? {
            none if none.is_empty() => (first..first + u64::from(parts)).collect(),
            some if some.len() == parts as usize => some,
            _ => return Err(DISAGREES),
        };
        imm |= chosen.iter().enumerate().fold(0, |imm, (i, digit)| imm | digit << (3 * i)) << at;
    }
    Ok(imm)
}
