//! Requests: questions that have a reply.

use super::{
    AllocId, EntryInfo, Error, FunctionId, GraphId, LaunchConfig, ModuleId, Occupancy, PoolId,
    PoolMemory, Result,
};

/// A question to a device. The reply arrives later, on any thread. Sending a request never blocks.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Request {
    /// Waits until a module is loaded; answered by [`Reply::Loaded`].
    Loaded {
        /// The module.
        module: ModuleId,
    },
    /// Waits until a graph is ready to be launched; answered by [`Reply::GraphReady`].
    GraphReady {
        /// The graph.
        graph: GraphId,
    },
    /// Asks for the number of blocks of a kernel that run at the same time; answered by [`Reply::Occupancy`]. The
    /// module is loaded.
    Occupancy {
        /// The kernel.
        function: FunctionId,
        /// The block, the shared memory and the cluster. The grid does not matter.
        config: LaunchConfig,
    },
    /// Asks for the memory of the device; answered by [`Reply::Memory`].
    Memory,
    /// Asks for the memory that a pool has reserved; answered by [`Reply::Pool`].
    PoolMemory {
        /// The pool, which may be [`PoolId::DEFAULT`].
        pool: PoolId,
    },
    /// Returns free memory of a pool to the system; answered by [`Reply::Pool`] with the memory afterwards. Memory
    /// whose free has not run is in use.
    TrimPool {
        /// The pool, which may be [`PoolId::DEFAULT`].
        pool: PoolId,
        /// The reserved bytes at which the backend stops.
        keep: u64,
    },
    /// Takes device memory for the first bytes of a reserved allocation, whose address stays; answered by
    /// [`Reply::Committed`]. Submissions after the reply may use them. The contents of the bytes that were committed
    /// before stay, those of the others are unspecified.
    Commit {
        /// The allocation: see [`Control::Reserve`](super::Control::Reserve).
        id: AllocId,
        /// The bytes that it can use afterwards. Not more than were reserved, and not fewer than before.
        bytes: u64,
    },
    /// Enables copies to the memory of another device of the process; answered by [`Reply::Reached`].
    Reach {
        /// The other device's address.
        address: String,
    },
    /// Resets the device after a fault; answered by [`Reply::Reset`]. The reply comes when everything that was
    /// submitted before has run or was skipped. Submissions behind the request belong to the device after the reset.
    Reset,
}

/// The reply to a [`Request`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Reply {
    /// The module is loaded.
    Loaded {
        /// The maximum number of threads per block of each kernel, in the order of the module's entries.
        max_threads: Vec<u32>,
        /// The output of the device's compiler, often empty.
        log: String,
        /// The kernels of a cubin. Empty for PTX, whose kernels the client reads from the text.
        entries: Vec<EntryInfo>,
    },
    /// The blocks that run at the same time.
    Occupancy(Occupancy),
    /// The graph is ready.
    GraphReady,
    /// The memory of the device.
    Memory(MemoryInfo),
    /// The memory of a pool.
    Pool(PoolMemory),
    /// The bytes of an allocation may be used.
    Committed,
    /// Whether copies to the other device are possible.
    Reached(bool),
    /// The device was reset. Memory and modules were kept.
    Reset {
        /// The fault that had lost the device, if there was one.
        lost: Option<Error>,
    },
}

/// Device memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryInfo {
    /// The bytes of live allocations of this device handle.
    pub used: u64,
    /// The bytes that are free, by the device's own count.
    pub free: u64,
    /// The total bytes of the device.
    pub total: u64,
}

/// The handle with which a backend replies to a request, once. A backend that drops it without a reply breaks the
/// protocol; the client then sees [`Error::DeviceLost`].
pub struct Answer(Box<dyn FnOnce(Result<Reply>) + Send>);

impl Answer {
    /// Creates an answer that passes the reply to `take`.
    pub fn new(take: impl FnOnce(Result<Reply>) + Send + 'static) -> Self {
        Self(Box::new(take))
    }

    /// Passes the reply to the client. May run a waker, so the caller holds no lock.
    pub fn give(self, reply: Result<Reply>) {
        (self.0)(reply);
    }
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Answer")
    }
}
