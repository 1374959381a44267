//! Every accepted form of a declaration, under strict lints.
#![deny(warnings, unsafe_op_in_unsafe_fn, missing_debug_implementations)]
#![deny(clippy::all, clippy::undocumented_unsafe_blocks, clippy::missing_safety_doc)]

use std::sync::Arc;

use cuda_async::{DeviceBuffer, DeviceOp, LaunchConfig, kernel::KernelParam};

mod no_prelude {
    #![no_implicit_prelude]

    /// Names that the expansion must not confuse with the standard ones.
    #[allow(dead_code, missing_docs)]
    mod clashes {
        pub(crate) struct Result;
        pub(crate) struct Function;
        pub(crate) struct Device;
        pub(crate) struct Clone;
    }
    #[allow(unused_imports)]
    use clashes::*;

    ::cuda_async::kernels! {
        #[ptx = "../kernels/vecadd.ptx"]
        pub(crate) struct Plain;

        pub(super) unsafe fn vecadd(a: &[f32], b: &[f32], c: &mut [f32], n: u32);
    }

    ::cuda_async::kernels! {
        #[ptx = "../kernels/saxpy.ptx"]
        pub(crate) unsafe struct Checked; // SAFETY: never run.

        /// The names are those of the launcher's own variables.
        #[entry = "saxpy"]
        #[elements(config)]
        pub(super) safe fn hygiene(function: &[f32], launch_ready: &mut [f32], kernel: f32, config: u32 = launch_ready.len())
        where function.len() == launch_ready.len();
    }

    ::cuda_async::kernels! {
        #[ptx = "../kernels/filter.ptx"]
        pub(crate) struct Variables;

        static taps: [f32; 5];
        #[symbol = "limited"]
        pub(super) static mut COUNT: u32;
        #[cfg(any())]
        static gone: u32;
    }

    /// A struct with padding.
    #[derive(
        ::core::clone::Clone,
        ::core::marker::Copy,
        ::core::fmt::Debug,
        ::cuda_async::kernel::KernelParam,
    )]
    #[repr(C)]
    pub(crate) struct Padded {
        bytes: u8,
        pass: f64,
    }
}

/// Two floats. The name is that of a type parameter.
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(crate) struct P {
    x: f64,
    y: f64,
}

cuda_async::kernels! {
    /// Documented.
    #[ptx = "../kernels/params.ptx"]
    #[derive(PartialEq, Eq)]
    #[cfg(any())]
    pub(crate) struct Gone;
}

cuda_async::kernels! {
    #[ptx = "../kernels/params.ptx"]
    pub(crate) struct Params;

    unsafe fn double2_by_value(p: P, out: &mut [P], n: u32);
    /// The parameters have the names of the method's own parameters.
    #[entry = "every_scalar"]
    unsafe fn hygiene(
        config: i8, module: u16, launch_ready: u8, argument_0: i32, r#type: bool, a: i64, b: f32, c: f64,
        output: &mut [f64],
    );
    #[cfg(any())]
    unsafe fn no_such_kernel_here(p: P);
    /// A buffer whose name is that of a type.
    #[entry = "where_am_i"]
    pub(crate) unsafe fn r#where(p: &mut [self::P]);
}

cuda_async::kernels! {
    #[ptx = "../kernels/basic.ptx"]
    pub(crate) unsafe struct Basic;
    safe fn empty();
}

cuda_async::kernels! {
    #[ptx = "../kernels/saxpy.ptx"]
    pub(crate) unsafe struct Generic; // SAFETY: never run.

    #[entry(f32 = "saxpy", f64 = "daxpy")]
    #[config(grid = (n / 2, 1), block = 64, shared = n)]
    safe fn axpy<T: f32 | f64>(x: &[T], y: &mut [T], a: T, n: u32 = y.len())
    where x.len() == y.len(), n != 0;

    #[cfg(any())]
    #[entry(f32 = "gone")]
    safe fn gone<T: f32>(x: &[T]);
}

fn launches(
    plain: &no_prelude::Plain,
    basic: &Basic,
    a: DeviceBuffer<f32>,
    c: DeviceBuffer<f32>,
) -> impl DeviceOp<Output = DeviceBuffer<f32>> + use<> {
    let shared = Arc::new(a);
    let config = LaunchConfig::new(1, 1);
    let _: cuda_async::Result<()> = basic.empty(config).sync();
    // SAFETY: never run.
    let op = unsafe { plain.vecadd(config, shared.clone(), shared, c, 1) };
    op.map(|(_, _, c): (Arc<_>, Arc<_>, _)| c)
}

fn used() {
    let _ = (launches, Params::load, no_prelude::Plain::load, Params::PTX.len());
    let _ = (Params::double2_by_value::<DeviceBuffer<P>>, Params::r#where::<&mut DeviceBuffer<P>>);
    let _ = Params::hygiene::<DeviceBuffer<f64>>;
    let _ = Generic::axpy::<f64, DeviceBuffer<f64>, DeviceBuffer<f64>>;
    let _ = no_prelude::Checked::hygiene::<DeviceBuffer<f32>, DeviceBuffer<f32>>;
    let _ = (no_prelude::Variables::taps, no_prelude::Variables::count);
    let _ = |padded: no_prelude::Padded| padded.with_bytes(<[u8]>::len);
}
