//! The description of a device, known before it is opened.

/// The description of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// The address that opens it: `cpu`, `cuda:0`.
    pub address: String,
    /// Its name, as the vendor prints it.
    pub name: String,
    /// Bytes of memory.
    pub memory: u64,
    /// Multiprocessors, or cores of a CPU device.
    pub multiprocessors: u32,
    /// Compute capability (9, 0); for a CPU device the newest one whose PTX it takes.
    pub compute_capability: (u32, u32),
    /// The most threads a block may have.
    pub max_threads_per_block: u32,
    /// The most bytes of shared memory a block may have.
    pub max_shared_bytes: u32,
    /// The CUDA version of the driver as (13, 0); none where there is no driver.
    pub driver: Option<(u32, u32)>,
}

impl DeviceInfo {
    /// A description with the limits that every CUDA device has; the caller fills in the rest.
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
}
