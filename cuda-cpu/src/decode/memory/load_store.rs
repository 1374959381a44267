//! `ld` and `st`.

use cuda_ptx::{Address, AddressBase, Operand, ScalarType as T, Space, Symbol, Word as W};

use super::wide;
use super::wide::Wide;
use crate::decode::build::builder::{Builder, DISAGREES, Problem};
use crate::decode::form::Form;
use crate::exec::control;
use crate::exec::memory::load_store::{Handlers, handlers};
use crate::exec::memory::locate::NARROW_ADDRESS;
use crate::exec::number::lane::Kind;
use crate::isa::address::SpaceKind;
use crate::isa::effect::{Access, AccessKind, Effect, Order, Values};
use crate::isa::index;
use crate::isa::operand::{PresetValue, Slot};
use crate::machine::code::Op;

const SCOPES: [W; 4] = [W::Cta, W::Cluster, W::Gpu, W::Sys];
const CACHING: [W; 21] = [
    W::Ca,
    W::Cg,
    W::Cs,
    W::Lu,
    W::Cv,
    W::Wb,
    W::Wt,
    W::Nc,
    W::Mmio,
    W::Weak,
    W::L1EvictNormal,
    W::L1EvictUnchanged,
    W::L1EvictFirst,
    W::L1EvictLast,
    W::L1NoAllocate,
    W::L264B,
    W::L2128B,
    W::L2256B,
    W::L2EvictFirst,
    W::L2EvictLast,
    W::L2EvictNormal,
];
const ORDERS: [W; 5] = [W::Volatile, W::Relaxed, W::Acquire, W::Release, W::AcqRel];

/// Returns the order of a modifier. `volatile` and `relaxed` alone order nothing.
pub(in crate::decode) fn order_of(modifier: W) -> Order {
    Order {
        strong: true,
        acquires: matches!(modifier, W::Acquire | W::AcqRel),
        releases: matches!(modifier, W::Release | W::AcqRel),
    }
}

/// Takes caching hints and scopes, which have no effect. Returns the order of the access if it is one with which
/// threads wait for each other.
pub(super) fn take_hints(form: &mut Form<'_>) -> Option<Order> {
    while form.take_one(&CACHING).is_some() {}
    let order = form.take_one(&ORDERS).map(order_of);
    while form.take_one(&SCOPES).is_some() {}
    order
}

/// Returns the operands without a cache policy, which has no effect.
pub(super) fn without_policy<'a>(form: &mut Form<'a>) -> &'a [Operand] {
    let operands = form.instruction().operands.as_slice();
    match operands {
        [rest @ .., _] if form.take(W::L2CacheHint) => rest,
        all => all,
    }
}

/// The state spaces of generic addresses, as modifiers.
pub(in crate::decode) const GENERIC_SPACES: [W; 8] = [
    W::Global,
    W::Const,
    W::Shared,
    W::SharedCta,
    W::SharedCluster,
    W::Local,
    W::Param,
    W::ParamEntry,
];

pub(super) enum Where {
    Space(SpaceKind),
    Param,
}

pub(super) fn take_space(form: &mut Form<'_>) -> Where {
    match form.take_one(&GENERIC_SPACES).or_else(|| form.take_one(&[W::ParamFunc])) {
        Some(W::Global | W::Const) => Where::Space(SpaceKind::Global),
        Some(W::Shared | W::SharedCta | W::SharedCluster) => Where::Space(SpaceKind::Shared),
        Some(W::Local) => Where::Space(SpaceKind::Local),
        Some(_) => Where::Param,
        None => Where::Space(SpaceKind::Generic),
    }
}

fn handlers_of(ty: T, space: SpaceKind) -> Option<(Handlers, Kind, bool)> {
    Some(match ty {
        T::B8 | T::U8 => (handlers::<u8>(space), Kind::W32, false),
        T::S8 => (handlers::<i8>(space), Kind::W32, true),
        T::B16 | T::U16 | T::F16 | T::BF16 => (handlers::<u16>(space), Kind::W32, false),
        T::S16 => (handlers::<i16>(space), Kind::W32, true),
        // A lane has 32 bits, so the sign does not matter to the handlers.
        T::S32 => (handlers::<u32>(space), Kind::W32, true),
        T::B32 | T::U32 | T::F16x2 | T::BF16x2 => (handlers::<u32>(space), Kind::W32, false),
        T::F32 => (handlers::<u32>(space), Kind::F32, false),
        T::B64 | T::U64 | T::S64 => (handlers::<u64>(space), Kind::W64, false),
        T::F64 => (handlers::<u64>(space), Kind::F64, false),
        // Each half of a scalar. Vectors of b128 do not exist.
        T::B128 => (handlers::<u64>(space), Kind::W64, false),
        _ => return None,
    })
}

