//! The driver's library: loading it, and querying its devices.

use std::{
    ffi::{CStr, c_char, c_int},
    sync::OnceLock,
};

use cuda_core::{DeviceInfo, Error, Result};
use libloading::Library;

use super::{
    api::{Api, device_attribute as id},
    status::{self, Failed},
};

/// The oldest supported driver, 12.0, in the driver's own notation.
const OLDEST: c_int = 12_000;

/// The driver's library. A toolkit's `libcuda.so` is a stub to link against, so its name is not tried.
const LIBRARY: &str = if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" };

/// The driver, initialized.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Driver {
    pub(crate) api: &'static Api,
    /// Its CUDA version, as (13, 0).
    pub(crate) version: (u32, u32),
    /// The number of devices.
    pub(crate) devices: u32,
}

/// The limits of a launch on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) threads: u32,
    /// Shared memory of a block, static and dynamic, for kernels that opted in to the maximum.
    pub(crate) shared: u32,
}

impl Driver {
    /// Loads and initializes the driver.
    ///
    /// Only success is cached: a driver that cannot be used now may be usable later.
    ///
    /// # Errors
    /// [`Error::NoDriver`] and [`Error::DriverUnusable`]. If there is a driver and no device, this succeeds and
    /// `devices` is 0.
    pub(crate) fn probe() -> Result<Self> {
        static LOADED: OnceLock<Api> = OnceLock::new();
        let api = match LOADED.get() {
            Some(api) => api,
            None => {
                let api = load(LIBRARY)?;
                LOADED.get_or_init(|| api)
            }
        };
        let mut version = 0;
        // SAFETY: writes one integer; may be called before `cuInit`.
        unsafe { api.driver_version(&mut version) }.map_err(|failed| unusable(api, failed))?;
        let version = (version.unsigned_abs() / 1000, version.unsigned_abs() % 1000 / 10);
        // SAFETY: 0 is the only flag there is.
        match unsafe { api.init(0) } {
            Ok(()) => {}
            Err(Failed { code: status::NO_DEVICE, .. }) => {
                return Ok(Self { api, version, devices: 0 });
            }
            Err(Failed { code: status::STUB_LIBRARY, .. }) => {
                let detail = format!(
                    "{LIBRARY} is the toolkit's stub library; remove it from the library search path"
                );
                return Err(Error::NoDriver { detail });
            }
            Err(failed) => return Err(unusable(api, failed)),
        }
        let mut devices = 0;
        // SAFETY: writes one integer.
        unsafe { api.device_count(&mut devices) }.map_err(|failed| unusable(api, failed))?;
        Ok(Self { api, version, devices: devices.unsigned_abs() })
    }

    /// Describes a device without opening it.
    pub(crate) fn describe(&self, ordinal: u32) -> Result<DeviceInfo> {
        let device = self.device(ordinal)?;
        let mut name = [0 as c_char; 256];
        let mut memory = 0;
        // SAFETY: the buffer has the stated length; the driver ends the name with a NUL.
        let name = unsafe { self.api.device_name(name.as_mut_ptr(), 256, device) }
            // SAFETY: the driver ended the name with a NUL, and the buffer was zeroed.
            .map(|()| unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned())
            .map_err(|failed| driver_error(self.api, failed))?;
        // SAFETY: writes one integer.
        unsafe { self.api.device_memory(&mut memory, device) }
            .map_err(|failed| driver_error(self.api, failed))?;
        let mut info = DeviceInfo::new(address(ordinal), name);
        info.memory = memory as u64;
        info.multiprocessors = self.attribute(device, id::MULTIPROCESSORS)?;
        info.compute_capability = (
            self.attribute(device, id::CAPABILITY_MAJOR)?,
            self.attribute(device, id::CAPABILITY_MINOR)?,
        );
        let limits = self.limits(device)?;
        info.max_threads_per_block = limits.threads;
        info.max_shared_bytes = limits.shared;
        info.driver = Some(self.version);
        Ok(info)
    }

    /// The limits of a launch.
    pub(crate) fn limits(&self, device: c_int) -> Result<Limits> {
        let three = |first| -> Result<[u32; 3]> {
            Ok([
                self.attribute(device, first)?,
                self.attribute(device, first + 1)?,
                self.attribute(device, first + 2)?,
            ])
        };
        Ok(Limits {
            grid: three(id::MAX_GRID_DIM_X)?,
            block: three(id::MAX_BLOCK_DIM_X)?,
            threads: self.attribute(device, id::MAX_THREADS_PER_BLOCK)?,
            shared: self
                .attribute(device, id::MAX_SHARED_PER_BLOCK_OPTIN)?
                .max(self.attribute(device, id::MAX_SHARED_PER_BLOCK)?),
        })
    }

    /// The driver's name for a device.
    pub(crate) fn device(&self, ordinal: u32) -> Result<c_int> {
        if ordinal >= self.devices {
            return Err(no_device(ordinal, self.devices));
        }
        let mut device = 0;
        // SAFETY: writes one integer.
        unsafe { self.api.device(&mut device, ordinal as c_int) }
            .map_err(|failed| driver_error(self.api, failed))?;
        Ok(device)
    }

