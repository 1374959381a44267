//! Performs asynchronous transfers and reductions. `machine::async_copies` stores them until then.
//!
//! Each address is checked when a transfer starts, and again here. The unsafe code copies between pointers that
//! `locate` has checked, with the racy-access functions of `memory::access`.

use super::mbarrier::change;
use crate::exec::memory::locate::{Extent, global_pointer, shared_pointer};
use crate::exec::number::float::Float;
use crate::exec::number::int::Int;
use crate::exec::number::lane::Lane;
use crate::lanes::lanes_of;
use crate::machine::async_copies::{
    Action, Bulk, Completion, Copies, LaneCopies, Step, Transfer, WriteMode,
};
use crate::machine::code::Flow;
use crate::machine::ctx::{BlockFault, Ctx};
use crate::memory::access::{self, Word};

/// Performs a step of `cp.async` for these lanes of a warp.
pub(crate) fn perform(ctx: &mut Ctx<'_>, warp: usize, step: &Step, lanes: u32) -> Result<(), Flow> {
    let done = match &step.action {
        Action::Copy(copies) => lanes_of(lanes).try_for_each(|lane| copy(ctx, copies, lane)),
        Action::Arrive(at) => lanes_of(lanes).try_for_each(|lane| {
            change(ctx, lane, at[lane], |barrier| barrier.arrive(1)).map(|_| ())
        }),
    };
    done.inspect_err(|_| begun(ctx, BlockFault { pc: step.pc, warp: warp as u32 }))
}

/// Sets the fault's location to the instruction that started the transfer, instead of the one that waits for it.
fn begun(ctx: &mut Ctx<'_>, at: BlockFault) {
    ctx.fault.iter_mut().for_each(|fault| fault.begun = Some(at));
}

fn copy(ctx: &mut Ctx<'_>, copies: &LaneCopies, lane: usize) -> Result<(), Flow> {
    let (bytes, read) = (usize::from(copies.bytes), usize::from(copies.read[lane]));
    let to = shared_pointer(ctx, lane, copies.to[lane], bytes as u64, true)?;
    let mut words = [0u32; 4];
    if read != 0 {
        let extent = Extent { bytes: read as u64, align: bytes as u64, write: false };
        let from = global_pointer(ctx, lane, copies.from[lane], extent)?;
        for (i, word) in words.iter_mut().enumerate().take(read.div_ceil(4)) {
            let part = (read - 4 * i).min(4);
            // SAFETY: checked for `read` bytes and aligned.
            *word = unsafe {
                match part {
                    4 => u32::load(from.add(4 * i)),
                    _ => (0..part).fold(0, |word, at| {
                        word | u32::from(u8::load(from.add(4 * i + at))) << (8 * at)
                    }),
                }
            };
        }
    }
    for (i, word) in words.into_iter().enumerate().take(bytes / 4) {
        // SAFETY: checked for `bytes` bytes and aligned.
        unsafe { u32::store(to.add(4 * i), word) };
    }
    Ok(())
}

/// Calls `work` with the copies of a warp. They are taken out of the context meanwhile.
pub(crate) fn with_copies<T>(
    ctx: &mut Ctx<'_>,
    warp: usize,
    work: impl FnOnce(&mut Ctx<'_>, &mut Copies) -> T,
) -> Option<T> {
    let mut copies = std::mem::take(ctx.team.copies.get_mut(warp)?);
    let result = work(ctx, &mut copies);
    ctx.team.copies[warp] = copies;
    Some(result)
}

/// Performs the transfers that complete at these mbarriers, because a thread waits for them. Returns false if there
/// were none.
pub(crate) fn progress(ctx: &mut Ctx<'_>, barriers: &[u64]) -> Result<bool, Flow> {
    let before = ctx.team.moved;
    let budget = ctx.budget;
    for bulk in ctx.team.bulks.take_at(barriers, budget) {
        perform_bulk(ctx, &bulk)?;
    }
    for warp in 0..ctx.team.copies.len() {
        if ctx.team.copies[warp].is_empty() {
            continue;
        }
        let arrive = |ctx: &mut Ctx<'_>, copies: &mut Copies| {
            copies.arrive(barriers, budget, |step, lanes| perform(ctx, warp, step, lanes))
        };
        with_copies(ctx, warp, arrive).unwrap_or(Ok(()))?;
    }
    Ok(ctx.team.moved != before)
}

/// Performs a bulk transfer and counts its bytes at its mbarrier.
pub(crate) fn perform_bulk(ctx: &mut Ctx<'_>, bulk: &Bulk) -> Result<(), Flow> {
    let at = BlockFault { pc: bulk.pc, warp: bulk.warp };
    transfer(ctx, bulk).inspect_err(|_| begun(ctx, at))
}