/// Returns the elements of a vector access, or the single one. A single element may be in braces, as in Triton's
/// output.
pub(super) fn elements<'o>(
    form: &mut Form<'_>,
    operand: &'o Operand,
) -> Result<&'o [Operand], Problem> {
    let count = match form.take_from(&[(W::V2, 2), (W::V4, 4), (W::V8, 8)]) {
        None if !matches!(operand, Operand::Vector(_)) => return Ok(std::slice::from_ref(operand)),
        count => count.unwrap_or(1),
    };
    match operand {
        _ if form.has_ty(T::B128) => Err(DISAGREES),
        Operand::Vector(parts) if parts.len() == count => Ok(parts),
        _ => Err(DISAGREES),
    }
}

/// Returns the offset of a kernel parameter that is read at a constant address.
fn entry_param(b: &Builder<'_>, address: &Address, bytes: u32) -> Result<Option<u64>, Problem> {
    let AddressBase::Symbol(Symbol::Param(i)) = address.base else { return Ok(None) };
    if !b.function.is_entry {
        return Ok(None);
    }
    let param = b.function.params.get(i as usize).ok_or(DISAGREES)?;
    let at = i64::from(param.offset).checked_add(address.offset);
    let ends = b.function.params.iter().map(|p| u64::from(p.offset) + u64::from(p.size));
    let total = ends.max().unwrap_or(0);
    match at.and_then(|at| u64::try_from(at).ok()) {
        Some(at) if at + u64::from(bytes) <= total => Ok(Some(at)),
        _ => Err("the load is beyond the kernel's parameters"),
    }
}

/// Returns whether a `.param` address is in local memory: of a call argument, or of a device function's own parameter.
fn is_local(b: &Builder<'_>, address: &Address) -> bool {
    match address.base {
        AddressBase::Symbol(symbol) => b.is_local_param(symbol),
        // In a device function, parameter addresses in registers are local.
        _ => !b.function.is_entry,
    }
}

/// Decodes `ld` and `ldu`.
pub(crate) fn load(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let order = take_hints(form);
    let space = take_space(form);
    let [dest, Operand::Address(address)] = without_policy(form) else { return Err(DISAGREES) };
    let dests = elements(form, dest)?;
    let ty = form.ty().ok_or(DISAGREES)?;
    let space = match space {
        Where::Space(space) => space,
        Where::Param if is_local(b, address) => SpaceKind::Local,
        Where::Param => SpaceKind::Generic,
    };
    let wide = ty == T::B128;
    if let (true, Some(order)) = (wide, order) {
        return wide::load(b, &Wide { order, space, dest, address, values: &[] });
    }
    let (handlers, kind, signed) = handlers_of(ty, space).ok_or(DISAGREES)?;
    let bytes = ty.size() * index(dests.len());
    if let Some(at) = entry_param(b, address, bytes)? {
        if let [dest] = dests
            && b.is_always(dest, kind.class(), parameter(at, ty, signed))
        {
            return Ok(());
        }
        let mut op = Op::new(handlers.load_param);
        op.imm = at;
        let slots = dest_slots(b, dests, ty, kind, signed)?;
        op.b = Slot(index(slots.len()));
        op.extra = b.extras(slots);
        return b.emit(op);
    }
    if order.is_some() {
        b.emit_plain(Op::new(control::burn_fuel));
    }
    let mut op = Op::new(handlers.load_vector);
    let width = set_address(b, &mut op, address, space)?;
    let slots = dest_slots(b, dests, ty, kind, signed)?;
    let count = index(slots.len());
    op.d = Slot(count);
    if let [one] = slots[..] {
        op.run = handlers.load[width];
        op.d = one;
    }
    op.extra = space_and_registers(b, space, slots);
    let order = order.unwrap_or_default();
    let access = access(AccessKind::Read, space, element(ty), &op);
    let used = b.used_bytes;
    b.states(Effect::Access(Access { count, order, used, ..access }));
    b.emit(op)
}

