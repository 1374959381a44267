//! The GPU memory of a worker process: the bytes in use, and whether they are free after its end.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::gpu::{self, GpuMonitor, GpuUuid, MemoryCheck, MemoryReturn, ProcessMemory};

/// The maximum duration until the memory of a killed worker is free. On an H200 this takes 70 to 100 ms.
const DEADLINE: Duration = Duration::from_secs(4);

/// A GPU, or a MIG instance, whose memory can be observed.
#[derive(Clone)]
pub(in crate::supervisor) struct Gpu {
    pub(in crate::supervisor) monitor: Arc<dyn GpuMonitor>,
    pub(in crate::supervisor) uuid: GpuUuid,
}

impl Gpu {
    /// Begins a check, before the worker is launched.
    pub(super) async fn before_launch(&self) -> gpu::Result<MemoryCheck> {
        MemoryCheck::before_launch(self.monitor.clone(), self.uuid.clone()).await
    }
}

/// The memory of a worker that was launched.
pub(super) struct WorkerMemory {
    check: MemoryCheck,
    probe: MemoryProbe,
}

/// Asks for the memory of a worker.
#[derive(Clone)]
pub(in crate::supervisor) struct MemoryProbe {
    gpu: Gpu,
    pid: u32,
}

impl MemoryProbe {
    /// The bytes that the worker uses. `None` if NVML does not report them. Blocks for a millisecond.
    pub(in crate::supervisor) fn used(&self) -> Option<u64> {
        match self.gpu.monitor.memory_of(&self.gpu.uuid, self.pid) {
            Ok(ProcessMemory::Used(bytes)) => Some(bytes),
            _ => None,
        }
    }
}

impl WorkerMemory {
    pub(in crate::supervisor) fn new(check: MemoryCheck, gpu: Gpu, pid: u32) -> Self {
        Self { check, probe: MemoryProbe { gpu, pid } }
    }

    pub(super) fn probe(&self) -> MemoryProbe {
        self.probe.clone()
    }

    /// Finds out whether NVML reports the memory of this worker separately from that of other processes.
    pub(super) async fn observe(&mut self) {
        let pid = self.probe.pid;
        if let Err(error) = self.check.observe(pid).await {
            tracing::warn!(pid, %error, "the memory of a worker is unknown");
        }
    }

    /// Waits until the memory of the reaped worker is free. Returns `false` if it is not free in time.
    pub(super) async fn memory_returned(&self) -> bool {
        let pid = self.probe.pid;
        match self.check.memory_returned(pid, Instant::now() + DEADLINE).await {
            Ok(MemoryReturn::Returned) => true,
            Ok(MemoryReturn::Held(bytes)) => {
                tracing::error!(pid, bytes, "the memory of an exited worker is not free");
                false
            }
            Ok(MemoryReturn::Unproven { used, baseline }) => {
                // The process has exited, and others may have allocated meanwhile.
                tracing::warn!(
                    pid,
                    used,
                    baseline,
                    "NVML does not report whether the memory of an exited worker is free"
                );
                true
            }
            Err(error) => {
                tracing::error!(pid, %error, "the memory of an exited worker is unknown");
                false
            }
        }
    }
}
