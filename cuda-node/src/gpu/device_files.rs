//! The device files of a GPU or of a MIG instance.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Files that all GPUs share: the driver, and its unified memory, without which CUDA does not start.
const SHARED: [&str; 2] = ["/dev/nvidiactl", "/dev/nvidia-uvm"];

/// The files in which the driver states the device file for each right of MIG.
const CAPABILITIES: &str = "/proc/driver/nvidia/capabilities";

/// The files of the GPU with this minor number.
pub(super) fn of_gpu(minor: u32) -> Vec<PathBuf> {
    let own = PathBuf::from(format!("/dev/nvidia{minor}"));
    SHARED.map(PathBuf::from).into_iter().chain([own]).collect()
}

/// The files of an instance of this GPU, by the ids of its GPU instance and its compute instance. `None` if the driver
/// does not state them.
pub(super) fn of_instance(minor: u32, ids: (u32, u32)) -> Option<Vec<PathBuf>> {
    let mut files = of_gpu(minor);
    files.extend(rights(Path::new(CAPABILITIES), minor, ids)?);
    Some(files)
}

/// The device files for the right to use a GPU instance, and a compute instance in it.
fn rights(capabilities: &Path, minor: u32, (gpu, compute): (u32, u32)) -> Option<[PathBuf; 2]> {
    let instance = capabilities.join(format!("gpu{minor}/mig/gi{gpu}"));
    let file = |right: PathBuf| {
        let text = fs::read_to_string(right).ok()?;
        let minor = text.lines().find_map(|line| line.strip_prefix("DeviceFileMinor:"))?;
        let minor: u32 = minor.trim().parse().ok()?;
        Some(PathBuf::from(format!("/dev/nvidia-caps/nvidia-cap{minor}")))
    };
    let of_compute = instance.join(format!("ci{compute}/access"));
    Some([file(instance.join("access"))?, file(of_compute)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpu_has_its_own_file_and_those_of_the_driver() {
        let names = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia3"];
        assert_eq!(of_gpu(3), names.map(PathBuf::from));
    }

    #[test]
    fn instance_has_the_files_of_its_rights() {
        let root = tempfile::tempdir().unwrap();
        let of = |number| format!("DeviceFileMinor: {number}\nDeviceFileMode: 292\n");
        for (folder, number) in [("gi1", 12), ("gi1/ci0", 13), ("gi2", 21), ("gi2/ci0", 22)] {
            let folder = root.path().join("gpu0/mig").join(folder);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("access"), of(number)).unwrap();
        }
        let names = [12, 13].map(|number| format!("/dev/nvidia-caps/nvidia-cap{number}").into());
        assert_eq!(rights(root.path(), 0, (1, 0)), Some(names));
        assert_eq!(rights(root.path(), 0, (1, 1)), None);
        assert_eq!(rights(root.path(), 1, (1, 0)), None);
    }
}