/// Adds the extra operands of a load or store: its state space, then its registers. Returns the index of the first.
pub(in crate::decode) fn space_and_registers(
    b: &mut Builder<'_>,
    space: SpaceKind,
    registers: impl IntoIterator<Item = Slot>,
) -> u32 {
    b.extras(std::iter::once(Slot(space as u32)).chain(registers))
}

/// Returns the type of a single access: a b128 is accessed in halves.
fn element(ty: T) -> T {
    if ty == T::B128 { T::B64 } else { ty }
}

/// Returns the preset for a kernel parameter.
fn parameter(at: u64, ty: T, signed: bool) -> PresetValue {
    PresetValue::Param { at: at as u32, bytes: ty.size() as u8, signed }
}

fn dest_slots(
    b: &mut Builder<'_>,
    dests: &[Operand],
    ty: T,
    kind: Kind,
    signed: bool,
) -> Result<Vec<Slot>, Problem> {
    if let (T::B128, [dest]) = (ty, dests) {
        return Ok(b.halves(dest)?.to_vec());
    }
    dests.iter().map(|d| b.dest(d, kind, signed)).collect()
}

/// Sets the address of an op. Returns the index of the address width in [`Handlers`].
pub(super) fn set_address(
    b: &mut Builder<'_>,
    op: &mut Op,
    address: &Address,
    space: SpaceKind,
) -> Result<usize, Problem> {
    let (base, offset, narrow) = b.address(address, space)?;
    op.a = base;
    op.imm = offset as u64;
    op.c = if narrow { NARROW_ADDRESS } else { Slot::NONE };
    op.cache = b.new_cache();
    Ok(usize::from(!narrow))
}

/// Returns the effect of an op with an address: an access to one element of this type.
pub(super) fn access(kind: AccessKind, space: SpaceKind, ty: T, op: &Op) -> Access {
    let narrow = op.c == NARROW_ADDRESS;
    Access { narrow, offset: op.imm, ..Access::new(kind, space, ty.size(), op.a) }
}

/// Decodes `st`.
pub(crate) fn store(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let order = take_hints(form);
    let space = take_space(form);
    let [Operand::Address(address), value] = without_policy(form) else { return Err(DISAGREES) };
    let values = elements(form, value)?;
    let ty = form.ty().ok_or(DISAGREES)?;
    if let AddressBase::Symbol(Symbol::Module(i)) = address.base
        && b.module.variables.get(i as usize).is_some_and(|v| v.space == Space::Const)
    {
        return Err("constant memory cannot be written");
    }
    let space = match space {
        Where::Space(space) => space,
        Where::Param if is_local(b, address) => SpaceKind::Local,
        Where::Param => return Err("kernel parameters cannot be written"),
    };
    if let (T::B128, Some(order)) = (ty, order) {
        return wide::store(b, &Wide { order, space, dest: &Operand::Discard, address, values });
    }
    let (handlers, kind, _) = handlers_of(ty, space).ok_or(DISAGREES)?;
    let slots = match (ty, values) {
        (T::B128, [value]) => b.halves(value)?.to_vec(),
        _ => values.iter().map(|v| b.source(v, kind)).collect::<Result<Vec<_>, _>>()?,
    };
    let mut op = Op::new(handlers.store_vector);
    let width = set_address(b, &mut op, address, space)?;
    let (count, class) = (index(slots.len()), kind.class());
    let values;
    if let [one] = slots[..] {
        op.run = handlers.store[width];
        op.b = one;
        values = Values::One(one, class);
        op.extra = space_and_registers(b, space, []);
    } else {
        op.d = Slot(count);
        op.extra = space_and_registers(b, space, slots);
        values = Values::Many(op.extra + 1, class);
    }
    let (access, order) =
        (access(AccessKind::Write, space, element(ty), &op), order.unwrap_or_default());
    b.states(Effect::Access(Access { count, order, values, ..access }));
    b.emit(op)
}
