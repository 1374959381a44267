//! What a handler sees: the registers of the running warp and the memory it can reach.
//!
//! # The rules of the register file
//!
//! A frame is a run of bytes inside the running warp's register file. [`Slot`]s are offsets into it,
//! made by the frame layout of one function, each aligned and in bounds for its class. The
//! dispatch loop calls [`Ctx::enter`] with a frame of that function's size before it runs any of
//! its instructions, and the register file is neither moved nor touched by anybody else until the
//! warp is left. A context belongs to one worker thread. So the pointers made here are valid and
//! exclusive. Two slots are the same or do not overlap; handlers read their operands before they
//! write the result of the same lanes.

use super::address::Spaces;
use super::block::BlockFault;
use super::budget::Budget;
use super::clock::Clock;
use super::code::{Code, Control};
use super::exec::simd::{HALF, Simd};
use super::fault::{FaultKind, FaultSpace};
use super::op::{Flow, Op, Slot};
use super::presets::Place;
use super::team::Team;
use crate::memory::{Range, View};

/// Lanes in a warp.
pub(crate) const LANES: usize = 32;

/// All lanes.
pub(crate) const FULL: u32 = u32::MAX;

/// The content of one lane: `u32` or `u64`.
pub(crate) trait Raw: Copy + Default + 'static {
    /// Writes lanes of half a warp.
    ///
    /// # Safety
    /// As [`Simd::blend_32`].
    unsafe fn blend<V: Simd>(d: *mut Self, values: &[Self; HALF], lanes: u16);
}

impl Raw for u32 {
    #[inline(always)]
    unsafe fn blend<V: Simd>(d: *mut Self, values: &[Self; HALF], lanes: u16) {
        // SAFETY: the caller's promise.
        unsafe { V::blend_32(d, values, lanes) };
    }
}

impl Raw for u64 {
    #[inline(always)]
    unsafe fn blend<V: Simd>(d: *mut Self, values: &[Self; HALF], lanes: u16) {
        // SAFETY: the caller's promise.
        unsafe { V::blend_64(d, values, lanes) };
    }
}

/// A fault before the scheduler adds where it happened.
#[derive(Debug)]
pub(crate) struct LaneFault {
    pub(crate) kind: FaultKind,
    pub(crate) lane: u32,
    pub(crate) nearest: Option<crate::memory::Nearest>,
    /// Of what was begun earlier and done now: where it was begun.
    pub(crate) begun: Option<BlockFault>,
}

impl LaneFault {
    pub(crate) fn new(lane: usize, kind: FaultKind) -> Self {
        Self { kind, lane: lane as u32, nearest: None, begun: None }
    }
}

/// See the module.
pub(crate) struct Ctx<'a> {
    frame: *mut u8,
    /// Lanes that execute.
    pub(crate) mask: u32,
    /// Lanes of the warp that have not exited.
    pub(crate) live: u32,
    /// For [`Flow::Jump`] and [`Flow::Diverge`].
    pub(crate) target: u32,
    /// For [`Flow::Diverge`].
    pub(crate) taken: u32,
    /// Back-edges and calls left in this time slice.
    pub(crate) fuel: i32,
    /// Lowest program counter of a waiting part of the warp that this one may join.
    pub(crate) merge_pc: u32,
    /// One allocation cache per memory instruction; the first is also the builtins'.
    pub(crate) caches: Vec<Range>,
    pub(crate) view: View<'a>,
    pub(crate) spaces: Spaces<'a>,
    pub(crate) code: &'a Code,
    pub(crate) place: Place,
    /// Values that lanes show each other in collectives.
    pub(crate) exchange: Box<[u64; LANES]>,
    pub(crate) fault: Option<LaneFault>,
    pub(crate) print: &'a (dyn Fn(&str) + Sync),
    /// What calls may grow the warp by.
    pub(crate) budget: &'a Budget,
    pub(crate) clock: Clock,
    /// What the running block's threads have in common.
    pub(crate) team: Box<Team>,
}

impl<'a> Ctx<'a> {
    pub(crate) fn new(
        code: &'a Code,
        view: View<'a>,
        params: &'a [u8],
        print: &'a (dyn Fn(&str) + Sync),
        budget: &'a Budget,
    ) -> Self {
        Self {
            frame: std::ptr::null_mut(),
            mask: 0,
            live: 0,
            target: 0,
            taken: 0,
            fuel: 0,
            merge_pc: u32::MAX,
            caches: vec![Range::EMPTY; code.caches.max(1) as usize],
            view,
            spaces: Spaces::new(params),
            code,
            place: Place::default(),
            exchange: Box::new([0; LANES]),
            fault: None,
            print,
            budget,
            clock: Clock::started_now(),
            team: Box::default(),
        }
    }

    /// Makes `frame` (of the running function's size, at least) the current one.
    pub(crate) fn enter(&mut self, frame: &mut [u8]) {
        self.frame = frame.as_mut_ptr();
    }

    /// The lanes of a register. Valid for `LANES` reads and writes (module rules).
    #[inline(always)]
    pub(crate) fn lanes<R: Raw>(&self, slot: Slot) -> *mut R {
        self.frame.wrapping_add(slot.0 as usize).cast()
    }

