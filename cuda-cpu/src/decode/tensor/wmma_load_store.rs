//! `wmma.load` and `wmma.store`.
//!
//! Each lane computes the addresses of its elements and loads or stores them, as on a GPU. So the accesses are checked
//! in the same way as ordinary loads and stores.

use cuda_ptx::{Address, Operand, Word as W};

use super::{
    mma::{dests, sources},
    wmma_layout::Matrix,
};
use crate::decode::form::Form;
use crate::{
    decode::{
        build::builder::{Builder, DISAGREES, Problem},
        collective::whole_warp,
        memory::load_store::space_and_registers,
    },
    exec::{
        alu::select,
        memory::load_store::{Handlers, handlers},
        number::lane::Kind,
        tensor::{
            check_whole_warp,
            wmma_addresses::{Elements, element_addresses},
        },
    },
    isa::{
        address::SpaceKind,
        effect::{Access, AccessKind, Effect, Values},
        preset::PresetValue,
        slot::{Class, Slot},
    },
    machine::code::Op,
};

/// The parts that all accesses of one instruction share.
struct Accesses {
    base: Slot,
    stride: Slot,
    space: SpaceKind,
    cache: u32,
    /// Temporary register for addresses and partial values.
    address: Slot,
}

impl Accesses {
    fn new(
        b: &mut Builder<'_>,
        space: SpaceKind,
        address: &Address,
        stride: Option<&Operand>,
        matrix: &Matrix,
    ) -> Result<Self, Problem> {
        let base = b.wide_address(address, space)?;
        let length = matrix.default_stride();
        let stride = match stride {
            Some(stride) => b.source(stride, Kind::W32)?,
            None => b.frame.preset(Class::W32, PresetValue::Const(length.into())),
        };
        let (cache, address) = (b.new_cache(), b.frame.temporary(Class::W64));
        Ok(Self { base, stride, space, cache, address })
    }

    /// Emits the address of the elements. Returns an access op whose handler and value register are still to be set.
    fn at(&self, b: &mut Builder<'_>, elements: Elements) -> Op {
        let mut op = Op::new(element_addresses);
        (op.a, op.b, op.d, op.imm) = (self.base, self.stride, self.address, elements.pack());
        b.emit_plain(op);
        let mut op = Op::new(element_addresses);
        (op.a, op.cache) = (self.address, self.cache);
        op.extra = space_and_registers(b, self.space, []);
        op
    }

    /// Returns the memory effect of one access.
    fn access(&self, kind: AccessKind, elements: Elements) -> Access {
        Access::new(kind, self.space, elements.bytes, self.address)
    }

    fn load(
        &self,
        b: &mut Builder<'_>,
        how: &Handlers,
        elements: Elements,
        d: Slot,
    ) -> Result<(), Problem> {
        let mut op = self.at(b, elements);
        (op.run, op.d) = (how.load[1], d);
        b.states(Effect::Access(self.access(AccessKind::Read, elements)));
        b.emit(op)
    }

    fn store(
        &self,
        b: &mut Builder<'_>,
        how: &Handlers,
        elements: Elements,
        value: Slot,
    ) -> Result<(), Problem> {
        let mut op = self.at(b, elements);
        (op.run, op.b) = (how.store[1], value);
        let class = if elements.bits == 64 { Class::W64 } else { Class::W32 };
        let access = self.access(AccessKind::Write, elements);
        b.states(Effect::Access(Access { values: Values::One(value, class), ..access }));
        b.emit(op)
    }
}

fn take_space(form: &mut Form<'_>) -> SpaceKind {
    match form.take_one(&[W::Global, W::Shared, W::SharedCta]) {
        Some(W::Global) => SpaceKind::Global,
        Some(_) => SpaceKind::Shared,
        None => SpaceKind::Generic,
    }
}

fn whole(bits: u32, space: SpaceKind) -> Handlers {
    if bits == 64 { handlers::<u64>(space) } else { handlers::<u32>(space) }
}

fn part(bits: u32, space: SpaceKind) -> Handlers {
    if bits == 16 { handlers::<u16>(space) } else { handlers::<u8>(space) }
}

fn kind(matrix: &Matrix) -> Kind {
    if matrix.bits == 64 { Kind::F64 } else { Kind::W32 }
}

