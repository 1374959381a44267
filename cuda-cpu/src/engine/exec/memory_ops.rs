//! Loads and stores.
//!
//! The unsafe code dereferences what `locate` has just checked for this access, through the
//! racy-access functions of `memory::access`; kernel parameters are never written.

use super::int::Int;
use super::locate::{Access, SpaceKind, locate};
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

/// Halves of a 64-bit warp access are copied one by one.
#[inline(always)]
unsafe fn copy_warp<M: Stored>(dst: *mut u8, src: *const u8) {
    // SAFETY: the caller has checked 32 elements at both ends.
    unsafe {
        access::copy_128(dst, src);
        if M::BYTES == 8 {
            access::copy_128(dst.add(128), src.add(128));
        }
    }
}

#[inline(always)]
fn load_body<M: Stored, const SPACE: u8>(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let mask = ctx.mask;
    let space = SpaceKind::from_code(u32::from(SPACE));
    let access = Access { space, bytes: M::BYTES, write: false };
    let found = match locate(ctx, op, mask, access) {
        Ok(found) => found,
        Err(flow) => return flow,
    };
    let d = ctx.lanes::<M::Raw>(op.d);
    if found.contiguous && same_size::<M>() {
        // SAFETY: located; the register holds 32 lanes of the same size.
        unsafe { copy_warp::<M>(d.cast(), found.at[0]) };
        return Flow::Next;
    }
    // SAFETY: located, aligned; a register lane.
    let one = |lane: usize| unsafe {
        d.add(lane).write(M::from_word(M::Word::load(found.at[lane])).to_raw());
    };
    if mask == FULL {
        (0..LANES).for_each(one);
    } else {
        lanes_of(mask).for_each(one);
    }
    Flow::Next
}

#[inline(always)]
fn store_body<M: Stored, const SPACE: u8>(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let mask = ctx.mask;
    let space = SpaceKind::from_code(u32::from(SPACE));
    let access = Access { space, bytes: M::BYTES, write: true };
    let found = match locate(ctx, op, mask, access) {
        Ok(found) => found,
        Err(flow) => return flow,
    };
    let b = ctx.lanes::<M::Raw>(op.b);
    if found.contiguous && same_size::<M>() {
        // SAFETY: located; the register holds 32 lanes of the same size.
        unsafe { copy_warp::<M>(found.at[0], b.cast()) };
        return Flow::Next;
    }
    // SAFETY: located, aligned; a register lane.
    let one = |lane: usize| unsafe {
        M::Word::store(found.at[lane], M::from_raw(b.add(lane).read()).to_word());
    };
    if mask == FULL {
        (0..LANES).for_each(one);
    } else {
        lanes_of(mask).for_each(one);
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

fn load_base<M: Stored, const SPACE: u8>(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    load_body::<M, SPACE>(ctx, op)
}

fn store_base<M: Stored, const SPACE: u8>(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    store_body::<M, SPACE>(ctx, op)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn load_fast<M: Stored, const SPACE: u8>(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    load_body::<M, SPACE>(ctx, op)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn store_fast<M: Stored, const SPACE: u8>(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    store_body::<M, SPACE>(ctx, op)
}

/// The handlers of one type in one space.
#[derive(Clone, Copy)]
pub(crate) struct Handlers {
    pub(crate) load: Handler,
    pub(crate) store: Handler,
    pub(crate) load_vector: Handler,
    pub(crate) store_vector: Handler,
    pub(crate) load_param: Handler,
}

fn handlers_in<M: Stored, const SPACE: u8>() -> Handlers {
    let mut handlers = Handlers {
        load: load_base::<M, SPACE>,
        store: store_base::<M, SPACE>,
        load_vector: vector::<M, SPACE, false>,
        store_vector: vector::<M, SPACE, true>,
        load_param: load_param::<M>,
    };
    #[cfg(target_arch = "x86_64")]
    if is_fast() {
        handlers.load = load_fast::<M, SPACE>;
        handlers.store = store_fast::<M, SPACE>;
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
