//! Tensors and collectives on every device: those of the suite of `cuda-async`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod collectives;
#[allow(dead_code)] // the suite of `cuda-async` uses the rest
#[path = "../../../cuda-async/tests/suite/devices.rs"]
mod devices;
#[allow(dead_code)]
#[path = "../../../cuda-async/tests/suite/link.rs"]
mod link;
#[allow(dead_code)]
#[path = "../../../cuda-async/tests/suite/modules.rs"]
mod modules;
mod tensors;
#[allow(dead_code)]
#[path = "../../../cuda-async/tests/suite/wrapper.rs"]
mod wrapper;
