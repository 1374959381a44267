//! The element types of DLPack.

use cuda_core::Result;

use super::abi::{DL_BFLOAT, DL_BOOL, DL_FLOAT, DL_INT, DL_UINT, DLDataType};
use crate::{element::dtype::DType, error::TensorError};

/// The element types of tensors: the name, and the type code and the bits of DLPack.
const TYPES: [(&str, u8, u8); 13] = [
    ("bool", DL_BOOL, 8),
    ("i8", DL_INT, 8),
    ("i16", DL_INT, 16),
    ("i32", DL_INT, 32),
    ("i64", DL_INT, 64),
    ("u8", DL_UINT, 8),
    ("u16", DL_UINT, 16),
    ("u32", DL_UINT, 32),
    ("u64", DL_UINT, 64),
    ("f16", DL_FLOAT, 16),
    ("f32", DL_FLOAT, 32),
    ("f64", DL_FLOAT, 64),
    ("bf16", DL_BFLOAT, 16),
];

/// Returns the DLPack type of an element type.
///
/// # Errors
/// [`TensorError::ElementType`] for a type that is missing in [`TYPES`]. Currently none is.
pub(super) fn data_type<T: DType>() -> Result<DLDataType> {
    let found = TYPES.iter().find(|(name, ..)| *name == T::NAME);
    let found = found.map(|(_, code, bits)| DLDataType { code: *code, bits: *bits, lanes: 1 });
    found.ok_or_else(|| {
        let (given, expected) = (T::NAME.to_owned(), "a type of DLPack");
        TensorError::ElementType { object: "an export of a tensor", given, expected }.into()
    })
}

/// Checks that the elements are of type `T`.
///
/// # Errors
/// [`TensorError::ElementType`] if they are of another type.
pub(super) fn check<T: DType>(dtype: DLDataType) -> Result<()> {
    let DLDataType { code, bits, lanes } = dtype;
    if dtype == data_type::<T>()? {
        return Ok(());
    }
    let known = TYPES.iter().find(|(_, known, size)| (*known, *size) == (code, bits));
    let mut given = known.map_or_else(
        || format!("of DLPack's type code {code} with {bits} bits"),
        |(name, ..)| (*name).to_owned(),
    );
    if lanes != 1 {
        given = format!("{lanes} lanes of {given}");
    }
    Err(TensorError::ElementType { object: "a DLPack tensor", given, expected: T::NAME }.into())
}
