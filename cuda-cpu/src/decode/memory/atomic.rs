//! `atom` and `red`, of a scalar or a vector.

use cuda_ptx::{Address, Operand, ScalarType as T, Word as W};
use half::{bf16, f16};

use super::load_store::{
    Where, access, elements, set_address, take_hints, take_space, without_policy,
};
use super::wide;
use super::wide::Wide;
use crate::decode::build::builder::{Builder, DISAGREES, Problem};
use crate::decode::form::Form;
use crate::exec::alu::select;
use crate::exec::memory::atomics::{
    Add, AddFloat, And, Cas, Dec, Exch, Inc, Max, MaxFloat, Min, MinFloat, Or, Xor, check_vector,
    run, run_cas_16, run_half,
};
use crate::exec::number::lane::{Kind, Lane, Two};
use crate::isa::address::SpaceKind;
use crate::isa::effect::{Access, AccessKind, Effect, Order};
use crate::isa::operand::Slot;
use crate::machine::code::{Handler, Op};

/// The parts that all elements of an instruction share.
struct Shared {
    atomic: Atomic,
    order: Order,
    kind: AccessKind,
    space: SpaceKind,
    ty: T,
}

/// The handler of an atomic.
struct Atomic {
    run: Handler,
    kind: Kind,
    operands: usize,
}

macro_rules! by {
    ($ty:expr, $op:ident, [$($name:ident: $t:ty),*]) => {
        match $ty {
            $(T::$name => Some((run::<$op<$t>> as Handler, <$t as Lane>::KIND)),)*
            _ => None,
        }
    };
}

/// Selects `min` or `max` of halves, which exist only for vectors.
fn extreme(name: W, ty: T) -> Option<Atomic> {
    let (run, kind): (Handler, Kind) = match (name, ty) {
        (W::Min, T::F16) => (run_half::<MinFloat<f16>>, Kind::W32),
        (W::Min, T::BF16) => (run_half::<MinFloat<bf16>>, Kind::W32),
        (W::Max, T::F16) => (run_half::<MaxFloat<f16>>, Kind::W32),
        (W::Max, T::BF16) => (run_half::<MaxFloat<bf16>>, Kind::W32),
        (W::Min, _) => by!(ty, MinFloat, [F16x2: Two<f16>, BF16x2: Two<bf16>])?,
        (W::Max, _) => by!(ty, MaxFloat, [F16x2: Two<f16>, BF16x2: Two<bf16>])?,
        _ => return None,
    };
    Some(Atomic { run, kind, operands: 1 })
}

/// Selects the atomic with this name and type.
fn select(name: W, ty: T) -> Option<Atomic> {
    let half = |run: Handler| Some((run, Kind::W32));
    let found = match (name, ty) {
        (W::Cas, T::B16) => half(run_cas_16),
        (W::Add, T::F16) => half(run_half::<AddFloat<f16>>),
        (W::Add, T::BF16) => half(run_half::<AddFloat<bf16>>),
        (W::Add, T::F32 | T::F64 | T::F16x2 | T::BF16x2) => {
            by!(ty, AddFloat, [F32: f32, F64: f64, F16x2: Two<f16>, BF16x2: Two<bf16>])
        }
        (W::Add, _) => by!(ty, Add, [U32: u32, S32: i32, U64: u64, S64: i64]),
        (W::And, _) => by!(ty, And, [B32: u32, B64: u64]),
        (W::Or, _) => by!(ty, Or, [B32: u32, B64: u64]),
        (W::Xor, _) => by!(ty, Xor, [B32: u32, B64: u64]),
        (W::Min, _) => by!(ty, Min, [U32: u32, S32: i32, U64: u64, S64: i64]),
        (W::Max, _) => by!(ty, Max, [U32: u32, S32: i32, U64: u64, S64: i64]),
        (W::Inc, _) => by!(ty, Inc, [U32: u32]),
        (W::Dec, _) => by!(ty, Dec, [U32: u32]),
        (W::Cas, _) => by!(ty, Cas, [B32: u32, U32: u32, S32: i32, B64: u64, U64: u64]),
        (W::Exch, _) => by!(ty, Exch, [B32: u32, U32: u32, S32: i32, B64: u64, U64: u64]),
        _ => None,
    };
    let operands = if name == W::Cas { 2 } else { 1 };
    found.map(|(run, kind)| Atomic { run, kind, operands })
}

