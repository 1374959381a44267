//! Asynchronous copies and stores that have started and are not yet waited for.
//!
//! PTX permits a copy at any time between its instruction and the wait. The CPU device performs it as late as possible,
//! so a kernel that reads without waiting does not see the data. Each thread numbers its own copy groups.
//!
//! [`Copies`] has the `cp.async` copies of a warp. Arrivals of `cp.async.mbarrier.arrive` are queued behind the copies
//! that they wait for. [`Bulks`] has the bulk copies and asynchronous stores of a block. A transfer that completes at
//! an mbarrier is performed when a thread waits for that mbarrier. A transfer in a thread's bulk group is performed
//! when the thread waits for the group, or when the block ends.

use std::collections::VecDeque;

use super::budget::Budget;
use crate::isa::address::block_of;
use crate::lanes::{LANES, lanes_of};

/// Maximum number of outstanding `cp.async` instructions of a warp. Further ones are performed immediately.
const MAX_COPIES: usize = 256;

/// The outstanding copies of one warp.
#[derive(Debug)]
pub(crate) struct Copies {
    queue: VecDeque<Entry>,
    /// For each lane, the number of groups it has committed. It is also the number of the open group.
    groups: [u32; LANES],
}

/// One queued instruction.
#[derive(Debug)]
struct Entry {
    /// The lanes for which it is still outstanding.
    lanes: u32,
    groups: [u32; LANES],
    step: Step,
}

/// The action of a queued instruction.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) action: Action,
    /// Program counter of the instruction, for faults.
    pub(crate) pc: u32,
}

/// The kind of a [`Step`].
#[derive(Debug)]
pub(crate) enum Action {
    Copy(Box<LaneCopies>),
    /// `cp.async.mbarrier.arrive`: addresses of the mbarriers in shared memory.
    Arrive(Box<[u64; LANES]>),
}

/// A copy from global to shared memory, for each lane.
#[derive(Debug)]
pub(crate) struct LaneCopies {
    pub(crate) from: [u64; LANES],
    pub(crate) to: [u64; LANES],
    /// Number of bytes that are read. The rest is filled with zeros.
    pub(crate) read: [u8; LANES],
    /// Number of bytes that are written: 4, 8 or 16.
    pub(crate) bytes: u8,
}

impl Default for Copies {
    fn default() -> Self {
        Self { queue: VecDeque::new(), groups: [0; LANES] }
    }
}

/// Host memory that an entry takes, in bytes.
const COPY_BYTES: u64 = (size_of::<Entry>() + size_of::<LaneCopies>()) as u64;

impl Copies {
    /// Appends a step for these lanes. Returns the step if there is no room for it.
    pub(crate) fn push(&mut self, lanes: u32, step: Step, budget: &Budget) -> Result<(), Step> {
        if self.queue.len() >= MAX_COPIES || !budget.take(COPY_BYTES) {
            return Err(step);
        }
        self.queue.push_back(Entry { lanes, groups: self.groups, step });
        Ok(())
    }

