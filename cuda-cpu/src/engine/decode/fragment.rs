//! `wmma.load` and `wmma.store`: each lane computes where its elements are and loads or stores them, as on a GPU.
//!
//! So the accesses are those of ordinary loads and stores, and checked as those.

use cuda_ptx::{Address, Operand};

use super::builder::{Builder, OPERANDS, Problem, UNKNOWN};
use super::collective::whole_warp;
use super::form::Form;
use super::mma::{dests, sources};
use crate::engine::code::PresetValue;
use crate::engine::exec::lane::Kind;
use crate::engine::exec::locate::SpaceKind;
use crate::engine::exec::memory_ops::{Handlers, handlers};
use crate::engine::exec::select;
use crate::engine::exec::tensor::elements::{Elements, Linear, element_addresses};
use crate::engine::observe::{Access, AccessKind, Effect, Values};
use crate::engine::op::{Class, Op, Slot};

/// A matrix that `wmma` knows.
struct Matrix {
    which: char,
    shape: &'static str,
    /// The matrix lies in memory row by row.
    rows: bool,
    bits: u32,
    registers: usize,
}

/// What there is, without the layout: shape, type of A and B, of C.
const SHAPES: [(&str, &[&str], &[&str]); 7] = [
    ("m16n16k16", &["f16", "bf16", "s8", "u8"], &["f16", "f32", "s32"]),
    ("m8n32k16", &["f16", "bf16", "s8", "u8"], &["f16", "f32", "s32"]),
    ("m32n8k16", &["f16", "bf16", "s8", "u8"], &["f16", "f32", "s32"]),
    ("m16n16k8", &["tf32"], &["f32"]),
    ("m8n8k4", &["f64"], &["f64"]),
    ("m8n8k32", &["s4", "u4"], &["s32"]),
    ("m8n8k128", &["b1"], &["s32"]),
];

impl Matrix {
    fn take(form: &mut Form<'_>, which: char) -> Option<Self> {
        let rows = form.take_one(&["row", "col"])? == "row";
        let &(shape, factors, sums) = SHAPES.iter().find(|(shape, ..)| form.take(shape))?;
        let ty = form.take_one(if which == 'c' { sums } else { factors })?;
        let bits = match ty {
            "f64" => 64,
            "f16" | "bf16" => 16,
            "s8" | "u8" => 8,
            "s4" | "u4" => 4,
            "b1" => 1,
            _ => 32,
        };
        // Parts of bytes can only follow each other along a row of A or a column of B.
        if bits < 8 && rows != (which == 'a') {
            return None;
        }
        let mut matrix = Self { which, shape, rows, bits, registers: 0 };
        let (m, n) = matrix.size();
        let lane = if bits == 64 { 64 } else { 32 };
        matrix.registers = match (which, ty) {
            ('a' | 'b', "f16") => 8,
            _ => ((m * n * bits / 32).div_ceil(lane)) as usize,
        };
        Some(matrix)
    }

    /// Rows and columns.
    fn size(&self) -> (u32, u32) {
        let mut numbers = self.shape.split(['m', 'n', 'k']).skip(1).map(|n| n.parse().unwrap_or(0));
        let mut next = || numbers.next().unwrap_or(0);
        let (m, n, k) = (next(), next(), next());
        match self.which {
            'a' => (m, k),
            'b' => (k, n),
            _ => (m, n),
        }
    }

    /// Elements in a register.
    fn per_register(&self) -> u32 {
        (32 / self.bits).max(1)
    }

    /// Row and column of element `index` of a register.
    fn place(&self, register: usize, index: u32) -> (Linear, Linear) {
        let register = register as u32;
        let (rows, columns) = self.size();
        if self.which == 'c' {
            return self.sum_place(register, index);
        }
        let (lines, depth) = if self.which == 'a' { (rows, columns) } else { (columns, rows) };
        let per = self.per_register();
        // Words of a line that each place in a group of lanes has: one or two.
        let words = depth / per / 4;
        // The one of `mma`'s operands with 16 lines, or the one with 8.
        let tall = lines % 16 == 0 && (self.which == 'a' || self.shape == "m8n32k16");
        let (line, word) = if tall {
            (8 * (register & 1) + 16 * (register / (2 * words)), (register % (2 * words)) >> 1)
        } else {
            (8 * (register / words), register % words)
        };
        let line = Linear { group: 1, place: 0, base: line % lines };
        let along = Linear { group: 0, place: per, base: 4 * per * word + index };
        if self.which == 'a' { (line, along) } else { (along, line) }
    }

