//! Finds the GPU that an address means.

use super::{
    error::{Error, Result},
    monitor::{GpuInfo, GpuKind},
};

/// Returns the GPUs that `address` means, of those in `devices`: `cuda:0` as CUDA counts, or the identifier of a GPU or of
/// a MIG instance. A GPU that is divided into MIG instances means all of them.
///
/// CUDA counts in the order of `nvidia-smi`, or in that of `visible`, the value of `CUDA_VISIBLE_DEVICES` if it is set. The
/// entries of `visible` are numbers or identifiers, and the first one that is neither ends the list.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::{GpuMonitor as _, tests::ScriptedMonitor};

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
