//! The context of a handler: the registers of the running warp and the memory that it can access.
//!
//! # Invariants of the register file
//!
//! A frame is a range of bytes in the running warp's register file. A [`Slot`] is an offset into a frame. The frame
//! layout of one function creates its slots, each aligned and in bounds for its class. The dispatch loop calls
//! [`Ctx::enter`] with a frame of that function's size before it runs any of the function's instructions. The register
//! file is not moved and not accessed by other code until the warp is left. A context belongs to one worker thread. So
//! the pointers created here are valid and exclusive. Two slots are either equal or disjoint. Handlers read the
//! operands of a lane before they write its result.

use std::marker::PhantomData;

use smallvec::SmallVec;

use super::budget::Budget;
use super::code::{Code, Control, Flow, Op};
use super::place::{Clock, Place};
use super::team::Team;
use crate::fault::{FaultKind, FaultSpace};
use crate::isa::address::{CLUSTER_STEP, block_of};
use crate::isa::operand::Slot;
use crate::lanes::simd::{HALF, Simd};
use crate::lanes::{FULL, LANES, lanes_of};
use crate::memory::{Range, View};

/// The context of one worker. See the [module](self) for its invariants.
pub(crate) struct Ctx<'a> {
    frame: *mut u8,
    /// The executing lanes.
    pub(crate) mask: u32,
    /// Lanes of the warp that have not exited.
    pub(crate) live: u32,
    /// Jump target of [`Flow::Jump`] and [`Flow::Diverge`].
    pub(crate) target: u32,
    /// The lanes that jump, for [`Flow::Diverge`].
    pub(crate) taken: u32,
    /// Number of back-edges and calls left in this time slice.
    pub(crate) fuel: i32,
    /// Lowest program counter of a waiting fragment of the warp that the running one may join.
    pub(crate) merge_pc: u32,
    /// One allocation cache per memory instruction. The builtins share the first one.
    pub(crate) caches: Vec<Range>,
    pub(crate) view: View<'a>,
    pub(crate) spaces: Spaces<'a>,
    pub(crate) code: &'a Code,
    pub(crate) place: Place,
    /// Values that lanes exchange in collectives.
    pub(crate) exchange: Box<[u64; LANES]>,
    pub(crate) fault: Option<LaneFault>,
    pub(crate) print: &'a (dyn Fn(&str) + Sync),
    /// The budget for registers and local memory when a call grows the warp.
    pub(crate) budget: &'a Budget,
    pub(crate) clock: Clock,
    /// State that the threads of the running block share.
    pub(crate) team: Box<Team>,
}

/// Fuel of an atomic. A loop around one is likely to wait for another thread.
const ATOMIC_FUEL: i32 = 256;