    /// An attribute of a device.
    pub(crate) fn attribute(&self, device: c_int, attribute: c_int) -> Result<u32> {
        let mut value = 0;
        // SAFETY: writes one integer.
        unsafe { self.api.device_attribute(&mut value, attribute, device) }
            .map_err(|failed| driver_error(self.api, failed))?;
        Ok(value.max(0).unsigned_abs())
    }
}

/// The address that opens a device.
pub(crate) fn address(ordinal: u32) -> String {
    format!("cuda:{ordinal}")
}

/// The error of a failed call that does not lose the device.
pub(crate) fn driver_error(api: &Api, failed: Failed) -> Error {
    Error::Driver { call: failed.call.into(), code: failed.code, name: describe(api, failed.code) }
}

/// The message of the system's loader, which libloading keeps as the error's source.
fn reason(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

fn load(name: &str) -> Result<Api> {
    let missing = |error: libloading::Error| Error::NoDriver { detail: reason(&error) };
    let library = open_library(name).map_err(missing)?;
    let mut version = 0;
    {
        type DriverGetVersion = unsafe extern "system" fn(*mut c_int) -> c_int;
        // SAFETY: the driver's function of this name has this type.
        let ask = unsafe { library.get::<DriverGetVersion>(b"cuDriverGetVersion\0") };
        // SAFETY: writes one integer; may be called before `cuInit`.
        unsafe { ask.map_err(missing)?(&mut version) };
    }
    // Before the table, so that the error for an old driver says that it is old.
    if version < OLDEST {
        let (major, minor) = (version / 1000, version % 1000 / 10);
        let detail = format!("it is for CUDA {major}.{minor}, 12.0 is needed; update the driver");
        return Err(Error::DriverUnusable { detail });
    }
    // SAFETY: this is the driver, and it is kept below.
    let api = unsafe { Api::look_up(&library) }
        .map_err(|error| Error::DriverUnusable { detail: format!("{error}; update the driver") })?;
    // Kept until the process ends: its functions are in statics from now on.
    std::mem::forget(library);
    Ok(api)
}

#[cfg(windows)]
fn open_library(name: &str) -> Result<Library, libloading::Error> {
    use libloading::os::windows::{LOAD_LIBRARY_SEARCH_SYSTEM32, Library as Windows};
    // SAFETY: the driver's own library, from the system's own folder; its initializers are sound.
    unsafe { Windows::load_with_flags(name, LOAD_LIBRARY_SEARCH_SYSTEM32) }.map(Library::from)
}

#[cfg(not(windows))]
fn open_library(name: &str) -> Result<Library, libloading::Error> {
    // SAFETY: the driver's own library; its initializers are sound.
    unsafe { Library::new(name) }
}

fn unusable(api: &Api, failed: Failed) -> Error {
    let Failed { call, code } = failed;
    let (name, advice) = (describe(api, code), status::init_advice(code));
    Error::DriverUnusable { detail: format!("{call} failed: {name} ({code}); {advice}") }
}

fn no_device(ordinal: u32, devices: u32) -> Error {
    let available = match devices {
        0 => "no CUDA device (run `nvidia-smi` to check the driver)".into(),
        1 => "`cuda:0`".into(),
        more => format!("`cuda:0` to `cuda:{}`", more - 1),
    };
    Error::NoDevice { address: address(ordinal), available }
}

/// The name and the text of a status.
fn describe(api: &Api, code: i32) -> String {
    let (mut name, mut text) = (std::ptr::null(), std::ptr::null());
    // SAFETY: each writes a pointer to a string that is never freed, or null.
    let known = unsafe {
        api.error_name(code, &mut name).is_ok() && api.error_string(code, &mut text).is_ok()
    };
    if !known || name.is_null() || text.is_null() {
        return "unknown status".into();
    }
    // SAFETY: strings of the driver that end with a NUL and are never freed.
    let (name, text) = unsafe { (CStr::from_ptr(name), CStr::from_ptr(text)) };
    format!("{}: {}", name.to_string_lossy(), text.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_library_error_gives_advice() {
        let error = load("libthere-is-no-such-driver.so.1").unwrap_err();
        assert!(matches!(error, Error::NoDriver { .. }), "{error}");
        assert!(error.to_string().contains("install NVIDIA's driver"), "{error}");
    }

    #[test]
    fn library_without_driver_functions_is_an_error() {
        let Some(libc) = ["libc.so.6", "libSystem.dylib"].into_iter().find(|name| {
            // SAFETY: the C library is loaded already.
            unsafe { Library::new(*name) }.is_ok()
        }) else {
            return;
        };
        assert!(matches!(load(libc).unwrap_err(), Error::NoDriver { .. }));
    }

    #[test]
    fn missing_device_error_lists_available_devices() {
        let said = |ordinal, devices| no_device(ordinal, devices).to_string();
        let none = "no CUDA device (run `nvidia-smi` to check the driver)";
        assert_eq!(said(0, 0), format!("no device `cuda:0`; available: {none}"));
        assert_eq!(said(1, 1), "no device `cuda:1`; available: `cuda:0`");
        assert_eq!(said(9, 4), "no device `cuda:9`; available: `cuda:0` to `cuda:3`");
    }
}
