//! The kernels of tensors. There is a PTX text for each family of operations and each element type.
//!
//! Their sources are in `cuda-async/kernels`. A text is loaded on a device when an operation first needs it.

use std::borrow::Cow;

use cuda_core::Function;
use half::{bf16, f16};

use crate::{DeviceOp, kernel::ModuleCache};

/// The kernels that depend on the size of an element alone, and those of generators.
pub(super) static COPY: ModuleCache = ModuleCache::new(include_str!("../../kernels/copy.ptx"));

/// The kernels of one element type.
pub(super) trait Kernels {
    /// Whether the type is computed as f32.
    const HALF: bool;
    /// Elementwise operations.
    fn map() -> &'static ModuleCache;
    /// Conversions to this type.
    fn cast() -> &'static ModuleCache;
    /// Reductions.
    fn fold() -> &'static ModuleCache;
}

/// The further kernels of a floating-point type.
pub(super) trait FloatKernels {
    /// Softmax.
    fn softmax() -> &'static ModuleCache;
    /// Random numbers.
    fn random() -> &'static ModuleCache;
}

macro_rules! caches {
    ($ty:ident: $($family:ident)*) => {$(
        fn $family() -> &'static ModuleCache {
            static CACHE: ModuleCache = ModuleCache::new(include_str!(concat!(
                "../../kernels/",
                stringify!($family),
                "/",
                stringify!($ty),
                ".ptx"
            )));
            &CACHE
        }
    )*};
}

macro_rules! kernels {
    ($half:literal: $($ty:ident)*) => {$(
        impl Kernels for $ty {
            const HALF: bool = $half;
            caches!($ty: map cast fold);
        }
    )*};
}

macro_rules! float_kernels {
    ($($ty:ident)*) => { $(impl FloatKernels for $ty { caches!($ty: softmax random); })* };
}

kernels!(false: i8 u8 i16 u16 i32 u32 i64 u64 f32 f64 bool);
kernels!(true: f16 bf16);
float_kernels!(f16 bf16 f32 f64);

/// A kernel on the operation's device.
pub(super) fn kernel(
    cache: &'static ModuleCache,
    name: impl Into<Cow<'static, str>> + Send,
) -> impl DeviceOp<Output = Function> {
    cache.module().try_map(move |module| module.function(&name.into()))
}
