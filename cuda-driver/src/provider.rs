//! Finding and opening GPUs.

use std::sync::Arc;

use cuda_core::protocol::{Backend, DeviceInfo, Error, NoticeSink, Provider, Result};

use super::{
    backend::CudaBackend, completion::Completion, context::Primary, driver::library::Driver,
};

/// The provider of this machine's NVIDIA GPUs: `cuda:0`, `cuda:1` and so on.
///
/// ```
/// use cuda_core::Provider;
/// use cuda_driver::CudaProvider;
///
/// // Empty where there is no GPU; an error only where there is a driver that cannot be used.
/// match CudaProvider::new().devices() {
///     Ok(devices) => devices.iter().for_each(|device| println!("{device:?}")),
///     Err(error) => eprintln!("{error}"),
/// }
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct CudaProvider {
    completion: Option<Completion>,
}

impl CudaProvider {
    /// Creates a provider. The driver is loaded by the first call that needs it.
    pub const fn new() -> Self {
        Self { completion: None }
    }

    /// Sets the [`Completion`] of the devices that this provider opens.
    ///
    /// ```
    /// use cuda_driver::{Completion, CudaProvider};
    ///
    /// let provider = CudaProvider::new().completion(Completion::HostFunction); // for `Device::open`
    /// # let _ = provider;
    /// ```
    pub fn completion(mut self, completion: Completion) -> Self {
        self.completion = Some(completion);
        self
    }
}

// SAFETY: `CudaBackend` keeps the rules of a backend, and `notices` goes to its completion thread alone.
unsafe impl Provider for CudaProvider {
    fn scheme(&self) -> &'static str {
        "cuda"
    }

    /// Lists the GPUs of this machine. The list is empty without a driver.
    ///
    /// # Errors
    /// [`Error::DriverUnusable`] where there is a driver that is too old or broken: that machine probably has a GPU.
    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        match Driver::probe() {
            Ok(driver) => (0..driver.devices).map(|ordinal| driver.describe(ordinal)).collect(),
            Err(Error::NoDriver { .. }) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Opens a device. The first time takes a quarter of a second: the driver creates its context, which then stays
    /// until the process ends.
    ///
    /// # Errors
    /// [`Error::NoDriver`], [`Error::DriverUnusable`], [`Error::NoDevice`], and [`Error::DeviceLost`] after an earlier
    /// fault of this process.
    fn open(&self, ordinal: u32, notices: Arc<dyn NoticeSink>) -> Result<Arc<dyn Backend>> {
        let primary = Primary::of(&Driver::probe()?, ordinal)?;
        Ok(Arc::new(CudaBackend::new(primary, notices, self.completion.unwrap_or_default())?))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use cuda_core::protocol::Notice;

    struct Ignored;

    // SAFETY: forwards nothing.
    unsafe impl NoticeSink for Ignored {
        unsafe fn notice(&self, _: Notice) {}
    }

    #[test]
    fn open_beyond_the_listed_devices_is_an_error() {
        let provider = CudaProvider::new();
        match provider.devices() {
            Ok(devices) => {
                let beyond = provider
                    .open(u32::try_from(devices.len()).unwrap_or(u32::MAX), Arc::new(Ignored))
                    .err();
                match beyond.unwrap() {
                    Error::NoDriver { .. } => assert!(devices.is_empty()),
                    Error::NoDevice { address, .. } => {
                        assert_eq!(address, format!("cuda:{}", devices.len()));
                    }
                    other => panic!("{other}"),
                }
            }
            Err(error) => assert!(matches!(error, Error::DriverUnusable { .. }), "{error}"),
        }
    }

    #[test]
    fn largest_ordinal_is_an_error() {
        assert!(CudaProvider::new().open(u32::MAX, Arc::new(Ignored)).is_err());
    }
}
