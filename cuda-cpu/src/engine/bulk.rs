//! Bulk copies and other asynchronous stores that threads of a block have begun, and nobody has waited for.
//!
//! As with `copies`: done when somebody waits for them. Those that complete at a barrier in shared memory are done
//! when that barrier is waited for; those of a thread's groups, when the thread waits for the groups, or when the
//! block ends.

use super::budget::Budget;

/// Transfers that are outstanding at a time, at most: more are done as they come.
const MOST: usize = 4096;

/// Combines what is at the address with a value of as many bytes.
///
/// # Safety
/// The address is valid and aligned for the type that it was picked for.
pub(crate) type Update = unsafe fn(*mut u8, u64);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Bulks {
    list: Vec<Bulk>,
    /// By thread, as far as one has closed groups: how many.
    groups: Vec<u32>,
}

/// One transfer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bulk {
    pub(crate) what: Transfer,
    pub(crate) completion: Completion,
    /// Who began it, and where, for faults.
    pub(crate) lane: u32,
    pub(crate) warp: u32,
    pub(crate) pc: u32,
}

/// What is written where. Addresses are those of the space.
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
        how: How,
    },
    SharedToGlobal {
        from: u64,
        to: u64,
        bytes: u32,
        how: How,
    },
    /// `st.async` and `red.async`: the low bytes of the words.
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

/// How bytes are combined with those that are there.
#[derive(Debug, Clone, Copy)]
pub(crate) enum How {
    Copy,
    /// Of each 16 bytes, only those whose bit is set in the mask.
    Masked(u16),
    /// Elements of a size.
    Update(Update, u32),
}

/// How its completion is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Completion {
    /// The barrier at this address in shared space counts these bytes.
    Barrier { at: u64, bytes: u32 },
    /// A group of a thread.
    Group { thread: u32, group: u32 },
}

/// The host memory that a transfer takes.
const TAKEN: u64 = size_of::<Bulk>() as u64;

impl Bulks {
    /// For a block that begins.
    pub(crate) fn restart(&mut self) {
        self.groups.clear();
    }

    /// The completion of a transfer in a thread's open group.
    pub(crate) fn in_group(&self, thread: usize) -> Completion {
        let group = self.groups.get(thread).copied().unwrap_or(0);
        Completion::Group { thread: thread as u32, group }
    }

    /// The thread closes its group.
    pub(crate) fn commit(&mut self, thread: usize) {
        if self.groups.len() <= thread {
            self.groups.resize(thread + 1, 0);
        }
        self.groups[thread] = self.groups[thread].wrapping_add(1);
    }

    /// Keeps a transfer for later; false when there is no room for it.
    #[must_use]
    pub(crate) fn push(&mut self, bulk: Bulk, budget: &Budget) -> bool {
        let fits = self.list.len() < MOST && budget.take(TAKEN);
        if fits {
            self.list.push(bulk);
        }
        fits
    }

    /// Takes, in order, what completes at one of these barriers.
    pub(crate) fn take_at(&mut self, barriers: &[u64], budget: &Budget) -> Vec<Bulk> {
        self.take(budget, |bulk| {
            matches!(bulk.completion, Completion::Barrier { at, .. } if barriers.contains(&at))
        })
    }

    /// Takes what is older than the thread's latest `left` groups.
    pub(crate) fn take_groups(&mut self, thread: usize, left: u32, budget: &Budget) -> Vec<Bulk> {
        let open = self.groups.get(thread).copied().unwrap_or(0);
        self.take(budget, |bulk| match bulk.completion {
            Completion::Group { thread: own, group } => {
                own as usize == thread && open.wrapping_sub(group) > left
            }
            Completion::Barrier { .. } => false,
        })
    }

    /// Takes what belongs to groups.
    pub(crate) fn take_all_groups(&mut self, budget: &Budget) -> Vec<Bulk> {
        self.take(budget, |bulk| matches!(bulk.completion, Completion::Group { .. }))
    }

    /// Takes everything.
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

    /// Nobody will wait for what is left.
    pub(crate) fn forget(&mut self, budget: &Budget) {
        self.take_all(budget);
    }
}