    /// Commits the open groups of the lanes.
    pub(crate) fn commit(&mut self, lanes: u32) {
        for lane in lanes_of(lanes) {
            self.groups[lane] = self.groups[lane].wrapping_add(1);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Performs, in order, the copies of these lanes that are older than their latest `left` groups.
    pub(crate) fn wait<E>(
        &mut self,
        lanes: u32,
        left: u32,
        budget: &Budget,
        mut perform: impl FnMut(&Step, u32) -> Result<(), E>,
    ) -> Result<(), E> {
        let groups = self.groups;
        for entry in self.queue.iter_mut().filter(|e| matches!(e.step.action, Action::Copy(_))) {
            let old = |&lane: &usize| groups[lane].wrapping_sub(entry.groups[lane]) > left;
            let due =
                lanes_of(entry.lanes & lanes).filter(old).fold(0, |due, lane| due | 1 << lane);
            if due != 0 {
                entry.lanes &= !due;
                perform(&entry.step, due)?;
            }
        }
        self.arrive_unblocked(perform)?;
        self.drop_done(budget);
        Ok(())
    }

    /// Performs the arrivals that have no outstanding copy in front of them.
    fn arrive_unblocked<E>(
        &mut self,
        mut perform: impl FnMut(&Step, u32) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut blocked = 0;
        for entry in &mut self.queue {
            match entry.step.action {
                Action::Copy(_) => blocked |= entry.lanes,
                Action::Arrive(_) if entry.lanes & !blocked != 0 => {
                    let due = entry.lanes & !blocked;
                    entry.lanes &= blocked;
                    perform(&entry.step, due)?;
                }
                Action::Arrive(_) => {}
            }
        }
        Ok(())
    }

    /// Returns the lanes with an outstanding copy.
    pub(crate) fn copying(&self) -> u32 {
        let copies = self.queue.iter().filter(|e| matches!(e.step.action, Action::Copy(_)));
        copies.fold(0, |all, entry| all | entry.lanes)
    }

    /// Performs the arrivals at one of these mbarriers, after the copies in front of them.
    pub(crate) fn arrive<E>(
        &mut self,
        barriers: &[u64],
        budget: &Budget,
        mut perform: impl FnMut(&Step, u32) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut arriving = 0;
        let mut due = vec![0; self.queue.len()];
        for (entry, due) in self.queue.iter().zip(&mut due).rev() {
            if let Action::Arrive(at) = &entry.step.action {
                let wanted = lanes_of(entry.lanes).filter(|&lane| barriers.contains(&at[lane]));
                *due = wanted.fold(0, |all, lane| all | 1 << lane);
                arriving |= *due;
            } else {
                *due = entry.lanes & arriving;
            }
        }
        for (entry, due) in self.queue.iter_mut().zip(due).filter(|(_, due)| *due != 0) {
            entry.lanes &= !due;
            perform(&entry.step, due)?;
        }
        self.drop_done(budget);
        Ok(())
    }

    /// Performs all steps in order.
    pub(crate) fn finish<E>(
        &mut self,
        budget: &Budget,
        mut perform: impl FnMut(&Step, u32) -> Result<(), E>,
    ) -> Result<(), E> {
        while let Some(entry) = self.queue.pop_front() {
            budget.give(COPY_BYTES);
            if entry.lanes != 0 {
                perform(&entry.step, entry.lanes)?;
            }
        }
        Ok(())
    }

    /// Discards all steps at the end of a block.
    pub(crate) fn forget(&mut self, budget: &Budget) {
        budget.give(COPY_BYTES * self.queue.len() as u64);
        // The group counters are not reset, because only their differences matter.
        self.queue.clear();
    }

    fn drop_done(&mut self, budget: &Budget) {
        let before = self.queue.len();
        self.queue.retain(|entry| entry.lanes != 0);
        budget.give(COPY_BYTES * (before - self.queue.len()) as u64);
    }
}

/// Maximum number of outstanding transfers of a block. Further ones are performed immediately.
const MAX_BULKS: usize = 4096;

/// Combines the value at the address with a value of the same size.
///
/// # Safety
/// The address must be valid and aligned for the type that the function was selected for.
pub(crate) type Update = unsafe fn(*mut u8, u64);

/// The outstanding bulk transfers of a block.
#[derive(Debug, Default)]
pub(crate) struct Bulks {
    list: Vec<Bulk>,
    /// For each thread, the number of bulk groups it has committed. Threads past the end have committed none.
    groups: Vec<u32>,
}

/// One outstanding transfer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bulk {
    pub(crate) transfer: Transfer,
    pub(crate) completion: Completion,
    /// Lane, warp and program counter of the instruction that started it, for faults.
    pub(crate) lane: u32,
    pub(crate) warp: u32,
    pub(crate) pc: u32,
}

impl Bulk {
    /// Returns whether it completes at an mbarrier in the shared memory of another block.
    pub(crate) fn is_remote(&self) -> bool {
        matches!(self.completion, Completion::Barrier { at, .. } if block_of(at).is_some())
    }
}

/// Source and destination of a transfer. Addresses are offsets in their state space.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Transfer {
    GlobalToShared {
        from: u64,
        to: u64,
        bytes: u32,
    },
    SharedToShared {
        from: u64,
        to: u64,
        bytes: u32,
        how: WriteMode,
    },
    SharedToGlobal {
        from: u64,
        to: u64,
        bytes: u32,
        how: WriteMode,
    },
    /// `st.async` and `red.async`: the low `size` bytes of each word.
    Words {
        to: u64,
        words: [u64; 4],
        count: u32,
        size: u32,
        update: Option<Update>,
    },
}

impl Transfer {
    pub(crate) fn bytes(&self) -> u32 {
        match *self {
            Self::GlobalToShared { bytes, .. }
            | Self::SharedToShared { bytes, .. }
            | Self::SharedToGlobal { bytes, .. } => bytes,
            Self::Words { count, size, .. } => count * size,
        }
    }
}

/// The way in which the copied bytes are combined with those at the destination.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WriteMode {
    Copy,
    /// Of every 16 bytes, only those whose bit in the mask is set are written.
    Masked(u16),
    /// Elements of this size are combined with the function.
    Update(Update, u32),
}

/// The mechanism that reports a transfer's completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Completion {
    /// The mbarrier at this address in shared memory counts the bytes.
    Barrier { at: u64, bytes: u32 },
    /// A bulk group of a thread.
    Group { thread: u32, group: u32 },
}

/// Host memory that a transfer takes, in bytes.
const BULK_BYTES: u64 = size_of::<Bulk>() as u64;

impl Bulks {
    /// Resets the groups for a new block. The list is already empty then.
    pub(crate) fn restart(&mut self) {
        self.groups.clear();
    }

    /// Returns the completion of a transfer in the thread's open group.
    pub(crate) fn in_group(&self, thread: usize) -> Completion {
        let group = self.groups.get(thread).copied().unwrap_or(0);
        Completion::Group { thread: thread as u32, group }
    }

