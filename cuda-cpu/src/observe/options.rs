//! Options of a launch: checks and the order of execution.

/// Checks in addition to those of every access (bounds, alignment, use after free). Each one makes a kernel several
/// times slower. Checks that are off have no cost.
///
/// ```
/// use cuda_cpu::Checks;
///
/// assert_eq!(Checks::all(), Checks::none().uninitialized().races().read_only());
/// assert!(!Checks::default().any());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub struct Checks {
    /// Whether a read of memory that was never written is a fault. The memory is global, shared or local. See
    /// [`Checks::uninitialized`].
    pub uninitialized: bool,
    /// Whether unordered accesses of a block's threads to the same shared memory are a fault. See [`Checks::races`].
    pub races: bool,
    /// Whether a write through an argument that the launch only reads is a fault. See [`Checks::read_only`].
    pub read_only: bool,
}

impl Checks {
    /// Selects no additional checks. This is the default.
    pub const fn none() -> Self {
        Self { uninitialized: false, races: false, read_only: false }
    }

    /// Selects all checks.
    pub const fn all() -> Self {
        Self::none().uninitialized().races().read_only()
    }

    /// Adds the check for reads of memory that was never written.
    ///
    /// Global memory is written by the host (copies and fills), by initializers of the module, and by kernels. A copy
    /// on the device also copies which bytes are written. Allocations are tracked from their creation, so the
    /// [`Memory`](crate::Memory) must be created for this check ([`Memory::tracking`](crate::Memory::tracking)). A
    /// device with this check does so. Shared memory is unwritten at the start of a block, and local memory at the
    /// start of its function.
    ///
    /// A load from global memory is a fault if any byte of it is unwritten. A value loaded from shared or local memory
    /// may be passed on, as compilers do with the padding of structs. It is a fault of the load if an address, a
    /// branch, a store to global memory or an atomic depends on the value. An atomic reads its operand in memory, but
    /// an exchange does not count as a read.
    pub const fn uninitialized(self) -> Self {
        Self { uninitialized: true, ..self }
    }

    /// Adds the check for races of a block's threads on its shared memory.
    ///
    /// Two threads race if they access the same bytes, at least one of them writes, not both accesses are atomic (or
    /// `volatile`, `relaxed` and so on), and nothing orders them: no barrier of the block, no `bar.warp.sync` or other
    /// `.sync` instruction in which both take part, and no release by one thread that the other acquires. Lanes of a
    /// warp are not ordered by running together. Threads that write the same value do not race, nor does one of
    /// them that then reads it.
    ///
    /// The check depends on synchronization and not on timing. It finds every race of the accesses in this launch, in
    /// either order of the two accesses. A launch in another order may have other races. The check does not find:
    ///
    /// - races on global memory, and between blocks;
    /// - races with pending copies to shared memory (`cp.async` without a wait), which count as complete at once;
    /// - races hidden by an order that is assumed but not guaranteed: each release through global memory orders before
    ///   each later acquire there, and each `.sync` of a warp orders memory, also those without such a guarantee, as
    ///   `shfl.sync`.
    pub const fn races(self) -> Self {
        Self { races: true, ..self }
    }

    /// Adds the check for writes through arguments that the launch only reads. The fault names the parameter.
    ///
    /// The check covers the memory of the launch's [`operands`](crate::Launch::operands). A device states them: an
    /// argument by shared reference, `Arc` or read-only slice is only read. Memory that another argument of the launch
    /// may write is not checked. Nor is memory that the kernel reaches through a pointer in other memory.
    pub const fn read_only(self) -> Self {
        Self { read_only: true, ..self }
    }

    /// Returns whether any check is on.
    pub const fn any(self) -> bool {
        self.uninitialized || self.races || self.read_only
    }
}

/// The order in which blocks and warps run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Schedule {
    /// On all workers, in no particular order.
    #[default]
    Parallel,
    /// On one worker, in a fixed order. The same launch has the same result every time. Clocks (`%clock`,
    /// `%globaltimer`) count instructions from 0 at the start of the launch.
    Fixed,
    /// On one worker, in an order that depends on the seed. The seed selects the next block, the next warp, and the
    /// length of each time slice. This reveals results that depend on the order. The same seed has the same result
    /// every time. Clocks count instructions.
    Shuffled {
        /// The seed that selects the order.
        seed: u64,
    },
}

impl Schedule {
    /// Returns whether the order, and so the result, is the same every time.
    pub const fn is_deterministic(self) -> bool {
        !matches!(self, Self::Parallel)
    }
}
