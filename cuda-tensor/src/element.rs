//! The element types of tensors ([`DType`]), and the kernels that exist for each of them: a PTX text for each family of
//! operations and each element type.
//!
//! The sources of the kernels are in `cuda-tensor/kernels`. A text is loaded on a device when an operation first needs
//! it.

use std::borrow::Cow;

use bytemuck::Zeroable;
use cuda_async::{DeviceOp, internals::module_loaded_by, kernel::ModuleCache};
use cuda_core::{Element, Function};
use half::{bf16, f16};

/// An element type of tensors: `f16`, `bf16`, `f32`, `f64`, the integers of 8 to 64 bits, and `bool`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an element type of tensors",
    note = "`f16`, `bf16`, `f32`, `f64`, the integers of 8 to 64 bits and `bool` are; use `DeviceBuffer` for structs"
)]
#[allow(private_bounds)] // sealed: the kernels are those of this crate
pub trait DType: Copy + PartialEq + std::fmt::Debug + Send + Sync + 'static + Kernels {
    /// The type of an element in device memory: the type itself, or a byte for `bool`.
    type Stored: Element;

    /// The name of the type, such as `f32`.
    const NAME: &'static str;

    /// Converts into the form in device memory.
    fn store(self) -> Self::Stored;

    /// Converts elements into the form in device memory, without a copy.
    fn store_all(elements: Vec<Self>) -> Vec<Self::Stored>;

    /// Converts elements from the form in device memory, in the same vector. For `bool`, every byte but 0 is `true`.
    fn load_all(stored: Vec<Self::Stored>) -> Vec<Self>;
}

/// The number types of tensors: all but `bool`.
#[diagnostic::on_unimplemented(
    message = "tensors of `{Self}` have no arithmetic",
    note = "for `bool`: `Tensor::from_bools` makes a mask, and `mask.cast::<f32>()` converts one to numbers",
    note = "for arrays: pass one flat `Vec` of all elements, and the shape",
    note = "if it is a type parameter, add the bound `Number`"
)]
pub trait Number: DType<Stored = Self> + Element + Zeroable {
    /// The number 1.
    const ONE: Self;
}

/// The floating-point types of tensors.
#[diagnostic::on_unimplemented(
    message = "this operation needs a tensor of floats, not of `{Self}`",
    note = "convert it first: `x.cast::<f32>()`",
    note = "if it is a type parameter, add the bound `Float`"
)]
#[allow(private_bounds)]
pub trait Float: Signed + FloatKernels {
    /// Converts a number to this type, rounded to the nearest.
    fn of(number: f64) -> Self;
}

/// The types of Fourier transforms: `f32` and `f64`.
#[diagnostic::on_unimplemented(
    message = "Fourier transforms need a tensor of `f32` or `f64`, not of `{Self}`",
    note = "convert it first: `x.cast::<f32>()`",
    note = "if it is a type parameter, add the bound `FftFloat`"
)]
#[allow(private_bounds)]
pub trait FftFloat: Float + FftKernels {}

impl FftFloat for f32 {}
impl FftFloat for f64 {}

/// The signed number types: the floats and the signed integers.
#[diagnostic::on_unimplemented(
    message = "this operation needs a tensor of numbers with a sign, not of `{Self}`",
    note = "convert it first: `x.cast::<i64>()`",
    note = "if it is a type parameter, add the bound `Signed`"
)]
pub trait Signed: Number {}

macro_rules! numbers {
    ($($ty:ident: $one:expr;)*) => {$(
        impl DType for $ty {
            type Stored = Self;
            const NAME: &'static str = stringify!($ty);

            fn store(self) -> Self {
                self
            }

            fn store_all(elements: Vec<Self>) -> Vec<Self> {
                elements
            }

            fn load_all(stored: Vec<Self>) -> Vec<Self> {
                stored
            }
        }

        impl Number for $ty {
            const ONE: Self = $one;
        }
    )*};
}

numbers! {
    i8: 1; u8: 1; i16: 1; u16: 1; i32: 1; u32: 1; i64: 1; u64: 1;
    f16: f16::ONE; bf16: bf16::ONE; f32: 1.0; f64: 1.0;
}

impl DType for bool {
    type Stored = u8;
    const NAME: &'static str = "bool";

    fn store(self) -> u8 {
        self.into()
    }

    fn store_all(elements: Vec<bool>) -> Vec<u8> {
        bytemuck::allocation::cast_vec(elements)
    }

    fn load_all(stored: Vec<u8>) -> Vec<bool> {
        stored.into_iter().map(|byte| byte != 0).collect()
    }
}

macro_rules! floats {
    ($($ty:ident: $number:ident => $of:expr;)*) => {$(
        impl Float for $ty {
            fn of($number: f64) -> Self {
                $of
            }
        }
    )*};
}

floats! {
    f16: number => f16::from_f64(number);
    bf16: number => bf16::from_f64(number);
    f32: number => number as f32;
    f64: number => number;
}

macro_rules! signed {
    ($($ty:ident)*) => { $(impl Signed for $ty {})* };
}

signed!(i8 i16 i32 i64 f16 bf16 f32 f64);

/// The kernels for which only the size of an element matters, and those of generators.
pub(crate) static COPY: ModuleCache = ModuleCache::new(include_str!("../kernels/copy.ptx"));

/// The kernels that transpose matrices, for each size of an element.
pub(crate) static TRANSPOSE: ModuleCache =
    ModuleCache::new(include_str!("../kernels/transpose.ptx"));

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
                "../kernels/",
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
    module_loaded_by(cache, T::WARM_UP).try_map(move |module| module.function(&name.into()))
}