/// Decodes `atom`, which returns the old value, or `red`.
pub(crate) fn atomic(
    b: &mut Builder<'_>,
    form: &mut Form<'_>,
    returns: bool,
) -> Result<(), Problem> {
    let order = take_hints(form).unwrap_or(Order::RELAXED);
    form.take(W::Noftz);
    let Where::Space(space) = take_space(form) else { return Err(DISAGREES) };
    let names = [W::Add, W::And, W::Or, W::Xor, W::Min, W::Max, W::Inc, W::Dec, W::Cas, W::Exch];
    let name = form.take_one(&names).ok_or(DISAGREES)?;
    let operands = without_policy(form);
    let (dest, rest) = match operands {
        [d, rest @ ..] if returns => (Some(d), rest),
        rest => (None, rest),
    };
    let [Operand::Address(address), values @ ..] = rest else { return Err(DISAGREES) };
    let is_vector = [W::V2, W::V4, W::V8].iter().any(|v| form.has(*v));
    let (Some(first), true) =
        (values.first(), !is_vector || matches!(name, W::Add | W::Min | W::Max))
    else {
        return Err(DISAGREES);
    };
    let parts = elements(form, first)?;
    let ty = form.ty().ok_or(DISAGREES)?;
    if ty == T::B128 {
        let dest = dest.unwrap_or(&Operand::Discard);
        let wide = Wide { order, space, dest, address, values };
        let fits = !is_vector && returns;
        return if fits { wide::atomic(b, name, &wide) } else { Err(DISAGREES) };
    }
    let found = match (is_vector, name) {
        (true, W::Min | W::Max) => extreme(name, ty),
        _ => select(name, ty),
    };
    let atomic = found.ok_or(DISAGREES)?;
    if values.len() != atomic.operands {
        return Err(DISAGREES);
    }
    let kind = if name == W::Exch { AccessKind::Exchange } else { AccessKind::Update };
    let shared = Shared { atomic, order, kind, space, ty };
    if !is_vector {
        let first = b.source(first, shared.atomic.kind)?;
        return atomic_element(
            b,
            &shared,
            dest.unwrap_or(&Operand::Discard),
            address,
            first,
            values.get(1),
        );
    }
    // Each element is a separate atomic operation. The vector as a whole is not atomic.
    let whole = i64::from(ty.size()) * parts.len() as i64;
    if ty.size() > 4 || !matches!(whole, 4 | 8 | 16) {
        return Err(DISAGREES);
    }
    let dests = match dest {
        None => vec![Operand::Discard; parts.len()],
        Some(Operand::Vector(dests)) if dests.len() == parts.len() => dests.clone(),
        Some(_) => return Err(DISAGREES),
    };
    let sources = sources(b, shared.atomic.kind, parts, &dests)?;
    let mut check = Op::new(check_vector);
    set_address(b, &mut check, address, space)?;
    check.extra = b.extras([Slot(space as u32), Slot(whole as u32)]);
    b.emit_before(check)?;
    for (i, (&source, dest)) in sources.iter().zip(&dests).enumerate() {
        let offset = address.offset.wrapping_add(i as i64 * i64::from(ty.size()));
        atomic_element(b, &shared, dest, &Address { offset, ..*address }, source, None)?;
    }
    Ok(())
}

/// Returns the source registers of the elements. A source that an earlier element's result overwrites is copied first.
fn sources(
    b: &mut Builder<'_>,
    kind: Kind,
    parts: &[Operand],
    dests: &[Operand],
) -> Result<Vec<Slot>, Problem> {
    let mut sources = Vec::with_capacity(parts.len());
    for (i, part) in parts.iter().enumerate() {
        let mut source = b.source(part, kind)?;
        if matches!(part, Operand::Reg(_)) && dests[..i].contains(part) {
            let mut op = Op::new(select::copy::<u32>);
            (op.a, op.d) = (source, b.frame.temporary(kind.class()));
            source = op.d;
            b.emit_before(op)?;
        }
        sources.push(source);
    }
    Ok(sources)
}

/// Decodes the operation on one element.
fn atomic_element(
    b: &mut Builder<'_>,
    shared: &Shared,
    dest: &Operand,
    address: &Address,
    first: Slot,
    third: Option<&Operand>,
) -> Result<(), Problem> {
    let Shared { atomic, order, kind, space, ty } = shared;
    let mut op = Op::new(atomic.run);
    op.b = first;
    let third = match third {
        Some(value) => b.source(value, atomic.kind)?,
        None => Slot::NONE,
    };
    set_address(b, &mut op, address, *space)?;
    op.extra = b.extras([third, Slot(*space as u32)]);
    op.d = b.dest(dest, atomic.kind, false)?;
    let order = *order;
    b.states(Effect::Access(Access { order, ..access(*kind, *space, *ty, &op) }));
    b.emit(op)
}
