//! Opens the device with the options of the command line: checks, schedule, budget and profile.

use std::sync::Arc;

use command_line::{Failure, stdout};
use cuda_async::{
    Device,
    cuda_cpu::{Checks, CpuOptions, CpuProvider, Profile, Schedule},
    default_device, open_blocking,
};

use crate::cli::Cli;

/// The state of the device options of a run.
pub(crate) struct DeviceOptions {
    profile: Option<Arc<Profile>>,
    /// The lease of the device. It ends when the options are dropped.
    #[cfg(feature = "lease")]
    lease: std::cell::OnceCell<cuda_lease::Lease>,
}

impl DeviceOptions {
    pub(crate) fn new(cli: &Cli) -> Self {
        Self {
            profile: cli.profile.then(Arc::default),
            #[cfg(feature = "lease")]
            lease: std::cell::OnceCell::new(),
        }
    }

    /// Opens the device that the command line names.
    pub(crate) fn device(&self, cli: &Cli) -> Result<Device, Failure> {
        let address = cli.device.as_deref();
        let Some(option) = cli.needs_cpu() else {
            return Ok(address.map_or_else(default_device, |address| self.open(address))?);
        };
        match address {
            None | Some("cpu" | "cpu:0") => {
                Ok(Device::open(&CpuProvider::new(self.options(cli)), 0)?)
            }
            // `open_blocking` returns the error for an unknown CPU device.
            Some(other) if other.starts_with("cpu:") => Ok(open_blocking(other)?),
            Some(other) => Err(Failure::bad_input(format_args!(
                "{option} requires the CPU device, the device is `{other}`; use --device cpu or omit --device"
            ))),
        }
    }

    fn open(&self, address: &str) -> cuda_async::Result<Device> {
        #[cfg(feature = "lease")]
        if address.starts_with("lease:") {
            let lease = cuda_lease::LeaseBuilder::parse(address)?.acquire_blocking()?;
            return Ok(self.lease.get_or_init(|| lease).device().clone());
        }
        open_blocking(address)
    }

    fn options(&self, cli: &Cli) -> CpuOptions {
        let checks = if cli.check { Checks::all() } else { Checks::none() };
        let mut options = CpuOptions::default().checks(checks);
        options.budget = cli.budget;
        options.profile = self.profile.clone();
        match cli.seed {
            Some(seed) => options.schedule(Schedule::Shuffled { seed }),
            None => options,
        }
    }

    /// Prints the profile, if one was requested.
    pub(crate) fn print_profile(&self) -> Result<(), Failure> {
        self.profile.as_ref().map_or(Ok(()), |profile| stdout::print(&profile.to_string()))
    }
}

#[cfg(feature = "lease")]
impl Drop for DeviceOptions {
    fn drop(&mut self) {
        // The process ends now. The node would keep the lease until it misses the connection.
        if let Some(lease) = self.lease.take() {
            lease.close();
        }
    }
}