    /// Commits the thread's open group.
    pub(crate) fn commit(&mut self, thread: usize) {
        if self.groups.len() <= thread {
            self.groups.resize(thread + 1, 0);
        }
        self.groups[thread] = self.groups[thread].wrapping_add(1);
    }

    /// Stores a transfer to be performed later. Returns false if there is no room.
    #[must_use]
    pub(crate) fn push(&mut self, bulk: Bulk, budget: &Budget) -> bool {
        let fits = self.list.len() < MAX_BULKS && budget.take(BULK_BYTES);
        if fits {
            self.list.push(bulk);
        }
        fits
    }

    /// Removes and returns, in order, the transfers that complete at one of these mbarriers.
    pub(crate) fn take_at(&mut self, barriers: &[u64], budget: &Budget) -> Vec<Bulk> {
        self.take(budget, |bulk| {
            matches!(bulk.completion, Completion::Barrier { at, .. } if barriers.contains(&at))
        })
    }

    /// Removes and returns the transfers of the thread that are older than its latest `left` groups.
    pub(crate) fn take_groups(&mut self, thread: usize, left: u32, budget: &Budget) -> Vec<Bulk> {
        let open = self.groups.get(thread).copied().unwrap_or(0);
        self.take(budget, |bulk| match bulk.completion {
            Completion::Group { thread: own, group } => {
                own as usize == thread && open.wrapping_sub(group) > left
            }
            Completion::Barrier { .. } => false,
        })
    }

    /// Removes and returns the transfers that belong to groups.
    pub(crate) fn take_all_groups(&mut self, budget: &Budget) -> Vec<Bulk> {
        self.take(budget, |bulk| matches!(bulk.completion, Completion::Group { .. }))
    }

    /// Removes and returns all transfers.
    pub(crate) fn take_all(&mut self, budget: &Budget) -> Vec<Bulk> {
        self.take(budget, |_| true)
    }

    fn take(&mut self, budget: &Budget, wanted: impl Fn(&Bulk) -> bool) -> Vec<Bulk> {
        if self.list.is_empty() {
            return Vec::new();
        }
        let taken: Vec<Bulk> = self.list.extract_if(.., |bulk| wanted(bulk)).collect();
        budget.give(BULK_BYTES * taken.len() as u64);
        taken
    }

    /// Discards all transfers at the end of a block.
    pub(crate) fn forget(&mut self, budget: &Budget) {
        self.take_all(budget);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy() -> Step {
        let (from, to) = ([0; LANES], [0; LANES]);
        let action = Action::Copy(Box::new(LaneCopies { from, to, read: [4; LANES], bytes: 4 }));
        Step { action, pc: 0 }
    }

    fn waited(copies: &mut Copies, lanes: u32, left: u32, budget: &Budget) -> Vec<u32> {
        let mut done = Vec::new();
        let perform = |_: &Step, lanes| -> Result<(), ()> {
            done.push(lanes);
            Ok(())
        };
        copies.wait(lanes, left, budget, perform).unwrap_or_default();
        done
    }

    #[test]
    fn each_lane_has_its_own_groups() {
        let budget = Budget::new(0);
        let mut copies = Copies::default();
        copies.push(3, copy(), &budget).unwrap_or_default_step();
        copies.commit(1);
        copies.push(3, copy(), &budget).unwrap_or_default_step();
        copies.commit(3);
        assert_eq!(waited(&mut copies, 3, 1, &budget), [1], "lane 1 has closed only one group");
        assert_eq!(waited(&mut copies, 3, 0, &budget), [2, 3]);
        assert!(copies.is_empty());
    }

    #[test]
    fn arrivals_wait_for_earlier_copies() {
        let budget = Budget::new(0);
        let mut copies = Copies::default();
        copies.push(3, copy(), &budget).unwrap_or_default_step();
        let mut at = [8; LANES];
        at[1] = 16;
        copies
            .push(3, Step { action: Action::Arrive(Box::new(at)), pc: 0 }, &budget)
            .unwrap_or_default_step();
        copies.push(3, copy(), &budget).unwrap_or_default_step();
        let mut done = Vec::new();
        let perform = |step: &Step, lanes| -> Result<(), ()> {
            done.push((matches!(step.action, Action::Arrive(_)), lanes));
            Ok(())
        };
        copies.arrive(&[8], &budget, perform).unwrap_or_default();
        assert_eq!(done, [(false, 1), (true, 1)]);
        assert_eq!(copies.queue.len(), 3);
    }

    #[test]
    fn memory_returns_to_the_budget() {
        let budget = Budget::new(0);
        let mut copies = Copies::default();
        while copies.push(1, copy(), &budget).is_ok() {}
        assert_eq!(copies.queue.len(), MAX_COPIES);
        assert!(!budget.take(budget.limit));
        copies.forget(&budget);
        assert!(budget.take(budget.limit));
    }

    trait Fits {
        fn unwrap_or_default_step(self);
    }

    impl Fits for Result<(), Step> {
        fn unwrap_or_default_step(self) {
            assert!(self.is_ok());
        }
    }
}
