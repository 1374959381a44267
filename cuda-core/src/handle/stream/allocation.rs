//! Device memory with its access histories.

use std::{
    any::Any,
    ops::Range,
    sync::{Arc, Weak},
};

use crate::{
    handle::device::Device,
    order::{Retain, history::Accesses},
    protocol::{Access, AllocId, Error, ForeignOwner, MemoryConflict, Region, Result, Ticket},
    runtime::{Freed, Origin, PoolCore},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// Untyped device memory. Pool memory is freed in stream order after its last use, a variable with its module. Foreign
/// memory goes back to its owner after its last use.
pub struct Allocation {
    device: Device,
    id: AllocId,
    bytes: u64,
    source: Source,
    /// The ticket of the allocation.
    allocated: Ticket,
    pub(super) accesses: Accesses,
    /// Whether submissions that use it take turns: see `submit`.
    takes_turns: AtomicBool,
    /// Whether it was marked while a handle had it exclusively: then graphs may write it, because every shared use of
    /// it found the mark.
    graphs_may_write: AtomicBool,
    /// Whether it is a scalar, which every handle may write.
    is_scalar: AtomicBool,
    pub(super) turn: Mutex<()>,
    this: Weak<Self>,
}

/// The origin of memory, which decides how it is freed.
enum Source {
    /// A pool of the device, the default one if `None`. The memory is freed after its last use.
    Pool(Option<Arc<PoolCore>>),
    /// Reserved addresses, of which the first bytes have memory. Freed after its last use.
    Reserved { committed: AtomicU64 },
    /// A variable of this module. The memory is freed with the module.
    Variable { _module: Arc<dyn Any + Send + Sync> },
    /// A plan. The memory does not exist on the device.
    Plan,
    /// Foreign code. The owner is dropped after the last use.
    Foreign(ForeignOwner),
    /// The memory was given to foreign code.
    GivenAway,
}

impl Allocation {
    /// Memory from a pool of a device, the default one if `None`. `allocated` is the ticket of the allocation.
    pub(super) fn new(
        device: Device,
        id: AllocId,
        bytes: u64,
        allocated: Ticket,
        pool: Option<Arc<PoolCore>>,
    ) -> Arc<Self> {
        Self::from(Source::Pool(pool), device, id, bytes, allocated)
    }

    /// A variable of a module. Launches hold no handle of it, so submissions take turns. `named` comes after all
    /// earlier submissions of the device.
    pub(crate) fn variable(
        device: Device,
        id: AllocId,
        bytes: u64,
        named: Ticket,
        module: Arc<dyn Any + Send + Sync>,
    ) -> Arc<Self> {
        let source = Source::Variable { _module: module };
        let variable = Self::from(source, device, id, bytes, named);
        variable.take_turns();
        variable
    }

    /// Reserved addresses, without memory. `reserved` comes after no submission.
    pub(crate) fn reserved(device: Device, id: AllocId, bytes: u64, reserved: Ticket) -> Arc<Self> {
        let committed = AtomicU64::new(0);
        Self::from(Source::Reserved { committed }, device, id, bytes, reserved)
    }

    /// Sets the bytes of reserved addresses that have memory and were charged.
    pub(crate) fn set_committed(&self, bytes: u64) {
        if let Source::Reserved { committed } = &self.source {
            committed.store(bytes, Ordering::Relaxed);
        }
    }

    /// Memory of a plan. It takes turns, so that every submission that names it is checked.
    pub(super) fn planned(device: Device, id: AllocId, bytes: u64, at: Ticket) -> Arc<Self> {
        let planned = Self::from(Source::Plan, device, id, bytes, at);
        planned.take_turns();
        planned
    }

    /// Memory of foreign code. `at` comes after the work that foreign code did with it.
    pub(super) fn foreign(
        device: Device,
        id: AllocId,
        bytes: u64,
        at: Ticket,
        owner: ForeignOwner,
    ) -> Arc<Self> {
        Self::from(Source::Foreign(owner), device, id, bytes, at)
    }

    /// Makes the drop free nothing, because foreign code owns the memory from now on.
    ///
    /// # Errors
    /// [`Error::Misuse`] if this is not memory of the pool.
    pub(super) fn forget(&mut self) -> Result<()> {
        let conflict = match &self.source {
            Source::Pool(pool) => {
                self.device.core().refund(pool.as_deref(), self.bytes);
                self.source = Source::GivenAway;
                return Ok(());
            }
            Source::Reserved { .. } => MemoryConflict::Growable,
            Source::Variable { .. } => MemoryConflict::Variable,
            Source::Plan => MemoryConflict::Planned,
            Source::Foreign(_) | Source::GivenAway => MemoryConflict::Foreign,
        };
        Err(Error::memory("giving memory to foreign code", conflict))
    }

    /// Whether the memory belongs to foreign code.
    pub(crate) fn is_foreign(&self) -> bool {
        matches!(self.source, Source::Foreign(_))
    }

    /// Takes the owner of foreign memory, which this allocation does not name any more.
    pub(super) fn take_owner(&mut self) -> Option<ForeignOwner> {
        match std::mem::replace(&mut self.source, Source::GivenAway) {
            Source::Foreign(owner) => Some(owner),
            source => {
                self.source = source;
                None
            }
        }
    }

    fn from(
        source: Source,
        device: Device,
        id: AllocId,
        bytes: u64,
        allocated: Ticket,
    ) -> Arc<Self> {
        let accesses = Accesses::written(allocated);
        let (takes_turns, turn) = (AtomicBool::new(false), Mutex::new(()));
        Arc::new_cyclic(|this| Self {
            device,
            id,
            bytes,
            source,
            allocated,
            accesses,
            takes_turns,
            graphs_may_write: AtomicBool::new(false),
            is_scalar: AtomicBool::new(false),
            turn,
            this: this.clone(),
        })
    }

    /// Returns the size in bytes, as requested.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the device of this allocation.
    #[inline]
    pub fn device(&self) -> &Device {
        &self.device
    }

    #[inline]
    pub(crate) fn id(&self) -> AllocId {
        self.id
    }

    /// Another owner of it. `None` if it was taken out of its `Arc`, and then no handle uses it.
    pub(crate) fn shared(&self) -> Option<Arc<Self>> {
        self.this.upgrade()
    }

    /// Adds boundaries, so that the parts on both sides are ordered separately. The caller has exclusive access to
    /// these parts.
    ///
    /// # Errors
    /// [`Error::OutOfRange`](crate::Error::OutOfRange) at the limit of pieces.
    pub(crate) fn split(&self, at: impl IntoIterator<Item = u64>) -> Result<()> {
        self.accesses.split(at)
    }

    /// Marks the allocation: submissions that use it take turns from now on. The caller holds a handle.
    pub(crate) fn take_turns(&self) {
        self.takes_turns.store(true, Ordering::Relaxed);
    }

    /// Makes it a scalar, before its first handle exists: every handle may write it, and submissions take turns.
    pub(crate) fn become_scalar(&self) {
        self.take_turns();
        self.is_scalar.store(true, Ordering::Relaxed);
    }

    /// Whether it is a scalar. Relaxed: the mark is set before the first handle exists.
    #[inline]
    pub(crate) fn is_scalar(&self) -> bool {
        self.is_scalar.load(Ordering::Relaxed)
    }

    /// As [`take_turns`](Self::take_turns), by a caller that holds the memory exclusively. Graphs may write it from now
    /// on, also while handles share it.
    pub(crate) fn let_graphs_write(&self) {
        self.take_turns();
        self.graphs_may_write.store(true, Ordering::Relaxed);
    }

    /// Whether graphs may write it while handles share it. Relaxed, as [`takes_turns`](Self::takes_turns).
    pub(crate) fn graphs_may_write(&self) -> bool {
        self.graphs_may_write.load(Ordering::Relaxed)
    }

    /// Whether this is a variable of a module.
    pub(crate) fn is_variable(&self) -> bool {
        matches!(self.source, Source::Variable { .. })
    }

    /// The pool of the memory. `None` for the default pool, and for memory of no pool.
    pub(crate) fn pool(&self) -> Option<&Arc<PoolCore>> {
        match &self.source {
            Source::Pool(pool) => pool.as_ref(),
            Source::Reserved { .. }
            | Source::Variable { .. }
            | Source::Plan
            | Source::Foreign(_)
            | Source::GivenAway => None,
        }
    }

    /// Whether this is memory of a plan, which does not exist on the device.
    pub(super) fn is_planned(&self) -> bool {
        matches!(self.source, Source::Plan)
    }

    /// Whether its submissions take turns. Relaxed: a conflicting use needs an exclusive borrow, which orders the mark
    /// before a later read of it.
    #[inline]
    pub(crate) fn takes_turns(&self) -> bool {
        self.takes_turns.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn region(&self, offset: u64) -> Region {
        Region { alloc: self.id, offset }
    }

    /// Whether no live work has used it since it was allocated.
    pub(crate) fn is_unused(&self) -> bool {
        self.accesses.last_uses().iter().all(|ticket| *ticket == self.allocated)
    }

    /// Whether everything that used it is known to be complete.
    pub(crate) fn is_settled(&self) -> bool {
        let streams = &self.device.core().streams;
        self.accesses.last_uses().iter().all(|ticket| streams.is_complete(*ticket))
    }
}

impl Retain for Allocation {}

impl Drop for Allocation {
    fn drop(&mut self) {
        let (bytes, origin) = match std::mem::replace(&mut self.source, Source::GivenAway) {
            Source::Pool(None) => (self.bytes, Origin::Default),
            Source::Pool(Some(pool)) => (self.bytes, Origin::Pool(pool)),
            Source::Reserved { committed } => (committed.load(Ordering::Relaxed), Origin::NoPool),
            Source::Foreign(owner) => {
                let last_uses = self.accesses.last_uses().to_vec();
                return self.device.core().retire_foreign(self.id, last_uses, owner);
            }
            Source::Variable { .. } | Source::Plan | Source::GivenAway => return,
        };
        let last_uses = self.accesses.last_uses();
        self.device.core().retire_allocation(Freed { id: self.id, bytes, last_uses, origin });
    }
}

impl std::fmt::Debug for Allocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Allocation").field("id", &self.id).field("bytes", &self.bytes).finish()
    }
}

/// The use of some bytes of an allocation by a submission.
#[derive(Debug, Clone)]
pub(crate) struct Operand<'a> {
    pub(crate) allocation: &'a Allocation,
    pub(crate) range: Range<u64>,
    pub(crate) access: Access,
    /// Whether there are bytes in the range that the submission does not use.
    has_gaps: bool,
}

impl<'a> Operand<'a> {
    #[inline]
    pub(crate) fn new(allocation: &'a Allocation, range: Range<u64>, access: Access) -> Self {
        Self { allocation, range, access, has_gaps: false }
    }

    /// The same use, with bytes in its range that the submission may not use. It does not count as a use of the whole
    /// allocation: the owner of such bytes may submit at the same time, without a turn.
    #[inline]
    pub(crate) fn with_gaps(mut self, has_gaps: bool) -> Self {
        self.has_gaps = has_gaps;
        self
    }

    #[inline]
    pub(super) fn is_whole(&self) -> bool {
        !self.has_gaps && self.range.start == 0 && self.range.end >= self.allocation.bytes
    }
}
