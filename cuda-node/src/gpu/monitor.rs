//! The interface to the GPUs of a node.

use super::{error::Result, uuid::GpuUuid};

/// One GPU or one MIG instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuInfo {
    /// The index of the physical GPU in NVML's order. CUDA's order may differ.
    pub index: u32,
    /// The identifier.
    pub uuid: GpuUuid,
    /// Whole GPU or MIG instance.
    pub kind: GpuKind,
    /// The product name; for a MIG instance NVML adds its profile.
    pub name: String,
    /// The total memory in bytes. A part of it is reserved by the driver.
    pub total_memory: u64,
    /// The major and minor compute capability.
    pub compute_capability: (u32, u32),
    /// The number of streaming multiprocessors. `None` if NVML does not report it.
    pub multiprocessors: Option<u32>,
    /// The version of the driver, such as `580.82.07`.
    pub driver_version: String,
    /// The major and minor version of CUDA that the driver supports.
    pub cuda_version: (u32, u32),
}

impl GpuInfo {
    /// True if CUDA can run on it: all except for a GPU that is divided into MIG instances.
    pub fn runs_kernels(&self) -> bool {
        self.kind != GpuKind::Divided
    }
}

/// The kind of a [`GpuInfo`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GpuKind {
    /// A whole GPU.
    Whole,
    /// A GPU in MIG mode. Only its instances run kernels.
    Divided,
    /// A MIG instance.
    Instance {
        /// The divided GPU.
        parent: GpuUuid,
        /// The index of the instance in its GPU.
        index: u32,
    },
}

/// The memory that one process uses on one GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProcessMemory {
    /// NVML's list of processes does not contain the process. It has no context, or NVML cannot see it: in a container
    /// the list may contain the processes of the host's PID namespace, or none.
    NotListed,
    /// The process uses this many bytes.
    Used(u64),
    /// NVML gives no list, or lists the process without an amount.
    Unknown,
}

/// Queries about the GPUs of this machine.
///
/// The calls may block for milliseconds while the driver is busy. Asynchronous code makes them with `spawn_blocking`.
///
/// # Containers
/// NVML asks the driver for the process ids of its clients. Depending on the driver's version and on the container
/// runtime, the ids are those of the caller's PID namespace, those of the host, or missing. A missing process proves
/// that it ended only if the process was listed before. [`MemoryCheck`](super::MemoryCheck) observes this, and
/// otherwise compares [`used`](Self::used).
pub trait GpuMonitor: Send + Sync {
    /// The GPUs and MIG instances of this machine, in NVML's order. Instances follow their GPU.
    ///
    /// # Errors
    /// NVML refused a query.
    fn devices(&self) -> Result<Vec<GpuInfo>>;

    /// The memory that a process uses on a GPU.
    ///
    /// # Errors
    /// The machine has no such GPU, the GPU is lost, or NVML refused the query. A missing list is
    /// [`ProcessMemory::Unknown`], not an error.
    fn memory_of(&self, gpu: &GpuUuid, pid: u32) -> Result<ProcessMemory>;

    /// The bytes that all processes and the driver's contexts use on a GPU. Memory that the driver reserves is not part
    /// of it.
    ///
    /// # Errors
    /// The machine has no such GPU, the GPU is lost, or NVML refused the query.
    fn used(&self, gpu: &GpuUuid) -> Result<u64>;
}
