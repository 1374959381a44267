//! Loads and stores.
//!
//! The unsafe code dereferences what `locate` has just checked for this access, through the
//! racy-access functions of `memory::access`; kernel parameters are never written.

use super::int::Int;
use super::locate::{Access, Address, HALF, SpaceKind, locate, locate_each, shape};
use super::map::is_fast;
use crate::engine::ctx::{Ctx, FULL, LANES, Raw, lanes_of};
use crate::engine::op::{Class, Flow, Handler, Op};
use crate::memory::access::{self, Word};

/// A type as it lies in memory.
pub(crate) trait Stored: Int {
    type Word: Word;
    const BYTES: u64 = size_of::<Self::Word>() as u64;
    fn from_word(word: Self::Word) -> Self;
    fn to_word(self) -> Self::Word;
}

macro_rules! stored {
    ($($ty:ty as $word:ty),*) => { $(
        impl Stored for $ty {
            type Word = $word;
            #[inline(always)]
            fn from_word(word: $word) -> Self { word as $ty }
            #[inline(always)]
            fn to_word(self) -> $word { self as $word }
        }
    )* };
}

stored!(u8 as u8, i8 as u8, u16 as u16, i16 as u16, u32 as u32, i32 as u32, u64 as u64, i64 as u64);

/// The elements of a whole warp fit their register lanes one to one.
fn same_size<M: Stored>() -> bool {
    matches!((M::Raw::CLASS, M::BYTES), (Class::W32, 4) | (Class::W64, 8))
}

/// Copies the elements of half a warp.
///
/// # Safety
/// Both ends are valid for 16 elements; `FAST` only if the processor has AVX.
#[inline(always)]
unsafe fn copy_half<M: Stored, const FAST: bool>(dst: *mut u8, src: *const u8) {
    for at in (0..HALF * M::BYTES as usize).step_by(64) {
        // SAFETY: the caller's promise.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            if FAST {
                access::copy_64_avx(dst.add(at), src.add(at));
                continue;
            }
            access::copy_64(dst.add(at), src.add(at));
        }
    }
}

#[inline(always)]
fn load_body<M: Stored, A: Address, const SPACE: u8, const FAST: bool>(
    ctx: &mut Ctx<'_>,
    op: &Op,
) -> Flow {
    let mask = ctx.mask;
    let space = SpaceKind::from_code(u32::from(SPACE));
    let access = Access { space, bytes: M::BYTES, write: false };
    let d = ctx.lanes::<M::Raw>(op.d);
    let Some(shape) = shape::<A>(ctx, op, mask, access) else {
        return load_each::<M, A>(ctx, op, access);
    };
    let registers = ctx.lanes::<A>(op.a);
    // SAFETY: register file rules; the shape says that every executing lane's address is good.
    unsafe {
        let at = |lane: usize| shape.at(registers.add(lane).read().plus(op.imm), lane);
        let load = |lane: usize| M::from_word(M::Word::load(at(lane))).to_raw();
        if shape.contiguous && same_size::<M>() {
            let (low, high) = (at(0), at(HALF));
            copy_half::<M, FAST>(d.cast(), low);
            copy_half::<M, FAST>(d.add(HALF).cast(), high);
        } else if shape.uniform {
            let (low, high) = (load(0), load(HALF));
            d.cast::<[M::Raw; HALF]>().write([low; HALF]);
            d.add(HALF).cast::<[M::Raw; HALF]>().write([high; HALF]);
        } else if mask == FULL {
            (0..LANES).for_each(|lane| d.add(lane).write(load(lane)));
        } else {
            lanes_of(mask).for_each(|lane| d.add(lane).write(load(lane)));
        }
    }
    Flow::Next
}

#[cold]
#[inline(never)]
fn load_each<M: Stored, A: Address>(ctx: &mut Ctx<'_>, op: &Op, access: Access) -> Flow {
    let found = match locate_each::<A>(ctx, op, ctx.mask, access) {
        Ok(found) => found,
        Err(flow) => return flow,
    };
    for lane in lanes_of(ctx.mask) {
        // SAFETY: located, aligned.
        let word = unsafe { M::Word::load(found.at[lane]) };
        ctx.set_lane(op.d, lane, M::from_word(word).to_raw());
    }
    Flow::Next
}

#[inline(always)]
fn store_body<M: Stored, A: Address, const SPACE: u8, const FAST: bool>(
    ctx: &mut Ctx<'_>,
    op: &Op,
) -> Flow {
    let mask = ctx.mask;
    let space = SpaceKind::from_code(u32::from(SPACE));
    let access = Access { space, bytes: M::BYTES, write: true };
    let Some(shape) = shape::<A>(ctx, op, mask, access) else {
        return store_each::<M, A>(ctx, op, access);
    };
    let (b, registers) = (ctx.lanes::<M::Raw>(op.b), ctx.lanes::<A>(op.a));
    // SAFETY: register file rules; the shape says that every executing lane's address is good.
    unsafe {
        let at = |lane: usize| shape.at(registers.add(lane).read().plus(op.imm), lane);
        let store =
            |lane: usize| M::Word::store(at(lane), M::from_raw(b.add(lane).read()).to_word());
        if shape.contiguous && same_size::<M>() {
            copy_half::<M, FAST>(at(0), b.cast());
            copy_half::<M, FAST>(at(HALF), b.add(HALF).cast());
        } else if mask == FULL {
            (0..LANES).for_each(store);
        } else {
            lanes_of(mask).for_each(store);
        }
    }
    Flow::Next
}