fn transfer(ctx: &mut Ctx<'_>, bulk: &Bulk) -> Result<(), Flow> {
    let lane = bulk.lane as usize;
    let extent = |bytes: u32, write: bool| Extent { bytes: bytes.into(), align: 16, write };
    ctx.charge_bytes(bulk.transfer.bytes() as usize);
    match bulk.transfer {
        Transfer::GlobalToShared { from, to, bytes } => {
            let from = global_pointer(ctx, lane, from, extent(bytes, false))?;
            let to = shared_pointer(ctx, lane, to, bytes.into(), true)?;
            // SAFETY: both are checked for `bytes` bytes.
            unsafe { combine(to, from, bytes, WriteMode::Copy) };
        }
        Transfer::SharedToShared { from, to, bytes, how } => {
            let from = shared_pointer(ctx, lane, from, bytes.into(), false)?;
            let to = shared_pointer(ctx, lane, to, bytes.into(), true)?;
            // SAFETY: both are checked for `bytes` bytes and aligned to 16.
            unsafe { combine(to, from, bytes, how) };
        }
        Transfer::SharedToGlobal { from, to, bytes, how } => {
            let from = shared_pointer(ctx, lane, from, bytes.into(), false)?;
            let to = global_pointer(ctx, lane, to, extent(bytes, true))?;
            // SAFETY: both are checked for `bytes` bytes and aligned to 16.
            unsafe { combine(to, from, bytes, how) };
        }
        Transfer::Words { to, words, count, size, update } => {
            let to = shared_pointer(ctx, lane, to, u64::from(count * size), true)?;
            for (i, word) in words.into_iter().enumerate().take(count as usize) {
                // SAFETY: checked for `count` elements of `size` bytes, and aligned.
                unsafe {
                    let to = to.add(i * size as usize);
                    match (update, size) {
                        (Some(update), _) => update(to, word),
                        (None, 4) => u32::store(to, word as u32),
                        (None, _) => u64::store(to, word),
                    }
                }
            }
        }
    }
    match bulk.completion {
        Completion::Barrier { at, bytes } => {
            change(ctx, lane, at, |barrier| barrier.complete_bytes(bytes)).map(|_| ())
        }
        Completion::Group { .. } => Ok(()),
    }
}

/// # Safety
/// Both pointers must be valid for `bytes` bytes, a multiple of 16, and aligned to 16.
unsafe fn combine(to: *mut u8, from: *const u8, bytes: u32, how: WriteMode) {
    let bytes = bytes as usize;
    // SAFETY: both pointers are valid for `bytes` bytes and aligned to 16, so all elements are in bounds and aligned to
    // their size.
    unsafe {
        match how {
            WriteMode::Copy if to.cast_const() == from => {}
            WriteMode::Copy => access::copy(to, from, bytes),
            WriteMode::Masked(mask) => {
                let wanted = (0..bytes).filter(|at| mask >> (at % 16) & 1 != 0);
                wanted.for_each(|at| u8::store(to.add(at), u8::load(from.add(at).cast_mut())));
            }
            WriteMode::Update(update, size) => {
                for at in (0..bytes).step_by(size as usize) {
                    let from = from.add(at).cast_mut();
                    let value = match size {
                        2 => u16::load(from).into(),
                        4 => u32::load(from).into(),
                        _ => u64::load(from),
                    };
                    update(to.add(at), value);
                }
            }
        }
    }
}

/// Performs the remaining transfers of bulk groups at the end of the block. Fails with the transfer that faults.
pub(crate) fn finish_groups(ctx: &mut Ctx<'_>) -> Result<(), Bulk> {
    let budget = ctx.budget;
    let bulks = ctx.team.bulks.take_all_groups(budget);
    bulks.into_iter().try_for_each(|bulk| perform_bulk(ctx, &bulk).map_err(|_| bulk))
}

macro_rules! updates {
    ($($name:ident<$t:ident: $bound:path>, |$old:ident, $new:ident| $result:expr;)*) => { $(
        /// # Safety
        /// `at` must be valid and aligned for `W`.
        pub(crate) unsafe fn $name<$t: $bound + Lane<Raw: Bits>, W: Word + Bits>(at: *mut u8, value: u64) {
            let $new = $t::from_raw(<$t::Raw as Bits>::from_bits(value));
            // SAFETY: `at` is valid and aligned for `W`.
            unsafe {
                W::update(at, |old| {
                    let $old = $t::from_raw(<$t::Raw as Bits>::from_bits(old.to_bits()));
                    W::from_bits(Bits::to_bits($result.to_raw()))
                });
            }
        }
    )* };
}

/// Integers used as bit containers.
pub(crate) trait Bits {
    fn from_bits(bits: u64) -> Self;
    fn to_bits(self) -> u64;
}

macro_rules! bits {
    ($($ty:ty),*) => { $(
        impl Bits for $ty {
            fn from_bits(bits: u64) -> Self { bits as Self }
            fn to_bits(self) -> u64 { self.into() }
        }
    )* };
}

bits!(u16, u32, u64);

updates! {
    add<T: Int>, |old, new| old.add(new);
    min<T: Int>, |old, new| old.min(new);
    max<T: Int>, |old, new| old.max(new);
    and<T: Int>, |old, new| old.and(new);
    or<T: Int>, |old, new| old.or(new);
    xor<T: Int>, |old, new| old.xor(new);
    inc<T: Int>, |old, new| if old >= new { T::default() } else { old.add(T::from_bits(1)) };
    dec<T: Int>, |old, new| if old == T::default() || old > new { new } else { old.sub(T::from_bits(1)) };
    add_float<T: Float>, |old, new| old.add(new).canonical();
    min_float<T: Float>, |old, new| old.min(new);
    max_float<T: Float>, |old, new| old.max(new);
}
