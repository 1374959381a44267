//! The element types of DLPack.

use cuda_core::{Error, Result};

use super::abi::{DL_BFLOAT, DL_BOOL, DL_FLOAT, DL_INT, DL_UINT, DLDataType};
use crate::element::dtype::DType;

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
/// [`Error::Unsupported`] for a type that is missing in [`TYPES`]. Currently none is.
pub(super) fn data_type<T: DType>() -> Result<DLDataType> {
    let found = TYPES.iter().find(|(name, ..)| *name == T::NAME);
    let found = found.map(|(_, code, bits)| DLDataType { code: *code, bits: *bits, lanes: 1 });
    found.ok_or_else(|| {
        let detail =
            format!("DLPack has no name for elements of type {}; convert them first", T::NAME);
        Error::Misuse { what: "an export of a tensor".into(), detail }
    })
}

/// Checks that the elements are of type `T`.
///
/// # Errors
/// [`Error::OutOfRange`] if they are of another type.
pub(super) fn check<T: DType>(dtype: DLDataType) -> Result<()> {
    let DLDataType { code, bits, lanes } = dtype;
    let detail = if lanes != 1 {
        format!(
            "its elements have {lanes} lanes, but the elements of a `Tensor` have one; make the lanes a dimension, in the framework of the tensor"
        )
    } else if dtype == data_type::<T>()? {
        return Ok(());
    } else if let Some((name, ..)) = TYPES.iter().find(|it| (it.1, it.2) == (code, bits)) {
        let wanted = T::NAME;
        format!(
            "its elements are {name}, not {wanted}; import it as `Tensor::<{name}>`, then use `cast::<{wanted}>()`"
        )
    } else {
        format!(
            "no element type of `Tensor` has DLPack's type code {code} and {bits} bits; convert it in its own framework first"
        )
    };
    Err(Error::OutOfRange { what: "a DLPack tensor".into(), detail })
}
