//! Bulk copies and asynchronous stores that have started and are not yet waited for.
//!
//! As in `async_copies`, a transfer is performed as late as possible. A transfer that completes at an mbarrier is performed
//! when a thread waits for that mbarrier. A transfer in a thread's bulk group is performed when the thread waits for
//! the group, or when the block ends.

use super::budget::Budget;
use crate::isa::address::block_of;

/// Maximum number of outstanding transfers. Further ones are performed immediately.
const MAX_OUTSTANDING: usize = 4096;

/// Combines the value at the address with a value of the same size.
///
/// # Safety
/// The address must be valid and aligned for the type that the function was selected for.
pub(crate) type Update = unsafe fn(*mut u8, u64);

/// The outstanding transfers of a block.
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
const TAKEN: u64 = size_of::<Bulk>() as u64;

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
        let fits = self.list.len() < MAX_OUTSTANDING && budget.take(TAKEN);
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
        budget.give(TAKEN * taken.len() as u64);
        taken
    }

    /// Discards all transfers at the end of a block.
    pub(crate) fn forget(&mut self, budget: &Budget) {
        self.take_all(budget);
    }
}
