//! Checks that the memory of an ended worker is free.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::monitor::{Error, GpuMonitor, GpuUuid, ProcessMemory, Result};

/// The time between two queries. On an H200, the memory of a killed process is free after 70 to 100 ms.
const INTERVAL: Duration = Duration::from_millis(10);

/// The outcome of a [`MemoryCheck`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemoryReturn {
    /// The process uses no memory of the GPU any more.
    Returned,
    /// At the deadline, the process still used this many bytes.
    Held(u64),
    /// At the deadline, NVML could not attribute memory to the process, and the GPU's use was above the baseline.
    /// Another process may have allocated meanwhile, so this result is possible on a healthy GPU that is shared.
    Unproven {
        /// The bytes in use at the deadline.
        used: u64,
        /// The bytes in use before the worker was launched.
        baseline: u64,
    },
}

/// Observes the memory of one worker on one GPU.
///
/// 1. [`before_launch`](Self::before_launch) reads the GPU's use, the baseline.
/// 2. [`observe`](Self::observe) runs while the worker has a context. It finds out whether NVML lists the process.
/// 3. [`memory_returned`](Self::memory_returned) runs after the worker was reaped.
///
/// If NVML listed the process, its absence proves that the memory is free. If not, the GPU's use must fall to the
/// baseline.
pub struct MemoryCheck {
    monitor: Arc<dyn GpuMonitor>,
    gpu: GpuUuid,
    baseline: u64,
    listed: bool,
}

impl MemoryCheck {
    /// Reads the baseline of a GPU before a worker is launched on it.
    ///
    /// # Errors
    /// Those of [`GpuMonitor::used`].
    pub async fn before_launch(monitor: Arc<dyn GpuMonitor>, gpu: GpuUuid) -> Result<Self> {
        let baseline = query(&monitor, &gpu, |monitor, gpu| monitor.used(gpu)).await?;
        Ok(Self { monitor, gpu, baseline, listed: false })
    }

    /// Finds out whether NVML lists the worker. Returns the memory of the process.
    ///
    /// # Errors
    /// Those of [`GpuMonitor::memory_of`].
    pub async fn observe(&mut self, pid: u32) -> Result<ProcessMemory> {
        let memory = self.memory_of(pid).await?;
        self.listed |= matches!(memory, ProcessMemory::Used(_));
        Ok(memory)
    }

    /// Polls until the memory of a reaped worker is free, at the latest until the deadline. Queries at least once.
    ///
    /// # Errors
    /// Those of [`GpuMonitor::memory_of`] and [`GpuMonitor::used`]. The memory then counts as not returned.
    pub async fn memory_returned(&self, pid: u32, deadline: Instant) -> Result<MemoryReturn> {
        loop {
            let state = self.state(pid).await?;
            if state == MemoryReturn::Returned || Instant::now() >= deadline {
                return Ok(state);
            }
            tokio::time::sleep_until(deadline.min(Instant::now() + INTERVAL)).await;
        }
    }

    async fn state(&self, pid: u32) -> Result<MemoryReturn> {
        match self.memory_of(pid).await? {
            ProcessMemory::Used(bytes) => return Ok(MemoryReturn::Held(bytes)),
            ProcessMemory::NotListed if self.listed => return Ok(MemoryReturn::Returned),
            ProcessMemory::NotListed | ProcessMemory::Unknown => {}
        }
        let used = query(&self.monitor, &self.gpu, |monitor, gpu| monitor.used(gpu)).await?;
        let baseline = self.baseline;
        Ok(if used <= baseline {
            MemoryReturn::Returned
        } else {
            MemoryReturn::Unproven { used, baseline }
        })
    }

    async fn memory_of(&self, pid: u32) -> Result<ProcessMemory> {
        query(&self.monitor, &self.gpu, move |monitor, gpu| monitor.memory_of(gpu, pid)).await
    }
}

