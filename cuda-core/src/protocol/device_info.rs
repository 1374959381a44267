//! The description of a device, known before it is opened.

/// The description of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// The address that opens it: `cpu`, `cuda:0`.
    pub address: String,
    /// Its name, as the vendor prints it.
    pub name: String,
    /// The device memory in bytes.
    pub memory: u64,
    /// The number of multiprocessors, or of cores of a CPU device.
    pub multiprocessors: u32,
    /// The compute capability, such as (9, 0). For a CPU device it is the newest one whose PTX it takes.
    pub compute_capability: (u32, u32),
    /// The maximum number of threads in a block.
    pub max_threads_per_block: u32,
    /// The maximum number of bytes of shared memory of a block.
    pub max_shared_bytes: u32,
    /// The CUDA version of the driver, such as (13, 0); `None` without a driver.
    pub driver: Option<(u32, u32)>,
}

impl DeviceInfo {
    /// Creates a description with the limits that every CUDA device has. The caller fills in the rest.
    pub fn new(address: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            name: name.into(),
            memory: 0,
            multiprocessors: 1,
            compute_capability: (5, 0),
            max_threads_per_block: 1024,
            max_shared_bytes: 48 << 10,
            driver: None,
        }
    }

    /// Returns whether the device runs clusters of blocks: compute capability 9.0 and later.
    pub fn has_clusters(&self) -> bool {
        self.compute_capability >= (9, 0)
    }
}