    /// A copy of all lanes of a register.
    #[inline(always)]
    pub(crate) fn read<R: Raw>(&self, slot: Slot) -> [R; LANES] {
        // SAFETY: module rules.
        unsafe { self.lanes::<R>(slot).cast::<[R; LANES]>().read() }
    }

    /// One lane of a register.
    #[inline(always)]
    pub(crate) fn lane<R: Raw>(&self, slot: Slot, lane: usize) -> R {
        debug_assert!(lane < LANES);
        // SAFETY: module rules; `& 31` keeps the lane inside.
        unsafe { self.lanes::<R>(slot).add(lane & 31).read() }
    }

    /// Writes one lane of a register.
    #[inline(always)]
    pub(crate) fn set_lane<R: Raw>(&mut self, slot: Slot, lane: usize, value: R) {
        debug_assert!(lane < LANES);
        // SAFETY: module rules; `& 31` keeps the lane inside.
        unsafe { self.lanes::<R>(slot).add(lane & 31).write(value) }
    }

    /// Writes the executing lanes of a register.
    #[inline(always)]
    pub(crate) fn write<R: Raw>(&mut self, slot: Slot, mask: u32, values: &[R; LANES]) {
        let d = self.lanes::<R>(slot);
        if mask == FULL {
            // SAFETY: module rules.
            unsafe { d.cast::<[R; LANES]>().write(*values) };
            return;
        }
        for lane in lanes_of(mask) {
            self.set_lane(slot, lane, values[lane]);
        }
    }

    /// Writes the executing lanes of a register, each its own value.
    #[inline(always)]
    pub(crate) fn set_lanes<R: Raw>(&mut self, slot: Slot, value: impl Fn(usize) -> R) {
        if self.mask != FULL {
            return lanes_of(self.mask).for_each(|lane| self.set_lane(slot, lane, value(lane)));
        }
        let d = self.lanes::<R>(slot);
        // SAFETY: module rules.
        (0..LANES).for_each(|lane| unsafe { d.add(lane).write(value(lane)) });
    }

    /// A predicate register.
    #[inline(always)]
    pub(crate) fn pred(&self, slot: Slot) -> u32 {
        // SAFETY: module rules.
        unsafe { self.lanes::<u32>(slot).read() }
    }

    /// Writes the lanes in `mask` of a predicate register.
    #[inline(always)]
    pub(crate) fn set_pred(&mut self, slot: Slot, mask: u32, value: u32) {
        let at = self.lanes::<u32>(slot);
        // SAFETY: module rules.
        unsafe { at.write((at.read() & !mask) | (value & mask)) };
    }

    /// The executing lanes whose guard holds.
    #[inline(always)]
    pub(crate) fn guarded(&self, op: &Op) -> u32 {
        if op.guard == Slot::NONE {
            return self.mask;
        }
        let pred = self.pred(op.guard);
        self.mask & if op.guard_negated { !pred } else { pred }
    }

    /// A further operand of `op`.
    #[inline(always)]
    pub(crate) fn extra(&self, op: &Op, index: usize) -> Slot {
        self.code.extras[op.extra as usize + index]
    }

    pub(crate) fn control(&self, op: &Op) -> &'a Control {
        &self.code.controls[op.extra as usize]
    }

    /// The kernel has freed the allocation that began at `address`: this worker finds it no more.
    pub(crate) fn forget_allocation(&mut self, address: u64) {
        self.caches.iter_mut().filter(|range| range.base == address).for_each(|range| {
            *range = Range::EMPTY;
        });
        self.view.forget(address);
    }

    /// Between two turns, when no instruction is under way: what other workers have freed is found no more.
    pub(crate) fn forget_freed(&mut self) {
        if self.view.forget_freed() {
            self.caches.fill(Range::EMPTY);
        }
    }

    /// Records a fault of `lane`.
    #[cold]
    pub(crate) fn fail(&mut self, lane: usize, kind: FaultKind) -> Flow {
        self.fault = Some(LaneFault::new(lane, kind));
        Flow::Fault
    }

    /// Records a bad address in device memory, with what lies next to it.
    #[cold]
    pub(crate) fn fail_global(
        &mut self,
        lane: usize,
        address: u64,
        bytes: u64,
        write: bool,
    ) -> Flow {
        let what = self.view.memory().explain(address, bytes);
        let bytes = bytes as u32;
        let kind = if what.freed {
            FaultKind::UseAfterFree { address, bytes, write }
        } else {
            FaultKind::OutOfBounds { space: FaultSpace::Global, address, bytes, write }
        };
        self.fault = Some(LaneFault { nearest: what.nearest, ..LaneFault::new(lane, kind) });
        Flow::Fault
    }
}

/// The numbers of the lanes in a mask, lowest first.
#[inline(always)]
pub(crate) fn lanes_of(mask: u32) -> impl Iterator<Item = usize> {
    let mut left = mask;
    std::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let lane = left.trailing_zeros() as usize;
        left &= left - 1;
        Some(lane)
    })
}
