//! What a launch may ask to be watched for, and in which order it runs.

/// What is checked beside what every access is held against (bounds, alignment, what was freed). Each makes
/// a kernel several times slower; without them nothing is.
///
/// ```
/// use cuda_cpu::Checks;
///
/// assert_eq!(Checks::all(), Checks::none().uninitialised().races());
/// assert!(!Checks::default().any());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub struct Checks {
    /// A read of global, shared or local memory that was never written is a fault: see
    /// [`Checks::uninitialised`].
    pub uninitialised: bool,
    /// Threads of a block that use the same shared memory without order are a fault: see [`Checks::races`].
    pub races: bool,
}

impl Checks {
    /// No further checks: the default.
    pub const fn none() -> Self {
        Self { uninitialised: false, races: false }
    }

    /// All of them.
    pub const fn all() -> Self {
        Self::none().uninitialised().races()
    }

    /// Also: reads of memory that was never written.
    ///
    /// Global memory is written by the host (copies, fills), by initialisers of the module, and by kernels; a
    /// copy on the device copies also which bytes were written. It is followed from when it is allocated, so a
    /// [`Memory`](crate::Memory) has to be made for it ([`Memory::tracking`](crate::Memory::tracking)); a device
    /// with this check does so. Shared memory is unwritten when a block begins, local memory when its function does.
    ///
    /// A load from global memory is a fault if any byte of it is unwritten. What a load takes from shared or local
    /// memory may be passed on, as compilers do with the padding of structs: it is a fault of the load once an address, a
    /// branch, a store to global memory or an atomic depends on it. An atomic reads what is there; an exchange does
    /// not count as a read.
    pub const fn uninitialised(self) -> Self {
        Self { uninitialised: true, ..self }
    }

    /// Also: races of a block's threads on its shared memory.
    ///
    /// It is a race if two threads access the same bytes, one of them writes, not both accesses are atomic (or
    /// `volatile`, `relaxed`, ..), and nothing orders them: no barrier of the block, no `bar.warp.sync` or other
    /// `.sync` instruction that both take part in, no release by the one that the other acquired. That lanes of a
    /// warp run together is no order. Threads that write the same value are let be, as is one of them that
    /// then reads it.
    ///
    /// A race is found if it happens in the order in which this launch runs, and there it is always found,
    /// whichever of the two comes first: what counts is not when they ran but what makes one wait for the
    /// other. Not seen are:
    ///
    /// - races on global memory, and between blocks;
    /// - copies to shared memory that are still under way (`cp.async` without a wait): they count as done at once;
    /// - orders that are taken too generously: each release through global memory orders before each later
    ///   acquire there; each `.sync` of a warp orders memory too, also those that promise nothing of the kind,
    ///   as `shfl.sync`.
    pub const fn races(self) -> Self {
        Self { races: true, ..self }
    }

    /// Whether there is one.
    pub const fn any(self) -> bool {
        self.uninitialised || self.races
    }
}

/// In which order blocks and warps run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Schedule {
    /// On all workers, as it comes.
    #[default]
    Parallel,
    /// On one worker, in a fixed order: the same launch gives the same result every time. Clocks (`%clock`,
    /// `%globaltimer`) count instructions, from 0 when the launch begins.
    Fixed,
    /// On one worker, in an order that depends on the seed: which block is next, which warp, and after how many
    /// instructions another one has a turn. It brings out what a kernel leaves to chance. The same seed gives
    /// the same result every time; clocks count instructions.
    Shuffled {
        /// Which order.
        seed: u64,
    },
}

impl Schedule {
    /// Whether the order, and so the result, is the same every time.
    pub const fn is_deterministic(self) -> bool {
        !matches!(self, Self::Parallel)
    }
}
