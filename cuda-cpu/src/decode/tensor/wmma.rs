//! `wmma`: `wmma.mma`, composed of `mma` multiplications, `wmma.load`, `wmma.store`, and the layout of their fragments.
//!
//! Fragments are opaque to programs. The CPU device uses the layout of an H200, which places fragments of `mma` side by
//! side. For `m8n32k16` the product is transposed: the B fragment becomes `mma`'s A operand, and the A fragment its B
//! operand. Fragments of f16 have eight registers. Those that are not needed repeat others.
//!
//! In `wmma.load` and `wmma.store` each lane computes the addresses of its elements and loads or stores them, as on a
//! GPU. So the accesses are checked in the same way as ordinary loads and stores.

use cuda_ptx::{Address, Operand, ScalarType as T, Word as W};

use super::mma::{Multiply, dests, double, emit, float, integer, sources};
use crate::decode::build::builder::{Builder, DISAGREES, Problem};
use crate::decode::collective::whole_warp;
use crate::decode::form::Form;
use crate::decode::memory::load_store::space_and_registers;
use crate::exec::alu::select;
use crate::exec::memory::load_store::{Handlers, handlers};
use crate::exec::number::lane::Kind;
use crate::exec::tensor::check_whole_warp;
use crate::exec::tensor::layout::{Elements, Linear, element_addresses};
use crate::exec::tensor::mma::pack_halves;
use crate::isa::address::SpaceKind;
use crate::isa::effect::{Access, AccessKind, Effect, Values};
use crate::isa::operand::{Class, PresetValue, Slot};
use crate::machine::code::Op;

