//! The GPUs of a node and their memory, without CUDA.
//!
//! The supervisor never initializes CUDA, so it asks NVML. [`GpuMonitor`] is the interface. [`NvmlMonitor`] implements
//! it, and a scripted monitor stands in for it in tests. [`MemoryCheck`] decides whether the memory of an ended worker
//! is free. A slot whose memory is not free is fenced until the operator unfences it.
//!
//! This module uses no other module of the crate.

mod device_files;
mod memory_check;
mod monitor;
mod nvml;
#[cfg(test)]
mod tests;

pub use memory_check::{MemoryCheck, MemoryReturn};
pub use monitor::{Error, GpuInfo, GpuKind, GpuMonitor, GpuUuid, ProcessMemory, Result, select};
pub use nvml::NvmlMonitor;
