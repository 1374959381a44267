//! `DType`: the element types of tensors.

use bytemuck::Zeroable;
use cuda_core::Element;
use half::{bf16, f16};

use crate::tensor::element::kernels::{FftKernels, FloatKernels, Kernels};

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