/// Makes a query on a thread that may block.
async fn query<T: Send + 'static>(
    monitor: &Arc<dyn GpuMonitor>,
    gpu: &GpuUuid,
    ask: impl FnOnce(&dyn GpuMonitor, &GpuUuid) -> Result<T> + Send + 'static,
) -> Result<T> {
    let (monitor, asked) = (Arc::clone(monitor), gpu.clone());
    let answer = tokio::task::spawn_blocking(move || ask(&*monitor, &asked)).await;
    answer.unwrap_or_else(|_| Err(Error::Cancelled { gpu: gpu.clone() }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::tests::{Release, ScriptedMonitor, Visibility};

    const GIB: u64 = 1 << 30;
    const WORKER: u32 = 70;
    const OTHER: u32 = 71;

    /// A worker that used memory, was observed if `observed`, and has ended.
    async fn ended(
        monitor: &Arc<ScriptedMonitor>,
        observed: bool,
        release: Release,
    ) -> (MemoryCheck, GpuUuid) {
        let gpu = monitor.devices().unwrap()[0].uuid.clone();
        monitor.start_process(&gpu, OTHER, GIB);
        let mut check = MemoryCheck::before_launch(monitor.clone(), gpu.clone()).await.unwrap();
        monitor.start_process(&gpu, WORKER, 2 * GIB);
        if observed {
            check.observe(WORKER).await.unwrap();
        }
        monitor.end_process(&gpu, WORKER, release);
        (check, gpu)
    }

    async fn outcome(check: &MemoryCheck, limit: Duration) -> MemoryReturn {
        check.memory_returned(WORKER, Instant::now() + limit).await.unwrap()
    }

    const SOON: Duration = Duration::from_millis(30);
    const LIMIT: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn memory_of_listed_process_returns_after_some_queries() {
        let monitor = Arc::new(ScriptedMonitor::whole_gpus(1));
        let (check, gpu) = ended(&monitor, true, Release::AfterQueries(4)).await;
        // Another process that allocates does not disturb the check.
        monitor.start_process(&gpu, OTHER, 5 * GIB);
        assert_eq!(outcome(&check, LIMIT).await, MemoryReturn::Returned);
        assert_eq!(monitor.memory_of(&gpu, WORKER).unwrap(), ProcessMemory::NotListed);
    }

    #[tokio::test]
    async fn memory_that_never_returns_is_held_at_the_deadline() {
        let monitor = Arc::new(ScriptedMonitor::whole_gpus(1));
        let (check, _) = ended(&monitor, true, Release::Never).await;
        let started = Instant::now();
        assert_eq!(outcome(&check, SOON).await, MemoryReturn::Held(2 * GIB));
        assert!(started.elapsed() >= SOON);
    }

    #[tokio::test]
    async fn absence_of_a_process_that_was_never_listed_proves_nothing() {
        let monitor = Arc::new(ScriptedMonitor::whole_gpus(1));
        monitor.set_visibility(Visibility::OtherNamespace);
        let (check, gpu) = ended(&monitor, true, Release::Never).await;
        assert_eq!(monitor.memory_of(&gpu, WORKER).unwrap(), ProcessMemory::NotListed);
        let unproven = MemoryReturn::Unproven { used: 3 * GIB, baseline: GIB };
        assert_eq!(outcome(&check, SOON).await, unproven);
    }

    #[tokio::test]
    async fn use_of_the_gpu_decides_where_processes_are_not_listed() {
        for visibility in [Visibility::OtherNamespace, Visibility::NoAmounts, Visibility::NoList] {
            let monitor = Arc::new(ScriptedMonitor::whole_gpus(1));
            monitor.set_visibility(visibility);
            let (check, _) = ended(&monitor, true, Release::AfterQueries(3)).await;
            assert_eq!(outcome(&check, LIMIT).await, MemoryReturn::Returned, "{visibility:?}");
        }
    }

    #[tokio::test]
    async fn process_that_was_not_observed_needs_the_baseline() {
        let monitor = Arc::new(ScriptedMonitor::whole_gpus(1));
        let (check, gpu) = ended(&monitor, false, Release::AfterQueries(0)).await;
        monitor.start_process(&gpu, OTHER, 5 * GIB);
        let unproven = MemoryReturn::Unproven { used: 5 * GIB, baseline: GIB };
        assert_eq!(outcome(&check, SOON).await, unproven);
        monitor.start_process(&gpu, OTHER, GIB);
        assert_eq!(outcome(&check, SOON).await, MemoryReturn::Returned);
    }

    #[tokio::test]
    async fn lost_gpu_ends_the_check_with_its_error() {
        let monitor = Arc::new(ScriptedMonitor::whole_gpus(1));
        let (check, gpu) = ended(&monitor, true, Release::Never).await;
        monitor.lose(&gpu);
        let error = check.memory_returned(WORKER, Instant::now() + LIMIT).await.unwrap_err();
        assert!(matches!(error, Error::GpuLost { .. }), "{error}");
    }
}