/// Number of moved or printed bytes that cost as much as a back-edge.
const BYTES_PER_FUEL: usize = 64;

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

    /// Makes `frame` the current frame. It must have at least the size of the running function's frame.
    pub(crate) fn enter(&mut self, frame: &mut [u8]) {
        self.frame = frame.as_mut_ptr();
    }

    /// Returns a pointer to the lanes of a register. It is valid for `LANES` reads and writes (see the module).
    #[inline(always)]
    pub(crate) fn lanes<R: Raw>(&self, slot: Slot) -> *mut R {
        self.frame.wrapping_add(slot.0 as usize).cast()
    }

    /// Returns a copy of all lanes of a register.
    #[inline(always)]
    pub(crate) fn read<R: Raw>(&self, slot: Slot) -> [R; LANES] {
        // SAFETY: the registers of the current frame are valid for all lanes, and no other code accesses them.
        unsafe { self.lanes::<R>(slot).cast::<[R; LANES]>().read() }
    }

    /// Returns one lane of a register.
    #[inline(always)]
    pub(crate) fn lane<R: Raw>(&self, slot: Slot, lane: usize) -> R {
        debug_assert!(lane < LANES);
        // SAFETY: the registers of the current frame are valid for all lanes, and no other code accesses them. `& 31`
        // keeps the lane in bounds.
        unsafe { self.lanes::<R>(slot).add(lane & 31).read() }
    }

    /// Writes one lane of a register.
    #[inline(always)]
    pub(crate) fn set_lane<R: Raw>(&mut self, slot: Slot, lane: usize, value: R) {
        debug_assert!(lane < LANES);
        // SAFETY: the registers of the current frame are valid for all lanes, and no other code accesses them. `& 31`
        // keeps the lane in bounds.
        unsafe { self.lanes::<R>(slot).add(lane & 31).write(value) }
    }

    /// Writes the lanes in `mask` of a register.
    #[inline(always)]
    pub(crate) fn write<R: Raw>(&mut self, slot: Slot, mask: u32, values: &[R; LANES]) {
        let d = self.lanes::<R>(slot);
        if mask == FULL {
            // SAFETY: the registers of the current frame are valid for all lanes, and no other code accesses them.
            unsafe { d.cast::<[R; LANES]>().write(*values) };
            return;
        }
        for lane in lanes_of(mask) {
            self.set_lane(slot, lane, values[lane]);
        }
    }

    /// Writes the executing lanes of a register. `value` computes the value of each lane.
    #[inline(always)]
    pub(crate) fn set_lanes<R: Raw>(&mut self, slot: Slot, value: impl Fn(usize) -> R) {
        if self.mask != FULL {
            return lanes_of(self.mask).for_each(|lane| self.set_lane(slot, lane, value(lane)));
        }
        let d = self.lanes::<R>(slot);
        // SAFETY: the registers of the current frame are valid for all lanes, and no other code accesses them.
        (0..LANES).for_each(|lane| unsafe { d.add(lane).write(value(lane)) });
    }

    /// Returns the bits of a predicate register.
    #[inline(always)]
    pub(crate) fn pred(&self, slot: Slot) -> u32 {
        // SAFETY: the registers of the current frame are valid for all lanes, and no other code accesses them.
        unsafe { self.lanes::<u32>(slot).read() }
    }

    /// Writes the lanes in `mask` of a predicate register.
    #[inline(always)]
    pub(crate) fn set_pred(&mut self, slot: Slot, mask: u32, value: u32) {
        let at = self.lanes::<u32>(slot);
        // SAFETY: the registers of the current frame are valid for all lanes, and no other code accesses them.
        unsafe { at.write((at.read() & !mask) | (value & mask)) };
    }

    /// Returns the executing lanes whose guard is true.
    #[inline(always)]
    pub(crate) fn guarded(&self, op: &Op) -> u32 {
        if op.guard == Slot::NONE {
            return self.mask;
        }
        let pred = self.pred(op.guard);
        self.mask & if op.guard_negated { !pred } else { pred }
    }

    /// Returns a further operand of `op`.
    #[inline(always)]
    pub(crate) fn extra(&self, op: &Op, index: usize) -> Slot {
        self.code.extras[op.extra as usize + index]
    }

    pub(crate) fn control(&self, op: &Op) -> &'a Control {
        &self.code.controls[op.extra as usize]
    }

    /// Removes an allocation that the kernel has freed from this worker's caches. `address` is its start.
    pub(crate) fn forget_allocation(&mut self, address: u64) {
        self.caches.iter_mut().filter(|range| range.base == address).for_each(|range| {
            *range = Range::EMPTY;
        });
        self.view.forget(address);
    }

    /// Removes allocations that other workers have freed from the caches. Called between two turns of a block, when no
    /// instruction is executing.
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

    /// Records an access to an invalid device address, with the nearest allocation.
    #[cold]
    pub(crate) fn fail_global(
        &mut self,
        lane: usize,
        address: u64,
        bytes: u64,
        write: bool,
    ) -> Flow {
        let what = self.view.memory().explain(address, bytes);
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let kind = if what.freed {
            FaultKind::UseAfterFree { address, bytes, write }
        } else {
            FaultKind::OutOfBounds { space: FaultSpace::Global, address, bytes, write }
        };
        self.fault = Some(LaneFault { nearest: what.nearest, ..LaneFault::new(lane, kind) });
        Flow::Fault
    }

    /// Charges an atomic, or another instruction with which threads wait for each other, so that a loop around it ends
    /// its time slice sooner.
    pub(crate) fn charge_atomic(&mut self) {
        self.charge(ATOMIC_FUEL);
        self.team.looks += 1;
    }

    /// Charges an instruction that moves many bytes. Otherwise a time slice with a loop of them would take very long.
    pub(crate) fn charge_bytes(&mut self, bytes: usize) {
        self.charge((bytes / BYTES_PER_FUEL) as i32);
    }

    /// Charges fuel. The lower bound keeps later decrements from overflowing.
    fn charge(&mut self, fuel: i32) {
        self.fuel = self.fuel.saturating_sub(fuel).max(i32::MIN / 2);
    }
}

