//! Loads and stores.
//!
//! Most warps access consecutive elements, or all the same one. These patterns are detected first and need only a few
//! copies. The unsafe code dereferences pointers that `locate` has checked for the same access, with the racy-access
//! functions of `memory::access`. Kernel parameters are never written.
//!
//! The state space is the first extra operand. The fast path depends on it, so loads and stores are compiled for each
//! state space. Global and generic accesses share one fast path.

use super::locate::{Access, Address, Shape, all_inside, likely, locate, locate_each, prime};
use crate::exec::number::int::Stored;
use crate::isa::address::SpaceKind;
use crate::lanes::simd::{HALF, Pattern, Simd};
use crate::lanes::{FULL, LANES, lanes_of, simd};
use crate::machine::code::{Flow, Handler, Op};
use crate::machine::ctx::Ctx;
use crate::memory::access;
use crate::memory::access::Word;

/// Copies `bytes` bytes, a multiple of 16.
///
/// # Safety
/// Both pointers must be valid for `bytes` bytes.
#[inline(always)]
unsafe fn copy<V: Simd>(dst: *mut u8, src: *const u8, bytes: usize) {
    let mut at = 0;
    while at < bytes {
        // SAFETY: both pointers are valid for `bytes` bytes.
        unsafe {
            if bytes - at >= 64 {
                V::copy_64(dst.add(at), src.add(at));
                at += 64;
            } else {
                access::copy_16(dst.add(at), src.add(at));
                at += 16;
            }
        }
    }
}

/// Returns the start of each half warp's elements, for warps in which all lanes execute and follow a pattern.
#[inline(always)]
fn halves<M: Stored, A: Address>(
    ctx: &Ctx<'_>,
    op: &Op,
    shape: &Shape,
    bytes: u64,
) -> Option<[*mut u8; 2]> {
    let lanes = ctx.lanes::<A>(op.a);
    // SAFETY: the registers of the current frame are valid for all lanes, and no other code accesses them
    // (`machine::ctx`).
    let first = |half: usize| unsafe { lanes.add(half).read() }.plus(op.imm);
    Some([shape.run(first(0), bytes, M::BYTES)?, shape.run(first(HALF), bytes, M::BYTES)?])
}

/// The state spaces for which loads and stores are compiled. `GLOBAL` includes generic accesses.
const GLOBAL: u8 = SpaceKind::Global as u8;
const SHARED: u8 = SpaceKind::Shared as u8;
const LOCAL: u8 = SpaceKind::Local as u8;

/// Returns the state space of a load or store.
fn space(ctx: &Ctx<'_>, op: &Op) -> SpaceKind {
    SpaceKind::from_code(ctx.extra(op, 0).0)
}

/// Returns the pattern of the lanes' addresses, or `Mixed` if a pattern is of no use. Lanes of local memory are not
/// contiguous, so they are always `Mixed`.
#[inline(always)]
fn pattern<M: Stored, A: Address, const SPACE: u8, V: Simd>(ctx: &Ctx<'_>, op: &Op) -> Pattern {
    if V::SCALAR || SPACE == LOCAL || ctx.mask != FULL {
        return Pattern::Mixed;
    }
    let lanes = ctx.lanes::<A>(op.a);
    // SAFETY: the registers of the current frame are valid for all lanes, and no other code accesses them
    // (`machine::ctx`). The processor supports the level.
    unsafe {
        match M::BYTES {
            1 => A::pattern::<V, 1>(lanes),
            2 => A::pattern::<V, 2>(lanes),
            4 => A::pattern::<V, 4>(lanes),
            _ => A::pattern::<V, 8>(lanes),
        }
    }
}