#[cold]
#[inline(never)]
fn store_each<M: Stored, A: Address>(ctx: &mut Ctx<'_>, op: &Op, access: Access) -> Flow {
    let found = match locate_each::<A>(ctx, op, ctx.mask, access) {
        Ok(found) => found,
        Err(flow) => return flow,
    };
    for lane in lanes_of(ctx.mask) {
        let word = M::from_raw(ctx.lane(op.b, lane)).to_word();
        // SAFETY: located, aligned.
        unsafe { M::Word::store(found.at[lane], word) };
    }
    Flow::Next
}

/// Vector forms: `d` holds the number of elements, the registers are extra operands.
fn vector<M: Stored, const SPACE: u8, const WRITE: bool>(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let (mask, count) = (ctx.mask, op.d.0 as usize);
    let space = SpaceKind::from_code(u32::from(SPACE));
    let access = Access { space, bytes: M::BYTES * count as u64, write: WRITE };
    let found = match locate(ctx, op, mask, access) {
        Ok(found) => found,
        Err(flow) => return flow,
    };
    for i in 0..count {
        let register = ctx.lanes::<M::Raw>(ctx.extra(op, i));
        for lane in lanes_of(mask) {
            // SAFETY: located for all elements, aligned; a register lane.
            unsafe {
                let (at, lane) = (found.at[lane].add(i * M::BYTES as usize), register.add(lane));
                if WRITE {
                    M::Word::store(at, M::from_raw(lane.read()).to_word());
                } else {
                    lane.write(M::from_word(M::Word::load(at)).to_raw());
                }
            }
        }
    }
    Flow::Next
}

/// `ld.param` of a kernel at a constant offset (`imm`, checked when decoded): the same for all.
pub(crate) fn load_param<M: Stored>(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let (mask, count) = (ctx.mask, op.b.0 as usize);
    for i in 0..count {
        let at = op.imm as usize + i * M::BYTES as usize;
        let bytes = &ctx.spaces.params[at..at + M::BYTES as usize];
        let word = bytes.iter().rev().fold(0u64, |word, &byte| word << 8 | u64::from(byte));
        let value = M::from_bits(word).to_raw();
        ctx.write(ctx.extra(op, i), mask, &[value; LANES]);
    }
    Flow::Next
}

fn load_base<M: Stored, A: Address, const SPACE: u8>(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    load_body::<M, A, SPACE, false>(ctx, op)
}

fn store_base<M: Stored, A: Address, const SPACE: u8>(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    store_body::<M, A, SPACE, false>(ctx, op)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn load_fast<M: Stored, A: Address, const SPACE: u8>(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    load_body::<M, A, SPACE, true>(ctx, op)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn store_fast<M: Stored, A: Address, const SPACE: u8>(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    store_body::<M, A, SPACE, true>(ctx, op)
}

/// The handlers of one type in one space.
#[derive(Clone, Copy)]
pub(crate) struct Handlers {
    /// By width of the address register: 32 bits, 64 bits.
    pub(crate) load: [Handler; 2],
    pub(crate) store: [Handler; 2],
    pub(crate) load_vector: Handler,
    pub(crate) store_vector: Handler,
    pub(crate) load_param: Handler,
}

fn handlers_in<M: Stored, const SPACE: u8>() -> Handlers {
    let mut handlers = Handlers {
        load: [load_base::<M, u32, SPACE>, load_base::<M, u64, SPACE>],
        store: [store_base::<M, u32, SPACE>, store_base::<M, u64, SPACE>],
        load_vector: vector::<M, SPACE, false>,
        store_vector: vector::<M, SPACE, true>,
        load_param: load_param::<M>,
    };
    #[cfg(target_arch = "x86_64")]
    if is_fast() {
        handlers.load = [load_fast::<M, u32, SPACE>, load_fast::<M, u64, SPACE>];
        handlers.store = [store_fast::<M, u32, SPACE>, store_fast::<M, u64, SPACE>];
    }
    handlers
}

/// The handlers of a type in a space.
pub(crate) fn handlers<M: Stored>(space: SpaceKind) -> Handlers {
    match space {
        SpaceKind::Global => handlers_in::<M, 0>(),
        SpaceKind::Shared => handlers_in::<M, 1>(),
        SpaceKind::Local => handlers_in::<M, 2>(),
        SpaceKind::Generic => handlers_in::<M, 3>(),
    }
}
