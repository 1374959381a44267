//! The devices that the suite runs on, and the macro that runs a test on each.

use std::{
    io::Write,
    sync::{Once, OnceLock},
    time::Duration,
};

use cuda_async::Device;
use cuda_core::Provider;
use cuda_cpu::CpuProvider;
use cuda_lease::LeaseBuilder;
use cuda_node::supervisor::{DeviceOptions, Node, NodeOptions};

use crate::link::LinkProvider;

pub fn cpu() -> Option<Device> {
    Some(cuda_async::open_blocking("cpu").unwrap())
}

/// A leased CPU device behind a link of 2 ms.
pub fn link() -> Option<Device> {
    static LINK: OnceLock<Device> = OnceLock::new();
    let open = || LinkProvider::new(Duration::from_millis(2)).open_device();
    Some(LINK.get_or_init(open).clone())
}

/// A device that is leased over the loopback network: a CPU device of a node in this process, or a device of the node
/// whose address is in the environment variable `LEASE_NODE`.
pub fn lease() -> Option<Device> {
    static LEASE: OnceLock<Device> = OnceLock::new();
    Some(LEASE.get_or_init(|| own_lease(CpuProvider::default())).clone())
}

/// A leased device that no other test uses. It is a device of `provider` if the node is in this process.
pub fn own_lease<P: Provider + 'static>(provider: P) -> Device {
    let address = std::env::var("LEASE_NODE").unwrap_or_else(|_| start_node(provider));
    let lease = LeaseBuilder::new(address).min_vram(4 << 30).acquire_blocking().unwrap();
    lease.device().clone()
}

/// Starts a node that serves until the process ends, and returns its address.
pub fn start_node(provider: impl Provider + 'static) -> String {
    let mut options = NodeOptions::loopback(vec![DeviceOptions::in_process(provider)]);
    // As a local device, so that tests of this limit end soon.
    options.submissions_in_flight = 768;
    let node = Node::start(options).unwrap();
    let address = node.address().to_string();
    std::mem::forget(node);
    address
}

/// Streams that the tests of the suite use at a time, and some more. A device has memory for 128. The creation of
/// another one takes memory, and then it waits for all running kernels, with every call of other threads behind it.
const STREAMS: usize = 512;

/// Opens the first GPU. Prints a message if there is none.
pub fn cuda() -> Option<Device> {
    static CUDA: OnceLock<Option<Device>> = OnceLock::new();
    let open = || {
        let device = open_cuda()?;
        // The driver keeps their memory.
        drop((0..STREAMS).map(|_| device.new_stream()).collect::<Vec<_>>());
        Some(device)
    };
    CUDA.get_or_init(open).clone()
}

fn open_cuda() -> Option<Device> {
    static SAID: Once = Once::new();
    let say = |error| {
        // Not `eprintln!`, which the harness captures for tests that pass.
        SAID.call_once(|| _ = writeln!(std::io::stderr(), "`cuda` tests not run here: {error}"));
    };
    cuda_async::open_blocking("cuda").map_err(say).ok()
}

/// The first GPU as a device that no other test uses, so that no other test's thread delivers its notices.
pub fn own_cuda() -> Option<Device> {
    cuda()?;
    Some(Device::open(&cuda_driver::CudaProvider::new(), 0).unwrap())
}

/// Makes a test on every device of each `fn name(device: &Device)`.
#[macro_export]
macro_rules! on_every_device {
    ($($name:ident)*) => {
        $crate::on_every_device!(@device cpu: $($name)*);
        $crate::on_every_device!(@device link: $($name)*);
        $crate::on_every_device!(@device lease: $($name)*);
        $crate::on_every_device!(@device cuda: $($name)*);
    };
    (@device $device:ident: $($name:ident)*) => {
        mod $device {
            $(#[test] fn $name() {
                if let Some(device) = $crate::devices::$device() {
                    super::$name(&device);
                }
            })*
        }
    };
}