    fn sum_place(&self, register: u32, index: u32) -> (Linear, Linear) {
        // Pairs of neighbours, in the order of `mma`; the second half beside or below the first.
        let (pair, index) =
            if self.bits == 16 { (register, index) } else { (register >> 1, register & 1) };
        let (line, along) = match self.shape {
            "m16n16k16" | "m16n16k8" => (8 * (pair & 1), 8 * (pair >> 1)),
            _ => (8 * pair, 0),
        };
        let line = Linear { group: 1, place: 0, base: line };
        let along = Linear { group: 0, place: 2, base: along + index };
        if self.shape == "m8n32k16" { (along, line) } else { (line, along) }
    }

    /// Where element `index` of a register is, in the terms of memory.
    fn element(&self, register: usize, index: u32) -> Elements {
        let (row, column) = self.place(register, index);
        let (major, minor) = if self.rows { (row, column) } else { (column, row) };
        Elements { major, minor, bits: self.bits, bytes: self.bits / 8 }
    }

    /// Where those of a whole register are, if they follow each other.
    fn whole(&self, register: usize) -> Elements {
        let bytes = (self.bits / 8).max(4);
        Elements { bytes, ..self.element(register, 0) }
    }

    /// The elements of a register follow each other in memory.
    fn is_contiguous(&self) -> bool {
        let apart = |i: u32| self.element(0, i).minor.base - self.element(0, 0).minor.base;
        (0..self.per_register()).all(|i| apart(i) == i)
    }
}

/// What the accesses of one instruction share.
struct Accesses {
    base: Slot,
    stride: Slot,
    space: SpaceKind,
    cache: u32,
    /// Where addresses and parts are put together.
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
        let base = b.wide_address(address)?;
        let (rows, columns) = matrix.size();
        let length = if matrix.rows { columns } else { rows };
        let stride = match stride {
            Some(stride) => b.source(stride, Kind::W32)?,
            None => b.frame.preset(Class::W32, PresetValue::Const(length.into())),
        };
        let (cache, address) = (b.new_cache(), b.frame.temporary(Class::W64));
        Ok(Self { base, stride, space, cache, address })
    }

    /// An access to some elements, its handler and register still to be filled in.
    fn at(&self, b: &mut Builder<'_>, elements: Elements) -> Op {
        let mut op = Op::new(element_addresses);
        (op.a, op.b, op.d, op.imm) = (self.base, self.stride, self.address, elements.pack());
        b.emit_plain(op);
        let mut op = Op::new(element_addresses);
        (op.a, op.cache) = (self.address, self.cache);
        op
    }

    /// What one of the accesses does.
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
    match form.take_one(&["global", "shared", "shared::cta"]) {
        Some("global") => SpaceKind::Global,
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
    let which = form.take_one(&["a", "b", "c"]).and_then(|w| w.chars().next()).ok_or(UNKNOWN)?;
    let space = take_space(form);
    let matrix = Matrix::take(form, which).filter(|_| form.is_spent()).ok_or(UNKNOWN)?;
    let (to, address, stride) = match form.instruction().operands.as_slice() {
        [to, Operand::Address(address)] => (to, address, None),
        [to, Operand::Address(address), stride] => (to, address, Some(stride)),
        _ => return Err(OPERANDS),
    };
    whole_warp(b)?;
    let to = dests(b, to, kind(&matrix))?;
    if to.len() != matrix.registers {
        return Err("a fragment that does not fit the shape");
    }
    let accesses = Accesses::new(b, space, address, stride, &matrix)?;
    // The address may be one of the results.
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

/// A register whose elements are loaded one by one.
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
    let matrix = Some(()).filter(|()| form.take("d")).and_then(|()| Matrix::take(form, 'c'));
    let matrix = matrix.filter(|_| form.is_spent()).ok_or(UNKNOWN)?;
    let (address, from, stride) = match form.instruction().operands.as_slice() {
        [Operand::Address(address), from] => (address, from, None),
        [Operand::Address(address), from, stride] => (address, from, Some(stride)),
        _ => return Err(OPERANDS),
    };
    whole_warp(b)?;
    let from = sources(b, from, kind(&matrix))?;
    if from.len() != matrix.registers {
        return Err("a fragment that does not fit the shape");
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