#[inline(always)]
fn load_body<M: Stored, A: Address, const SPACE: u8, V: Simd>(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let shape = likely(ctx, op, SpaceKind::from_code(u32::from(SPACE)));
    let d = ctx.lanes::<M::Raw>(op.d);
    match pattern::<M, A, SPACE, V>(ctx, op) {
        Pattern::Contiguous => {
            let bytes = M::BYTES as usize * HALF;
            if let Some(halves) = halves::<M, A>(ctx, op, &shape, bytes as u64) {
                for (i, from) in halves.into_iter().enumerate() {
                    let mut words = [M::Word::default(); HALF];
                    // SAFETY: both sides have the size of a half warp's elements. The registers of the current frame
                    // are valid for all lanes, and no other code accesses them (`machine::ctx`).
                    unsafe {
                        copy::<V>(words.as_mut_ptr().cast(), from, bytes);
                        let mut values = [M::Raw::default(); HALF];
                        for lane in 0..HALF {
                            values[lane] = M::from_word(words[lane]).to_raw();
                        }
                        d.add(i * HALF).cast::<[M::Raw; HALF]>().write(values);
                    }
                }
                return Flow::Next;
            }
        }
        Pattern::Uniform => {
            if let Some(halves) = halves::<M, A>(ctx, op, &shape, M::BYTES) {
                for (i, from) in halves.into_iter().enumerate() {
                    // SAFETY: located and aligned. The registers of the current frame are valid for all lanes, and no
                    // other code accesses them (`machine::ctx`).
                    unsafe {
                        let value = M::from_word(M::Word::load(from)).to_raw();
                        d.add(i * HALF).cast::<[M::Raw; HALF]>().write([value; HALF]);
                    }
                }
                return Flow::Next;
            }
        }
        Pattern::Mixed => {}
    }
    if !all_inside::<A, V>(ctx, op, &shape, M::BYTES) {
        return load_each::<M, A>(ctx, op);
    }
    let (mask, registers) = (ctx.mask, ctx.lanes::<A>(op.a));
    // SAFETY: the registers of the current frame are valid for all lanes, and no other code accesses them
    // (`machine::ctx`). The address of every executing lane is valid.
    unsafe {
        let load = |lane: usize| {
            let at = shape.at(registers.add(lane).read().plus(op.imm), lane);
            d.add(lane).write(M::from_word(M::Word::load(at)).to_raw());
        };
        if mask == FULL && !V::SCALAR {
            (0..LANES).for_each(load);
        } else {
            lanes_of(mask).for_each(load);
        }
    }
    Flow::Next
}

#[cold]
#[inline(never)]
fn load_each<M: Stored, A: Address>(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let access = Access { space: space(ctx, op), bytes: M::BYTES, write: false };
    if prime::<A>(ctx, op, access) {
        // SAFETY: the running op belongs to the current frame.
        return unsafe { (op.inner)(ctx, op) };
    }
    let found = match locate_each::<A>(ctx, op, ctx.mask, access) {
        Ok(found) => found,
        Err(flow) => return flow,
    };
    for lane in lanes_of(ctx.mask) {
        // SAFETY: located and aligned.
        let word = unsafe { M::Word::load(found.at[lane]) };
        ctx.set_lane(op.d, lane, M::from_word(word).to_raw());
    }
    Flow::Next
}

#[inline(always)]
fn store_body<M: Stored, A: Address, const SPACE: u8, V: Simd>(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let shape = likely(ctx, op, SpaceKind::from_code(u32::from(SPACE)));
    let b = ctx.lanes::<M::Raw>(op.b);
    if pattern::<M, A, SPACE, V>(ctx, op) == Pattern::Contiguous {
        let bytes = M::BYTES as usize * HALF;
        if let Some(halves) = halves::<M, A>(ctx, op, &shape, bytes as u64) {
            for (i, to) in halves.into_iter().enumerate() {
                // SAFETY: both sides have the size of a half warp's elements. The registers of the current frame are
                // valid for all lanes, and no other code accesses them (`machine::ctx`).
                unsafe {
                    let values = b.add(i * HALF).cast::<[M::Raw; HALF]>().read();
                    let mut words = [M::Word::default(); HALF];
                    for lane in 0..HALF {
                        words[lane] = M::from_raw(values[lane]).to_word();
                    }
                    copy::<V>(to, words.as_ptr().cast(), bytes);
                }
            }
            return Flow::Next;
        }
    }
    if !all_inside::<A, V>(ctx, op, &shape, M::BYTES) {
        return store_each::<M, A>(ctx, op);
    }
    let (mask, registers) = (ctx.mask, ctx.lanes::<A>(op.a));
    // SAFETY: the registers of the current frame are valid for all lanes, and no other code accesses them
    // (`machine::ctx`). The address of every executing lane is valid.
    unsafe {
        let store = |lane: usize| {
            let at = shape.at(registers.add(lane).read().plus(op.imm), lane);
            M::Word::store(at, M::from_raw(b.add(lane).read()).to_word());
        };
        if mask == FULL && !V::SCALAR {
            (0..LANES).for_each(store);
        } else {
            lanes_of(mask).for_each(store);
        }
    }
    Flow::Next
}

#[cold]
#[inline(never)]
fn store_each<M: Stored, A: Address>(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let access = Access { space: space(ctx, op), bytes: M::BYTES, write: true };
    if prime::<A>(ctx, op, access) {
        // SAFETY: the running op belongs to the current frame.
        return unsafe { (op.inner)(ctx, op) };
    }
    let found = match locate_each::<A>(ctx, op, ctx.mask, access) {
        Ok(found) => found,
        Err(flow) => return flow,
    };
    for lane in lanes_of(ctx.mask) {
        let word = M::from_raw(ctx.lane(op.b, lane)).to_word();
        // SAFETY: located and aligned.
        unsafe { M::Word::store(found.at[lane], word) };
    }
    Flow::Next
}

