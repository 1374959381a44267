//! The GPUs of a node: the interface that describes them, the addresses that mean them, and the errors of queries.

use std::{fmt, path::PathBuf, sync::Arc};

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
    /// The device files that a process needs for it. `None` if NVML does not tell them.
    pub device_files: Option<Vec<PathBuf>>,
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

/// The identifier of a GPU or of a MIG instance, such as `GPU-5a3c..` or `MIG-81f0..`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GpuUuid(Arc<str>);

impl GpuUuid {
    /// The identifier with this text, as NVML and `nvidia-smi -L` write it.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The text, which `CUDA_VISIBLE_DEVICES` also takes.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for GpuUuid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Debug for GpuUuid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Returns the GPUs that `address` means, of those in `devices`: `cuda:0` as CUDA counts, or the identifier of a GPU or
/// of a MIG instance. A GPU that is divided into MIG instances means all of them.
///
/// CUDA counts in the order of `nvidia-smi`, or in that of `visible`, the value of `CUDA_VISIBLE_DEVICES` if it is set.
/// The entries of `visible` are numbers or identifiers, and the first one that is neither ends the list.
///
/// # Errors
/// [`Error::NotFound`] with the addresses that there are.
pub fn select<'a>(
    devices: &'a [GpuInfo],
    visible: Option<&str>,
    address: &str,
) -> Result<Vec<&'a GpuInfo>> {
    let whole = |index: u32| devices.iter().find(|gpu| gpu.index == index && !is_instance(gpu));
    let named = |name: &str| {
        let starts = |gpu: &&GpuInfo| gpu.uuid.as_str().starts_with(name);
        if name.is_empty() { None } else { devices.iter().find(starts) }
    };
    let counted: Vec<&GpuInfo> = match visible {
        None => (0..).map_while(whole).collect(),
        Some(list) => {
            let entry = |entry: &str| match entry.trim().parse() {
                Ok(index) => whole(index),
                Err(_) => named(entry.trim()),
            };
            list.split(',').map_while(entry).collect()
        }
    };
    let found = match address.strip_prefix("cuda:") {
        Some(number) => number.parse().ok().and_then(|number: usize| counted.get(number).copied()),
        None => named(address).filter(|gpu| {
            visible.is_none() || counted.contains(gpu) || is_part_of_any(gpu, &counted)
        }),
    };
    match found {
        Some(gpu) if gpu.kind == GpuKind::Divided => {
            Ok(devices.iter().filter(|instance| is_part_of_any(instance, &[gpu])).collect())
        }
        Some(gpu) => Ok(vec![gpu]),
        None => {
            let numbers = (0..counted.len()).map(|number| format!("cuda:{number}"));
            let available = numbers.chain(devices.iter().map(|gpu| gpu.uuid.to_string())).collect();
            Err(Error::NotFound { address: address.to_owned(), available })
        }
    }
}

fn is_instance(gpu: &GpuInfo) -> bool {
    matches!(gpu.kind, GpuKind::Instance { .. })
}

fn is_part_of_any(gpu: &GpuInfo, whole: &[&GpuInfo]) -> bool {
    match &gpu.kind {
        GpuKind::Instance { parent, .. } => whole.iter().any(|gpu| gpu.uuid == *parent),
        _ => false,
    }
}

/// The result of a query about GPUs.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The cause of a failed query about GPUs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// NVML cannot be loaded or initialized.
    #[error(
        "NVML cannot be used: {detail}; install NVIDIA's driver, which contains libnvidia-ml.so.1"
    )]
    NoNvml {
        /// The message of the loader, or of NVML.
        detail: String,
    },
    /// This node has no GPU with this identifier.
    #[error("this node has no GPU {gpu}; list its GPUs with `GpuMonitor::devices`")]
    NoGpu {
        /// The requested GPU.
        gpu: GpuUuid,
    },
    /// No GPU has this address.
    #[error("this node has no device {address}; it has {}", .available.join(", "))]
    NotFound {
        /// The address.
        address: String,
        /// The addresses that there are.
        available: Vec<String>,
    },
    /// The GPU no longer answers. The error is sticky: the GPU needs a reset, or the machine a restart.
    #[error("GPU {gpu} is lost: {detail}; reset it or restart the machine")]
    GpuLost {
        /// The lost GPU.
        gpu: GpuUuid,
        /// The message of NVML.
        detail: String,
    },
    /// NVML refused a query.
    #[error("NVML cannot read {query}{}: {detail}", .gpu.as_ref().map(|gpu| format!(" of GPU {gpu}")).unwrap_or_default())]
    Query {
        /// The quantity that was asked for.
        query: &'static str,
        /// The GPU that was asked about, or `None` for the machine.
        gpu: Option<GpuUuid>,
        /// The message of NVML.
        detail: String,
    },
    /// The runtime was shut down during a check.
    #[error("the runtime was shut down during a query about GPU {gpu}")]
    Cancelled {
        /// The GPU that was asked about.
        gpu: GpuUuid,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::tests::ScriptedMonitor;

    fn names(found: Result<Vec<&GpuInfo>>) -> Vec<String> {
        found.unwrap().iter().map(|gpu| gpu.uuid.to_string()).collect()
    }

    #[test]
    fn numbers_count_as_nvidia_smi_does() {
        let devices = ScriptedMonitor::whole_gpus(3).devices().unwrap();
        assert_eq!(names(select(&devices, None, "cuda:2")), ["GPU-2"]);
        assert_eq!(names(select(&devices, None, "GPU-1")), ["GPU-1"]);
    }

    #[test]
    fn numbers_count_visible_gpus() {
        let devices = ScriptedMonitor::whole_gpus(3).devices().unwrap();
        let visible = Some("2,GPU-0,-1,1");
        assert_eq!(names(select(&devices, visible, "cuda:0")), ["GPU-2"]);
        assert_eq!(names(select(&devices, visible, "cuda:1")), ["GPU-0"]);
        assert!(select(&devices, visible, "cuda:2").is_err());
        assert!(select(&devices, visible, "GPU-1").is_err());
        assert!(select(&devices, Some(""), "cuda:0").is_err());
    }

    #[test]
    fn divided_gpu_means_its_instances() {
        let devices = ScriptedMonitor::divided_gpu(2).devices().unwrap();
        assert_eq!(names(select(&devices, None, "cuda:0")), ["MIG-0", "MIG-1"]);
        assert_eq!(names(select(&devices, Some("0"), "MIG-1")), ["MIG-1"]);
    }

    #[test]
    fn error_lists_the_addresses() {
        let devices = ScriptedMonitor::whole_gpus(2).devices().unwrap();
        for address in ["cuda:2", "cuda:x", "GPU-7", ""] {
            let error = select(&devices, None, address).unwrap_err().to_string();
            assert!(error.contains("cuda:0, cuda:1, GPU-0, GPU-1"), "{address}: {error}");
        }
    }
}
