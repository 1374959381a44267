//! Errors of queries about GPUs.

use super::uuid::GpuUuid;

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
