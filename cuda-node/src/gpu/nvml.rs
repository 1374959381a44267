//! The monitor that asks NVML, which is loaded at run time.

use std::ffi::OsStr;

use nvml_wrapper::{
    Device, Nvml, cuda_driver_version_major, cuda_driver_version_minor,
    enums::device::UsedGpuMemory, error::NvmlError, struct_wrappers::device::ProcessInfo,
};

use super::{
    device_files,
    monitor::{Error, GpuInfo, GpuKind, GpuMonitor, GpuUuid, ProcessMemory, Result},
};

/// The library's names. Drivers without development files install only the first one.
const LIBRARIES: [&str; 2] = ["libnvidia-ml.so.1", "libnvidia-ml.so"];

/// The maximum number of attempts to read a list of processes that grows between two calls.
const LIST_ATTEMPTS: usize = 3;

/// NVML's mode of a GPU that is divided into instances.
const MIG_ENABLED: u32 = 1;

/// Asks NVML. It needs NVIDIA's driver at run time, but no CUDA, and creates no CUDA context.
#[derive(Debug)]
pub struct NvmlMonitor {
    nvml: Nvml,
}

impl NvmlMonitor {
    /// Loads and initializes NVML.
    ///
    /// # Errors
    /// [`Error::NoNvml`] on a machine without NVIDIA's driver.
    pub fn new() -> Result<Self> {
        let mut details = Vec::new();
        for library in LIBRARIES {
            match Nvml::builder().lib_path(OsStr::new(library)).init() {
                Ok(nvml) => return Ok(Self { nvml }),
                Err(error) => details.push(describe(&error)),
            }
        }
        Err(Error::NoNvml { detail: details.join("; ") })
    }

    fn device(&self, gpu: &GpuUuid) -> Result<Device<'_>> {
        self.nvml.device_by_uuid(gpu.as_str()).map_err(|error| match error {
            NvmlError::NotFound | NvmlError::InvalidArg => Error::NoGpu { gpu: gpu.clone() },
            error => failed("the handle", gpu)(error),
        })
    }
}

impl GpuMonitor for NvmlMonitor {
    fn devices(&self) -> Result<Vec<GpuInfo>> {
        let driver_version =
            self.nvml.sys_driver_version().map_err(refused("the version of the driver"))?;
        let cuda = self.nvml.sys_cuda_driver_version().map_err(refused("the version of CUDA"))?;
        let part = |number: i32| u32::try_from(number).unwrap_or(0);
        let cuda_version =
            (part(cuda_driver_version_major(cuda)), part(cuda_driver_version_minor(cuda)));
        let count = self.nvml.device_count().map_err(refused("the number of GPUs"))?;

        let mut devices = Vec::new();
        for index in 0..count {
            let device = self.nvml.device_by_index(index).map_err(refused("a GPU"))?;
            let whole = whole_gpu(&device, index, &driver_version, cuda_version)?;
            let divided = whole.kind == GpuKind::Divided;
            devices.push(whole.clone());
            if divided {
                devices.extend(self.instances(&device, &whole)?);
            }
        }
        Ok(devices)
    }

    fn memory_of(&self, gpu: &GpuUuid, pid: u32) -> Result<ProcessMemory> {
        let device = self.device(gpu)?;
        let mut attempts = 0;
        loop {
            attempts += 1;
            match device.running_compute_processes() {
                Ok(processes) => return Ok(memory_in(&processes, pid)),
                Err(NvmlError::InsufficientSize(_)) if attempts < LIST_ATTEMPTS => {}
                Err(error) if is_lost(&error) => return Err(failed("the processes", gpu)(error)),
                Err(error) => {
                    tracing::debug!(%gpu, %error, "NVML gives no list of processes");
                    return Ok(ProcessMemory::Unknown);
                }
            }
        }
    }

    fn used(&self, gpu: &GpuUuid) -> Result<u64> {
        let memory = self.device(gpu)?.memory_info().map_err(failed("the memory", gpu))?;
        Ok(memory.used)
    }
}

impl NvmlMonitor {
    /// The instances of a divided GPU.
    fn instances(&self, device: &Device<'_>, whole: &GpuInfo) -> Result<Vec<GpuInfo>> {
        let most = device.mig_device_count().map_err(failed("the MIG instances", &whole.uuid))?;
        let mut instances = Vec::new();
        for index in 0..most {
            let instance = match device.mig_device_by_index(index) {
                Ok(instance) => instance,
                // The indices of instances have gaps.
                Err(NvmlError::NotFound | NvmlError::InvalidArg) => continue,
                Err(error) => return Err(failed("a MIG instance", &whole.uuid)(error)),
            };
            let uuid =
                instance.uuid().map_err(failed("the identifier of a MIG instance", &whole.uuid))?;
            let uuid = GpuUuid::new(uuid);
            let attributes = instance.attributes().ok();
            let device_files = device
                .minor_number()
                .ok()
                .zip(self.instance_ids(&instance))
                .and_then(|(minor, ids)| device_files::of_instance(minor, ids));
            instances.push(GpuInfo {
                kind: GpuKind::Instance { parent: whole.uuid.clone(), index },
                name: instance.name().map_err(failed("the name", &uuid))?,
                total_memory: instance.memory_info().map_err(failed("the memory", &uuid))?.total,
                multiprocessors: attributes.map(|attributes| attributes.multiprocessor_count),
                uuid,
                device_files,
                ..whole.clone()
            });
        }
        Ok(instances)
    }