/// Vector forms. `d` is the number of elements, and the extra operands after the space are the registers.
fn vector<M: Stored, const WRITE: bool>(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
    let (mask, count) = (ctx.mask, op.d.0 as usize);
    let access = Access { space: space(ctx, op), bytes: M::BYTES * count as u64, write: WRITE };
    let found = match locate(ctx, op, mask, access) {
        Ok(found) => found,
        Err(flow) => return flow,
    };
    for i in 0..count {
        let register = ctx.lanes::<M::Raw>(ctx.extra(op, i + 1));
        for lane in lanes_of(mask) {
            // SAFETY: located for all elements and aligned. The other side is a lane of a register.
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

/// `ld.param` in a kernel at the constant offset `imm`, which was checked at decoding. All lanes load the same value.
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

/// The handlers for one type and space.
#[derive(Clone, Copy)]
pub(crate) struct Handlers {
    /// By width of the address register: 32 bits, then 64 bits.
    pub(crate) load: [Handler; 2],
    pub(crate) store: [Handler; 2],
    pub(crate) load_vector: Handler,
    pub(crate) store_vector: Handler,
    pub(crate) load_param: Handler,
}

/// Defines the load and store for one level of processor.
macro_rules! at_level {
    ($level:ident, $load:ident, $store:ident $(, $features:literal)?) => {
        $(#[target_feature(enable = $features)])?
        fn $load<M: Stored, A: Address, const SPACE: u8>(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
            load_body::<M, A, SPACE, simd::$level>(ctx, op)
        }
        $(#[target_feature(enable = $features)])?
        fn $store<M: Stored, A: Address, const SPACE: u8>(ctx: &mut Ctx<'_>, op: &Op) -> Flow {
            store_body::<M, A, SPACE, simd::$level>(ctx, op)
        }
    };
}

at_level!(Base, load_base, store_base);
#[cfg(all(target_arch = "x86_64", not(any(test, one_level))))]
at_level!(Avx2, load_avx2, store_avx2, "avx2,fma");
#[cfg(all(target_arch = "x86_64", not(any(test, one_level))))]
at_level!(Avx512, load_avx512, store_avx512, "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma");

fn load<M: Stored, A: Address, const SPACE: u8>() -> Handler {
    match simd::level() {
        #[cfg(all(target_arch = "x86_64", not(any(test, one_level))))]
        simd::Level::Avx512 => load_avx512::<M, A, SPACE>,
        #[cfg(all(target_arch = "x86_64", not(any(test, one_level))))]
        simd::Level::Avx2 => load_avx2::<M, A, SPACE>,
        _ => load_base::<M, A, SPACE>,
    }
}

fn store<M: Stored, A: Address, const SPACE: u8>() -> Handler {
    match simd::level() {
        #[cfg(all(target_arch = "x86_64", not(any(test, one_level))))]
        simd::Level::Avx512 => store_avx512::<M, A, SPACE>,
        #[cfg(all(target_arch = "x86_64", not(any(test, one_level))))]
        simd::Level::Avx2 => store_avx2::<M, A, SPACE>,
        _ => store_base::<M, A, SPACE>,
    }
}

/// Returns the handlers for a type and space.
pub(crate) fn handlers<M: Stored>(space: SpaceKind) -> Handlers {
    // Compilers emit 32-bit addresses for shared memory only. Other 32-bit handlers are compiled for the base level. A
    // store does not depend on the sign.
    let (load, store): ([Handler; 2], [Handler; 2]) = match space {
        SpaceKind::Global | SpaceKind::Generic => (
            [load_base::<M, u32, GLOBAL>, load::<M, u64, GLOBAL>()],
            [store_base::<M::Unsigned, u32, GLOBAL>, store::<M::Unsigned, u64, GLOBAL>()],
        ),
        SpaceKind::Shared => (
            [load::<M, u32, SHARED>(), load::<M, u64, SHARED>()],
            [store::<M::Unsigned, u32, SHARED>(), store::<M::Unsigned, u64, SHARED>()],
        ),
        SpaceKind::Local => (
            [load_base::<M, u32, LOCAL>, load::<M, u64, LOCAL>()],
            [store_base::<M::Unsigned, u32, LOCAL>, store::<M::Unsigned, u64, LOCAL>()],
        ),
    };
    Handlers {
        load,
        store,
        load_vector: vector::<M, false>,
        store_vector: vector::<M::Unsigned, true>,
        load_param: load_param::<M>,
    }
}
