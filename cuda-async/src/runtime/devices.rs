//! Opens the devices of this machine by address.

use std::sync::Arc;

use cuda_core::{Device, DeviceInfo, Error, Provider, Result};
use parking_lot::Mutex;

use crate::wake::OnThread;

/// The place of the device at an address. Its lock is held while the device is opened, so opening one device does not
/// delay the others.
type OpenDevice = Arc<Mutex<Option<Device>>>;

/// The open devices. They are kept until the process ends.
static OPEN: Mutex<Vec<(String, OpenDevice)>> = Mutex::new(Vec::new());

/// Returns the device of an address if it is open and usable. Otherwise opens it.
fn open_once(
    address: &str,
    is_usable: impl FnOnce(&Device) -> bool,
    open: impl FnOnce() -> Result<Device>,
) -> Result<Device> {
    let known = {
        let mut all = OPEN.lock();
        match all.iter().find(|(name, _)| name == address) {
            Some((_, known)) => known.clone(),
            None => {
                let new = OpenDevice::default();
                all.push((address.to_owned(), new.clone()));
                new
            }
        }
    };
    let mut device = known.lock();
    if let Some(device) = &*device
        && is_usable(device)
    {
        return Ok(device.clone());
    }
    let opened = open();
    *device = opened.as_ref().ok().cloned();
    opened
}

/// Returns the providers that are compiled in, GPUs first.
fn providers() -> Vec<Box<dyn Provider>> {
    vec![
        #[cfg(feature = "cuda")]
        Box::new(cuda_driver::CudaProvider::new()),
        #[cfg(feature = "cpu")]
        Box::new(cuda_cpu::CpuProvider::default()),
    ]
}

/// Opens the device at `address`: `cpu`, `cuda` (the first GPU), `cuda:1`, or with the feature `lease` a device of
/// another machine, `lease://HOST:PORT?min_vram=1GiB&lease_secs=60`. The same address gives the same device every time.
///
/// No executor thread waits: a separate thread opens the device, which takes a quarter of a second for the first use of
/// a GPU. If the future is dropped, that thread still finishes opening the device. [`open_blocking`] is the blocking
/// form.
///
/// ```
/// # fn main() -> Result<(), cuda_async::Error> { futures::executor::block_on(async {
/// let device = cuda_async::open("cpu").await?;
/// assert_eq!(device.info().address, "cpu");
/// assert_eq!(cuda_async::open("cpu:0").await?, device);
/// # Ok(()) }) }
/// ```
///
/// # Errors
/// The errors of [`open_blocking`]. [`Error::Host`] if the thread cannot be started.
pub async fn open(address: &str) -> Result<Device> {
    let address = address.to_owned();
    let what = format!("opening the device `{address}`");
    OnThread::start("cuda-open", what, move || open_blocking(&address))?.await
}

/// Opens the device at `address` as [`open`] does, and blocks the calling thread until the device is open.
///
/// ```
/// let device = cuda_async::open_blocking("cpu")?;
/// assert_eq!(device.info().address, "cpu");
/// # Ok::<(), cuda_async::Error>(())
/// ```
///
/// To open a CPU device with options (limits, checks, another order), use its provider:
/// `Device::open(&CpuProvider::new(options), 0)`. Each such call opens a separate device.
///
/// In a debug build the CPU device is up to a hundred times slower, unless `Cargo.toml` has the lines that the page of the
/// crate `cuda_cpu` shows.
///
/// # Errors
/// [`Error::NoDevice`] with a list of the available devices, [`Error::NoDriver`], or the error of the device.
pub fn open_blocking(address: &str) -> Result<Device> {
    #[cfg(feature = "lease")]
    if address.starts_with("lease:") {
        return open_lease(address);
    }
    let (scheme, ordinal) = parse(address)?;
    let providers = providers();
    let provider = providers.iter().find(|provider| provider.scheme() == scheme);
    let provider = provider.ok_or_else(|| no_device(address))?;
    let open = || {
        Device::open(&**provider, ordinal).map_err(|error| match error {
            // The provider lists only its own devices.
            Error::NoDevice { .. } => no_device(address),
            error => error,
        })
    };
    open_once(&format!("{scheme}:{ordinal}"), |_| true, open)
}

/// Opens a lease. If the one of an earlier call with the same address is lost, acquires a new one.
#[cfg(feature = "lease")]
fn open_lease(address: &str) -> Result<Device> {
    // A lost lease refuses new streams. Unlike a wait for its work, this does not block.
    let is_usable = |device: &Device| !device.new_stream().is_err_and(|error| error.is_sticky());
    open_once(address, is_usable, || {
        let lease = cuda_lease::LeaseBuilder::parse(address)?.acquire_blocking()?;
        Ok(lease.device().clone())
    })
}

/// Lists the devices that can be opened, GPUs first. If the driver cannot be used, no GPU is listed, and `open("cuda")`
/// returns the reason.
pub fn devices() -> Vec<DeviceInfo> {
    providers().iter().flat_map(|provider| provider.devices().unwrap_or_default()).collect()
}

/// Splits an address: `cuda:1` is ("cuda", 1).
fn parse(address: &str) -> Result<(&str, u32)> {
    match address.split_once(':') {
        None => Ok((address, 0)),
        Some((scheme, ordinal)) => match ordinal.parse() {
            Ok(ordinal) => Ok((scheme, ordinal)),
            Err(_) => Err(no_device(address)),
        },
    }
}

/// The feature that has the device at `address`, if it is not compiled in.
fn missing_feature(address: &str) -> Option<&'static str> {
    let scheme = address.split(':').next();
    let features = [
        ("cpu", cfg!(feature = "cpu")),
        ("cuda", cfg!(feature = "cuda")),
        ("lease", cfg!(feature = "lease")),
    ];
    let missing = features.into_iter().find(|(name, is_in)| scheme == Some(name) && !is_in);
    missing.map(|(name, _)| name)
}

fn no_device(address: &str) -> Error {
    let known: Vec<_> = devices().into_iter().map(|info| format!("`{}`", info.address)).collect();
    let mut available = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    if cfg!(not(any(feature = "cpu", feature = "cuda"))) {
        available += "; this program was built without devices: enable the feature `cpu` or `cuda` of `cuda-async`";
    } else if let Some(feature) = missing_feature(address) {
        available += &format!(
            "; this program was built without it: enable the feature `{feature}` of `cuda-async`"
        );
    } else if address.contains("://") {
        available += "; a device of a node is `lease://HOST:PORT`";
    }
    Error::NoDevice { address: address.to_owned(), available }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelled_address_of_a_lease_names_the_right_form() {
        let hint = "`lease://HOST:PORT`";
        assert!(no_device("leases://gpu:5701").to_string().contains(hint));
        assert!(!no_device("cuda:70").to_string().contains(hint));
    }

    #[test]
    fn device_that_is_not_compiled_in_names_its_feature() {
        for (address, is_in) in [("cpu", cfg!(feature = "cpu")), ("cuda:1", cfg!(feature = "cuda"))]
        {
            let message = no_device(address).to_string();
            assert_eq!(message.contains("enable the feature"), !is_in, "{message}");
        }
        let message = no_device("tpu").to_string();
        let none = cfg!(not(any(feature = "cpu", feature = "cuda")));
        assert_eq!(message.contains("feature `cpu` or `cuda`"), none, "{message}");
    }
}
