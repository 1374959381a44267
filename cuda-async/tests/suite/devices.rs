//! The devices that the suite runs on, and the macro that runs a test on each.

use std::{
    io::Write,
    sync::{Once, OnceLock},
};

use cuda_async::Device;

use crate::wire::WireProvider;

pub fn cpu() -> Option<Device> {
    Some(cuda_async::open("cpu").unwrap())
}

/// A CPU device behind bytes.
pub fn wire() -> Option<Device> {
    static WIRE: OnceLock<Device> = OnceLock::new();
    Some(WIRE.get_or_init(|| Device::open(&WireProvider, 0).unwrap()).clone())
}

/// Opens the first GPU. Prints a message if there is none.
pub fn cuda() -> Option<Device> {
    static SAID: Once = Once::new();
    let say = |error| {
        // Not `eprintln!`, which the harness captures for tests that pass.
        SAID.call_once(|| _ = writeln!(std::io::stderr(), "`cuda` tests not run here: {error}"));
    };
    cuda_async::open("cuda").map_err(say).ok()
}

/// Makes a test on every device of each `fn name(device: &Device)`.
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
