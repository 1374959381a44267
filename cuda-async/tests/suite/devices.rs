//! The devices that the suite runs on, and the macro that runs a test on each.

use std::sync::OnceLock;

use cuda_async::{Device, Module};

use crate::wire::WireProvider;

pub fn cpu() -> Option<Device> {
    Some(cuda_async::open("cpu").unwrap())
}

/// A CPU device behind bytes.
pub fn wire() -> Option<Device> {
    static WIRE: OnceLock<Device> = OnceLock::new();
    Some(WIRE.get_or_init(|| Device::open(&WireProvider, 0).unwrap()).clone())
}

/// The first GPU; says so where there is none.
pub fn cuda() -> Option<Device> {
    match cuda_async::open("cuda") {
        Ok(device) => Some(device),
        Err(error) => {
            println!("not run on a GPU here: {error}");
            None
        }
    }
}

/// A module of `kernels/`.
pub fn load(device: &Device, ptx: &str) -> Module {
    device.load_ptx(ptx).unwrap()
}

/// `fn name(device: &Device)` as a test on every device.
#[macro_export]
macro_rules! on_every_device {
    ($($name:ident)*) => {
        $crate::on_every_device!(@device cpu: $($name)*);
        $crate::on_every_device!(@device wire: $($name)*);
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
