//! The identifier of a GPU.

use std::{fmt, sync::Arc};

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