/// Memory that belongs to the running block, warp or launch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Segment {
    pub(crate) start: *mut u8,
    pub(crate) size: u64,
}

impl Segment {
    pub(crate) const EMPTY: Self = Self { start: std::ptr::null_mut(), size: 0 };

    #[inline(always)]
    pub(crate) fn locate(&self, at: u64, bytes: u64) -> Option<*mut u8> {
        (at.saturating_add(bytes) <= self.size).then(|| self.start.wrapping_add(at as usize))
    }
}

/// The state spaces other than global memory.
///
/// One thread runs a block at a time, so it has exclusive access to the block's shared and local memory. The pointers
/// are set when a warp is entered and are valid until the warp is left.
#[derive(Debug)]
pub(crate) struct Spaces<'a> {
    pub(crate) shared: Segment,
    /// The shared memory of each block of the cluster, in the order of their ranks. Empty for clusters of one block,
    /// and for blocks that have ended.
    pub(crate) cluster: SmallVec<[Segment; 1]>,
    /// Lane 0's local memory. The memory of the other lanes follows, `local.size` bytes each.
    pub(crate) local: Segment,
    /// Offset of the running frame in each lane's local memory.
    pub(crate) local_base: u32,
    pub(crate) params: &'a [u8],
    _not_send: PhantomData<*mut u8>,
}

impl<'a> Spaces<'a> {
    pub(crate) fn new(params: &'a [u8]) -> Self {
        Self {
            shared: Segment::EMPTY,
            cluster: SmallVec::new(),
            local: Segment::EMPTY,
            local_base: 0,
            params,
            _not_send: PhantomData,
        }
    }

    /// Returns the host address of `bytes` bytes of shared memory: of the running block, or of a block of its cluster.
    pub(crate) fn shared(&self, at: u64, bytes: u64) -> Option<*mut u8> {
        match block_of(at) {
            None => self.shared.locate(at, bytes),
            Some(rank) => self.cluster.get(rank as usize)?.locate(at & (CLUSTER_STEP - 1), bytes),
        }
    }

    /// Returns the host address of `bytes` bytes at offset `at` of `lane`'s local memory.
    #[inline(always)]
    pub(crate) fn local(&self, lane: usize, at: u64, bytes: u64) -> Option<*mut u8> {
        let first = self.local.locate(at, bytes)?;
        Some(first.wrapping_add(lane * self.local.size as usize))
    }
}

/// The type of one lane of a register: `u32` or `u64`.
pub(crate) trait Raw: Copy + Default + 'static {
    /// Writes the selected lanes of half a warp.
    ///
    /// # Safety
    /// As for [`Simd::blend_32`].
    unsafe fn blend<V: Simd>(d: *mut Self, values: &[Self; HALF], lanes: u16);
}

impl Raw for u32 {
    #[inline(always)]
    unsafe fn blend<V: Simd>(d: *mut Self, values: &[Self; HALF], lanes: u16) {
        // SAFETY: `d` points to the lanes of half a register, and the processor supports the level.
        unsafe { V::blend_32(d, values, lanes) };
    }
}

impl Raw for u64 {
    #[inline(always)]
    unsafe fn blend<V: Simd>(d: *mut Self, values: &[Self; HALF], lanes: u16) {
        // SAFETY: `d` points to the lanes of half a register, and the processor supports the level.
        unsafe { V::blend_64(d, values, lanes) };
    }
}

/// A fault, before the scheduler adds its location.
#[derive(Debug)]
pub(crate) struct LaneFault {
    pub(crate) kind: FaultKind,
    pub(crate) lane: u32,
    pub(crate) nearest: Option<crate::memory::Nearest>,
    /// For an asynchronous operation that is performed late: the instruction that started it.
    pub(crate) begun: Option<BlockFault>,
}

impl LaneFault {
    pub(crate) fn new(lane: usize, kind: FaultKind) -> Self {
        Self { kind, lane: lane as u32, nearest: None, begun: None }
    }
}

/// The location of a fault in a block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockFault {
    pub(crate) pc: u32,
    pub(crate) warp: u32,
}