    /// The ids of the GPU instance and of the compute instance of a MIG instance.
    fn instance_ids(&self, instance: &Device<'_>) -> Option<(u32, u32)> {
        let (mut gpu, mut compute) = (0, 0);
        // SAFETY: NVML gave the handle, and writes one number to each pointer.
        let failed = unsafe {
            let (library, handle) = (self.nvml.lib(), instance.handle());
            [
                library.nvmlDeviceGetGpuInstanceId(handle, &raw mut gpu),
                library.nvmlDeviceGetComputeInstanceId(handle, &raw mut compute),
            ]
        };
        (failed == [0, 0]).then_some((gpu, compute))
    }
}

fn whole_gpu(
    device: &Device<'_>,
    index: u32,
    driver_version: &str,
    cuda_version: (u32, u32),
) -> Result<GpuInfo> {
    let uuid = GpuUuid::new(device.uuid().map_err(refused("the identifier of a GPU"))?);
    let capability =
        device.cuda_compute_capability().map_err(failed("the compute capability", &uuid))?;
    // GPUs without MIG do not support the query.
    let divided = device.mig_mode().is_ok_and(|mode| mode.current == MIG_ENABLED);
    Ok(GpuInfo {
        index,
        kind: if divided { GpuKind::Divided } else { GpuKind::Whole },
        name: device.name().map_err(failed("the name", &uuid))?,
        total_memory: device.memory_info().map_err(failed("the memory", &uuid))?.total,
        compute_capability: (
            u32::try_from(capability.major).unwrap_or(0),
            u32::try_from(capability.minor).unwrap_or(0),
        ),
        multiprocessors: device.attributes().ok().map(|attributes| attributes.multiprocessor_count),
        driver_version: driver_version.to_owned(),
        cuda_version,
        device_files: device.minor_number().ok().map(device_files::of_gpu),
        uuid,
    })
}

/// The memory of a process in NVML's list, which has one entry for each of its contexts' instances.
fn memory_in(processes: &[ProcessInfo], pid: u32) -> ProcessMemory {
    let mut total = None;
    for process in processes.iter().filter(|process| process.pid == pid) {
        match process.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => total = Some(bytes.saturating_add(total.unwrap_or(0))),
            UsedGpuMemory::Unavailable => return ProcessMemory::Unknown,
        }
    }
    total.map_or(ProcessMemory::NotListed, ProcessMemory::Used)
}

/// Makes the error of a query about the machine.
fn refused(query: &'static str) -> impl Fn(NvmlError) -> Error {
    move |error| Error::Query { query, gpu: None, detail: describe(&error) }
}

/// Makes the error of a query about a GPU.
fn failed(query: &'static str, gpu: &GpuUuid) -> impl Fn(NvmlError) -> Error {
    let gpu = gpu.clone();
    move |error| {
        let (gpu, detail) = (gpu.clone(), describe(&error));
        if is_lost(&error) {
            Error::GpuLost { gpu, detail }
        } else {
            Error::Query { query, gpu: Some(gpu), detail }
        }
    }
}

fn is_lost(error: &NvmlError) -> bool {
    matches!(error, NvmlError::GpuLost | NvmlError::ResetRequired)
}

/// The message of an error.
fn describe(error: &NvmlError) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, used_gpu_memory: UsedGpuMemory) -> ProcessInfo {
        ProcessInfo { pid, used_gpu_memory, gpu_instance_id: None, compute_instance_id: None }
    }

    #[test]
    fn memory_of_a_process_is_the_sum_of_its_entries() {
        let list = [
            process(1, UsedGpuMemory::Used(10)),
            process(2, UsedGpuMemory::Used(20)),
            process(1, UsedGpuMemory::Used(5)),
        ];
        assert_eq!(memory_in(&list, 1), ProcessMemory::Used(15));
        assert_eq!(memory_in(&list, 3), ProcessMemory::NotListed);
        assert_eq!(memory_in(&[], 1), ProcessMemory::NotListed);
    }

    #[test]
    fn missing_amount_is_unknown() {
        let list = [process(1, UsedGpuMemory::Used(10)), process(1, UsedGpuMemory::Unavailable)];
        assert_eq!(memory_in(&list, 1), ProcessMemory::Unknown);
    }

    #[test]
    fn machine_without_driver_gives_an_error() {
        match NvmlMonitor::new() {
            Ok(monitor) => drop(monitor.devices().expect("a working driver lists its GPUs")),
            Err(error) => assert!(matches!(error, Error::NoNvml { .. }), "{error}"),
        }
    }

    #[test]
    fn lost_gpu_is_a_separate_error() {
        let gpu = GpuUuid::new("GPU-1");
        let error = failed("the memory", &gpu)(NvmlError::GpuLost);
        assert!(matches!(error, Error::GpuLost { .. }), "{error}");
        let error = failed("the memory", &gpu)(NvmlError::Timeout);
        assert!(
            error.to_string().starts_with("NVML cannot read the memory of GPU GPU-1: "),
            "{error}"
        );
    }
}