/// `wmma.load.a.sync.aligned.row.m16n16k16.f16 r, [p], stride;`
pub(super) fn load(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let which = form.take_one(&[W::A, W::B, W::C]).ok_or(DISAGREES)?;
    let space = take_space(form);
    let matrix = Matrix::take(form, which).ok_or(DISAGREES)?;
    let (to, address, stride) = match form.instruction().operands.as_slice() {
        [to, Operand::Address(address)] => (to, address, None),
        [to, Operand::Address(address), stride] => (to, address, Some(stride)),
        _ => return Err(DISAGREES),
    };
    whole_warp(b)?;
    b.emit(Op::new(check_whole_warp))?;
    let to = dests(b, to, kind(&matrix))?;
    if to.len() != matrix.registers {
        return Err("the fragment does not match the shape");
    }
    let accesses = Accesses::new(b, space, address, stride, &matrix)?;
    // The address register may be one of the results.
    let aside: Vec<Slot> = to.iter().map(|_| b.frame.temporary(kind(&matrix).class())).collect();
    for (register, &to) in aside.iter().enumerate() {
        if matrix.is_contiguous() {
            let how = whole(matrix.bits, space);
            accesses.load(b, &how, matrix.whole(register), to)?;
        } else {
            load_parts(b, &matrix, &accesses, register, to)?;
        }
    }
    for (from, to) in aside.into_iter().zip(to) {
        let copy = if matrix.bits == 64 { select::copy::<u64> } else { select::copy::<u32> };
        let mut op = Op::new(copy);
        (op.a, op.d) = (from, to);
        b.emit(op)?;
    }
    Ok(())
}

/// Loads the elements of a register one by one.
fn load_parts(
    b: &mut Builder<'_>,
    matrix: &Matrix,
    accesses: &Accesses,
    register: usize,
    to: Slot,
) -> Result<(), Problem> {
    let how = part(matrix.bits, accesses.space);
    let mut parts = Vec::new();
    for index in 0..matrix.per_register() {
        let part = b.frame.temporary(Class::W32);
        accesses.load(b, &how, matrix.element(register, index), part)?;
        parts.push(part);
    }
    let mut bits = matrix.bits;
    while parts.len() > 1 {
        let last = parts.len() == 2;
        let mut wider = Vec::new();
        for pair in parts.chunks(2) {
            let mut op = Op::new(select::pack_32);
            (op.a, op.b, op.imm) = (pair[0], pair[1], bits.into());
            op.d = if last { to } else { b.frame.temporary(Class::W32) };
            b.emit(op)?;
            wider.push(op.d);
        }
        (parts, bits) = (wider, 2 * bits);
    }
    Ok(())
}

/// `wmma.store.d.sync.aligned.row.m16n16k16.f32 [p], r, stride;`
pub(super) fn store(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let space = take_space(form);
    let matrix = Some(()).filter(|()| form.take(W::D)).and_then(|()| Matrix::take(form, W::C));
    let matrix = matrix.ok_or(DISAGREES)?;
    let (address, from, stride) = match form.instruction().operands.as_slice() {
        [Operand::Address(address), from] => (address, from, None),
        [Operand::Address(address), from, stride] => (address, from, Some(stride)),
        _ => return Err(DISAGREES),
    };
    whole_warp(b)?;
    b.emit(Op::new(check_whole_warp))?;
    let from = sources(b, from, kind(&matrix))?;
    if from.len() != matrix.registers {
        return Err("the fragment does not match the shape");
    }
    let accesses = Accesses::new(b, space, address, stride, &matrix)?;
    for (register, &from) in from.iter().enumerate() {
        if matrix.is_contiguous() {
            let how = whole(matrix.bits, space);
            accesses.store(b, &how, matrix.whole(register), from)?;
            continue;
        }
        let how = part(matrix.bits, space);
        for index in 0..matrix.per_register() {
            let mut op = Op::new(select::part_of_32);
            (op.a, op.imm, op.extra) = (from, matrix.bits.into(), matrix.bits * index);
            op.d = b.frame.temporary(Class::W32);
            b.emit_plain(op);
            accesses.store(b, &how, matrix.element(register, index), op.d)?;
        }
    }
    Ok(())
}
