//! A monitor for tests whose GPUs and processes follow a script.

use std::collections::{BTreeMap, HashSet};

use parking_lot::Mutex;

use super::monitor::{Error, GpuInfo, GpuKind, GpuMonitor, GpuUuid, ProcessMemory, Result};

/// The memory of a scripted GPU in bytes.
const TOTAL_MEMORY: u64 = 80 << 30;

/// The number of queries after which the memory of an ended process is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Release {
    /// After this many queries about the process or about its GPU's use.
    AfterQueries(u32),
    /// The memory is never free again.
    Never,
}

/// The visibility of processes in NVML.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Visibility {
    /// Processes are listed with their memory.
    #[default]
    Full,
    /// Processes are listed without their memory.
    NoAmounts,
    /// NVML gives no list.
    NoList,
    /// The list contains process ids of another PID namespace.
    OtherNamespace,
}

/// A stand-in for NVML. It needs no GPU.
#[derive(Debug)]
pub(super) struct ScriptedMonitor {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    devices: Vec<GpuInfo>,
    processes: BTreeMap<(GpuUuid, u32), Process>,
    visibility: Visibility,
    lost: HashSet<GpuUuid>,
}

#[derive(Debug)]
struct Process {
    bytes: u64,
    /// Set once the process has ended.
    release: Option<Release>,
}

impl Process {
    /// Counts a query. Returns `false` if the memory is free.
    fn survives_query(&mut self) -> bool {
        match &mut self.release {
            None | Some(Release::Never) => true,
            Some(Release::AfterQueries(0)) => false,
            Some(Release::AfterQueries(left)) => {
                *left -= 1;
                true
            }
        }
    }
}

impl ScriptedMonitor {
    /// A monitor with these GPUs.
    pub(super) fn new(devices: Vec<GpuInfo>) -> Self {
        Self {
            state: Mutex::new(State {
                devices,
                processes: BTreeMap::new(),
                visibility: Visibility::default(),
                lost: HashSet::new(),
            }),
        }
    }

    /// A monitor with whole GPUs of 80 GiB, `GPU-0` and so on.
    pub(super) fn whole_gpus(count: u32) -> Self {
        Self::new((0..count).map(whole).collect())
    }

    /// A monitor with one GPU that is divided into equal MIG instances, `MIG-0` and so on.
    pub(super) fn divided_gpu(instances: u32) -> Self {
        let parent = GpuInfo { kind: GpuKind::Divided, ..whole(0) };
        let instance = |index| GpuInfo {
            uuid: GpuUuid::new(format!("MIG-{index}")),
            kind: GpuKind::Instance { parent: parent.uuid.clone(), index },
            name: format!("{} MIG {index}", parent.name),
            total_memory: TOTAL_MEMORY / u64::from(instances.max(1)),
            multiprocessors: Some(16),
            ..parent.clone()
        };
        let devices = std::iter::once(parent.clone()).chain((0..instances).map(instance));
        Self::new(devices.collect())
    }

    /// Starts a process that uses memory of a GPU, or sets the memory that a process uses.
    pub(super) fn start_process(&self, gpu: &GpuUuid, pid: u32, bytes: u64) {
        let process = Process { bytes, release: None };
        self.state.lock().processes.insert((gpu.clone(), pid), process);
    }

    /// Ends a process. Its memory is released as `release` states.
    pub(super) fn end_process(&self, gpu: &GpuUuid, pid: u32, release: Release) {
        if let Some(process) = self.state.lock().processes.get_mut(&(gpu.clone(), pid)) {
            process.release = Some(release);
        }
    }

    /// Sets the visibility of processes.
    pub(super) fn set_visibility(&self, visibility: Visibility) {
        self.state.lock().visibility = visibility;
    }

    /// Makes every later query about a GPU fail with [`Error::GpuLost`].
    pub(super) fn lose(&self, gpu: &GpuUuid) {
        self.state.lock().lost.insert(gpu.clone());
    }
}

impl State {
    fn check(&self, gpu: &GpuUuid) -> Result<()> {
        if self.lost.contains(gpu) {
            return Err(Error::GpuLost { gpu: gpu.clone(), detail: "lost by the script".into() });
        }
        let known = self.devices.iter().any(|device| device.uuid == *gpu);
        if known { Ok(()) } else { Err(Error::NoGpu { gpu: gpu.clone() }) }
    }
}

