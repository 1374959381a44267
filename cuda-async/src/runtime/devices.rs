//! Opens the devices of this machine by address.

use cuda_core::{Device, DeviceInfo, Error, Provider, Result};
use parking_lot::Mutex;

/// The open devices. They are kept until the process ends.
static OPEN: Mutex<Vec<(String, Device)>> = Mutex::new(Vec::new());

/// Returns the providers that are compiled in, GPUs first.
fn providers() -> Vec<Box<dyn Provider>> {
    vec![
        #[cfg(feature = "cuda")]
        Box::new(cuda_core::cuda::CudaProvider::new()),
        #[cfg(feature = "cpu")]
        Box::new(cuda_cpu::CpuProvider::default()),
    ]
}

/// Opens the device at `address`: `cpu`, `cuda` (the first GPU), `cuda:1`, or with the feature `lease` a device of another
/// machine, `lease://HOST:PORT?min_vram=1GiB&lease_secs=60`. The same address gives the same device every time. Blocks: the
/// first use of a GPU takes a quarter of a second.
///
/// ```
/// let device = cuda_async::open("cpu")?;
/// assert_eq!(device.info().address, "cpu");
/// # Ok::<(), cuda_async::Error>(())
/// ```
///
/// To open a CPU device with options (limits, checks, another order), use its provider:
/// `Device::open(&CpuProvider::new(options), 0)`. Each such call opens a separate device.
///
/// # Errors
/// [`Error::NoDevice`] with a list of the available devices, [`Error::NoDriver`], or the error of the device.
pub fn open(address: &str) -> Result<Device> {
    #[cfg(feature = "lease")]
    if address.starts_with("lease:") {
        return open_lease(address);
    }
    let (scheme, ordinal) = parse(address)?;
    let providers = providers();
    let provider = providers.iter().find(|provider| provider.scheme() == scheme);
    let provider = provider.ok_or_else(|| no_device(address))?;
    let key = format!("{scheme}:{ordinal}");
    let mut open = OPEN.lock();
    if let Some((_, device)) = open.iter().find(|(name, _)| *name == key) {
        return Ok(device.clone());
    }
    let device = Device::open(&**provider, ordinal).map_err(|error| match error {
        // The provider lists only its own devices.
        Error::NoDevice { .. } => no_device(address),
        error => error,
    })?;
    open.push((key, device.clone()));
    Ok(device)
}

/// Opens a lease. If the one of an earlier call with the same address is lost, acquires a new one.
#[cfg(feature = "lease")]
fn open_lease(address: &str) -> Result<Device> {
    let mut open = OPEN.lock();
    if let Some(found) = open.iter().position(|(name, _)| name == address) {
        let is_lost = open[found].1.synchronize().is_err_and(|error| error.is_sticky());
        if !is_lost {
            return Ok(open[found].1.clone());
        }
        open.swap_remove(found);
    }
    let lease = cuda_lease::LeaseBuilder::parse(address)?.acquire()?;
    open.push((address.to_owned(), lease.device().clone()));
    Ok(lease.device().clone())
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
    }
    Error::NoDevice { address: address.to_owned(), available }
}

#[cfg(test)]
mod tests {
    use super::*;

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
