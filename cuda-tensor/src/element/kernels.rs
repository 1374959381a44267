//! The kernels of tensors. There is a PTX text for each family of operations and each element type.
//!
//! Their sources are in `cuda-async/kernels`. A text is loaded on a device when an operation first needs it.

use std::borrow::Cow;

use cuda_core::Function;
use half::{bf16, f16};

use crate::{DeviceOp, kernel::ModuleCache};

/// The kernels for which only the size of an element matters, and those of generators.
pub(crate) static COPY: ModuleCache = ModuleCache::new(include_str!("../../../kernels/copy.ptx"));

/// The kernels that transpose matrices, for each size of an element.
pub(crate) static TRANSPOSE: ModuleCache =
    ModuleCache::new(include_str!("../../../kernels/transpose.ptx"));

/// The kernels that set the condition of a loop to a comparison.
const CONDITION: fn() -> &'static ModuleCache = <u32 as Kernels>::cast;

/// The fastest number of packs on an H200 for each thread of a strided kernel: `STRIDED_PACKS` in
/// `kernels/strided_packs.cuh`.
pub(crate) const STRIDED_PACKS: usize = 2;

/// The kernels of one element type.
pub(crate) trait Kernels {
    /// The operation that loads the kernels of this type, for errors.
    const WARM_UP: &'static str;
    /// Whether the type is computed as f32.
    const HALF: bool;
    /// The number of packs that each thread of the strided remainders and powers loads before it computes.
    const STRIDED_POWERS_PACKS: usize = STRIDED_PACKS;
    /// Elementwise operations of contiguous tensors.
    fn map() -> &'static ModuleCache;
    /// Elementwise operations of strided and broadcast tensors.
    fn strided() -> &'static ModuleCache;
    /// Remainders and powers of contiguous tensors. They need much code for floats.
    fn powers() -> &'static ModuleCache {
        Self::map()
    }
    /// Remainders and powers of strided and broadcast tensors.
    fn strided_powers() -> &'static ModuleCache {
        Self::strided()
    }
    /// Conversions to this type.
    fn cast() -> &'static ModuleCache;
    /// Reductions.
    fn fold() -> &'static ModuleCache;
    /// The kernels of all operations.
    fn all() -> Vec<&'static ModuleCache> {
        Self::common().to_vec()
    }
    /// The kernels that each element type has.
    fn common() -> [&'static ModuleCache; 7] {
        [&COPY, &TRANSPOSE, Self::map(), Self::strided(), Self::cast(), Self::fold(), CONDITION()]
    }
}

/// The further kernels of a floating-point type.
pub(crate) trait FloatKernels {
    /// Functions of one number, remainders and powers.
    fn math() -> &'static ModuleCache;
    /// Softmax.
    fn softmax() -> &'static ModuleCache;
    /// Random numbers.
    fn random() -> &'static ModuleCache;
    /// Matrix products.
    fn matmul() -> &'static ModuleCache;
}

/// The further kernels of f32 and f64.
pub(crate) trait FftKernels {
    /// Fourier transforms.
    fn fft() -> &'static ModuleCache;
}

macro_rules! caches {
    ($ty:ident: $($family:ident)*) => {$(
        fn $family() -> &'static ModuleCache {
            static CACHE: ModuleCache = ModuleCache::new(include_str!(concat!(
                "../../../kernels/",
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
    ($($ty:ident)*) => {$(
        impl Kernels for $ty {
            const WARM_UP: &'static str = concat!("Tensor::<", stringify!($ty), ">::warm_up()");
            const HALF: bool = false;
            caches!($ty: map strided cast fold);
        }
    )*};
}

macro_rules! float_kernels {
    ($($ty:ident: $half:literal $($fft:ident)?;)*) => {$(
        impl Kernels for $ty {
            const WARM_UP: &'static str = concat!("Tensor::<", stringify!($ty), ">::warm_up()");
            const HALF: bool = $half;
            // Their code is long.
            const STRIDED_POWERS_PACKS: usize = 1;
            caches!($ty: map strided cast fold);

            fn powers() -> &'static ModuleCache {
                <$ty as FloatKernels>::math()
            }

            fn strided_powers() -> &'static ModuleCache {
                <$ty as FloatKernels>::math()
            }

            fn all() -> Vec<&'static ModuleCache> {
                let of_floats = [Self::math(), Self::softmax(), Self::random(), Self::matmul()];
                let of_fft: &[&'static ModuleCache] = &[$(<$ty as FftKernels>::$fft())?];
                [&Self::common()[..], &of_floats, of_fft].concat()
            }
        }

        impl FloatKernels for $ty {
            caches!($ty: math softmax random matmul);
        }
    )*};
}

macro_rules! fft_kernels {
    ($($ty:ident)*) => {$(
        impl FftKernels for $ty {
            caches!($ty: fft);
        }
    )*};
}

kernels!(i8 u8 i16 u16 i32 u32 i64 u64 bool);
float_kernels! {
    f16: true;
    bf16: true;
    f32: false fft;
    f64: false fft;
}
fft_kernels!(f32 f64);

/// Gives a kernel for elements of `T` on the operation's device.
pub(crate) fn kernel<T: Kernels>(
    cache: &'static ModuleCache,
    name: impl Into<Cow<'static, str>> + Send,
) -> impl DeviceOp<Output = Function> {
    cache.module_loaded_by(T::WARM_UP).try_map(move |module| module.function(&name.into()))
}