/// Decodes `wmma` in all forms.
pub(crate) fn wmma(b: &mut Builder<'_>, form: &mut Form<'_>) -> Result<(), Problem> {
    let what = form.take_one(&[W::Load, W::Store, W::Mma]).ok_or(DISAGREES)?;
    if !form.take(W::Sync) || !form.take(W::Aligned) {
        return Err("only the `.sync.aligned` form is supported");
    }
    match what {
        W::Load => load(b, form),
        W::Store => store(b, form),
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

/// A matrix operand of `wmma`.
struct Matrix {
    which: W,
    shape: W,
    /// Number of rows and columns.
    size: (u32, u32),
    /// Whether the matrix is stored in row-major order.
    rows: bool,
    pub(super) bits: u32,
    pub(in crate::decode) registers: usize,
}

/// A shape, its sizes m, n and k, the types of A and B, and the types of C and D.
type Shape = (W, [u32; 3], &'static [T], &'static [T]);

/// Supported shapes.
const SHAPES: [Shape; 7] = [
    (W::M16n16k16, [16, 16, 16], &[T::F16, T::BF16, T::S8, T::U8], &[T::F16, T::F32, T::S32]),
    (W::M8n32k16, [8, 32, 16], &[T::F16, T::BF16, T::S8, T::U8], &[T::F16, T::F32, T::S32]),
    (W::M32n8k16, [32, 8, 16], &[T::F16, T::BF16, T::S8, T::U8], &[T::F16, T::F32, T::S32]),
    (W::M16n16k8, [16, 16, 8], &[T::TF32], &[T::F32]),
    (W::M8n8k4, [8, 8, 4], &[T::F64], &[T::F64]),
    (W::M8n8k32, [8, 8, 32], &[T::S4, T::U4], &[T::S32]),
    (W::M8n8k128, [8, 8, 128], &[T::B1], &[T::S32]),
];

impl Matrix {
    /// Takes the shape, layout and type from a form.
    pub(super) fn take(form: &mut Form<'_>, which: W) -> Option<Self> {
        let rows = form.take_one(&[W::Row, W::Col])? == W::Row;
        let &(shape, [m, n, k], factors, sums) =
            SHAPES.iter().find(|(shape, ..)| form.take(*shape))?;
        let ty = form.ty_of(if which == W::C { sums } else { factors })?;
        let bits = match ty {
            T::F64 => 64,
            T::F16 | T::BF16 => 16,
            T::S8 | T::U8 => 8,
            T::S4 | T::U4 => 4,
            T::B1 => 1,
            _ => 32,
        };
        // Elements smaller than a byte are contiguous only along a row of A or a column of B.
        if bits < 8 && rows != (which == W::A) {
            return None;
        }
        let size = match which {
            W::A => (m, k),
            W::B => (k, n),
            _ => (m, n),
        };
        let mut matrix = Self { which, shape, size, rows, bits, registers: 0 };
        let lane = if bits == 64 { 64 } else { 32 };
        matrix.registers = match (which, ty) {
            (W::A | W::B, T::F16) => 8,
            _ => ((size.0 * size.1 * bits / 32).div_ceil(lane)) as usize,
        };
        Some(matrix)
    }

    /// Returns the default stride: the number of elements between the starts of contiguous rows or columns.
    fn default_stride(&self) -> u32 {
        let (rows, columns) = self.size;
        if self.rows { columns } else { rows }
    }

    /// Returns the number of elements in a register.
    fn per_register(&self) -> u32 {
        (32 / self.bits).max(1)
    }

    /// Returns the row and column of element `index` of a register.
    fn place(&self, register: usize, index: u32) -> (Linear, Linear) {
        let register = register as u32;
        let (rows, columns) = self.size;
        if self.which == W::C {
            return self.sum_place(register, index);
        }
        let (lines, depth) = if self.which == W::A { (rows, columns) } else { (columns, rows) };
        let per = self.per_register();
        // Number of words of a line that each lane of a lane group holds: one or two.
        let words = depth / per / 4;
        // The fragment with 16 lines is laid out as the A operand of `mma`, the other one, with 8 lines, as B.
        let tall = lines % 16 == 0 && (self.which == W::A || self.shape == W::M8n32k16);
        let (line, word) = if tall {
            (8 * (register & 1) + 16 * (register / (2 * words)), (register % (2 * words)) >> 1)
        } else {
            (8 * (register / words), register % words)
        };
        let line = Linear { group: 1, place: 0, base: line % lines };
        let along = Linear { group: 0, place: per, base: 4 * per * word + index };
        if self.which == W::A { (line, along) } else { (along, line) }
    }

    fn sum_place(&self, register: u32, index: u32) -> (Linear, Linear) {
        // Pairs of adjacent elements, in the order of `mma`. The second half is beside or below the first.
        let (pair, index) =
            if self.bits == 16 { (register, index) } else { (register >> 1, register & 1) };
        let (line, along) = match self.shape {
            W::M16n16k16 | W::M16n16k8 => (8 * (pair & 1), 8 * (pair >> 1)),
            _ => (8 * pair, 0),
        };
        let line = Linear { group: 1, place: 0, base: line };
        let along = Linear { group: 0, place: 2, base: along + index };
        if self.shape == W::M8n32k16 { (along, line) } else { (line, along) }
    }

    /// Returns the position in memory of element `index` of a register.
    pub(super) fn element(&self, register: usize, index: u32) -> Elements {
        let (row, column) = self.place(register, index);
        let (major, minor) = if self.rows { (row, column) } else { (column, row) };
        Elements { major, minor, bits: self.bits, bytes: self.bits / 8 }
    }

    /// Returns the position in memory of a whole register whose elements are contiguous.
    pub(super) fn whole(&self, register: usize) -> Elements {
        let bytes = (self.bits / 8).max(4);
        Elements { bytes, ..self.element(register, 0) }
    }

    /// Returns whether the elements of a register are contiguous in memory.
    fn is_contiguous(&self) -> bool {
        let apart = |i: u32| self.element(0, i).minor.base - self.element(0, 0).minor.base;
        (0..self.per_register()).all(|i| apart(i) == i)
    }
}