impl GpuMonitor for ScriptedMonitor {
    fn devices(&self) -> Result<Vec<GpuInfo>> {
        Ok(self.state.lock().devices.clone())
    }

    fn memory_of(&self, gpu: &GpuUuid, pid: u32) -> Result<ProcessMemory> {
        let mut state = self.state.lock();
        state.check(gpu)?;
        let visibility = state.visibility;
        let key = (gpu.clone(), pid);
        let process = state.processes.get_mut(&key);
        let used = process.and_then(|process| process.survives_query().then_some(process.bytes));
        if used.is_none() {
            state.processes.remove(&key);
        }
        Ok(match (visibility, used) {
            (Visibility::Full, Some(bytes)) => ProcessMemory::Used(bytes),
            (Visibility::NoAmounts, Some(_)) | (Visibility::NoList, _) => ProcessMemory::Unknown,
            (_, None) | (Visibility::OtherNamespace, _) => ProcessMemory::NotListed,
        })
    }

    fn used(&self, gpu: &GpuUuid) -> Result<u64> {
        let mut state = self.state.lock();
        state.check(gpu)?;
        state.processes.retain(|(on, _), process| on != gpu || process.survives_query());
        let on_gpu = state.processes.iter().filter(|((on, _), _)| on == gpu);
        Ok(on_gpu.map(|(_, process)| process.bytes).sum())
    }
}

fn whole(index: u32) -> GpuInfo {
    GpuInfo {
        index,
        uuid: GpuUuid::new(format!("GPU-{index}")),
        kind: GpuKind::Whole,
        name: "Scripted GPU".into(),
        total_memory: TOTAL_MEMORY,
        compute_capability: (9, 0),
        multiprocessors: Some(132),
        driver_version: "580.00".into(),
        cuda_version: (13, 0),
        device_files: None,
    }
}

#[test]
fn instances_are_entries_of_their_own() {
    let monitor = ScriptedMonitor::divided_gpu(4);
    let devices = monitor.devices().unwrap();
    assert_eq!(devices.len(), 5);
    assert!(!devices[0].runs_kernels());
    let parent = devices[0].uuid.clone();
    assert_eq!(devices[2].kind, GpuKind::Instance { parent, index: 1 });
    assert!(devices[1..].iter().all(GpuInfo::runs_kernels));
    assert!(devices[1..].iter().all(|instance| instance.total_memory == TOTAL_MEMORY / 4));
}

#[test]
fn processes_use_memory_of_their_own_instance_only() {
    let monitor = ScriptedMonitor::divided_gpu(2);
    let [_, first, second] = &monitor.devices().unwrap()[..] else { panic!("three entries") };
    monitor.start_process(&first.uuid, 1, 100);
    monitor.start_process(&first.uuid, 2, 10);
    assert_eq!(monitor.used(&first.uuid), Ok(110));
    assert_eq!(monitor.used(&second.uuid), Ok(0));
    assert_eq!(monitor.memory_of(&first.uuid, 2), Ok(ProcessMemory::Used(10)));
    assert_eq!(monitor.memory_of(&second.uuid, 2), Ok(ProcessMemory::NotListed));
}

#[test]
fn unknown_gpu_is_an_error() {
    let gpu = GpuUuid::new("GPU-9");
    let error = ScriptedMonitor::whole_gpus(1).used(&gpu).unwrap_err();
    assert_eq!(error, Error::NoGpu { gpu });
}

#[test]
fn memory_is_free_after_the_scripted_queries() {
    let monitor = ScriptedMonitor::whole_gpus(1);
    let gpu = GpuUuid::new("GPU-0");
    monitor.start_process(&gpu, 1, 100);
    monitor.end_process(&gpu, 1, Release::AfterQueries(2));
    assert_eq!(monitor.used(&gpu), Ok(100));
    assert_eq!(monitor.memory_of(&gpu, 1), Ok(ProcessMemory::Used(100)));
    assert_eq!(monitor.memory_of(&gpu, 1), Ok(ProcessMemory::NotListed));
    assert_eq!(monitor.used(&gpu), Ok(0));
}
