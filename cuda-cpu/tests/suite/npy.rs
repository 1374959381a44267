//! `.npy` files of one dimension, as `cuda-run` reads and writes them.

use std::path::Path;

use crate::inputs::Type;

pub(crate) fn write(path: &Path, ty: Type, bytes: &[u8]) {
    let count = bytes.len() / ty.size();
    let header =
        format!("{{'descr': '{}', 'fortran_order': False, 'shape': ({count},), }}", ty.descr());
    let length = (10 + header.len() + 1).next_multiple_of(64) - 10;
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((length as u16).to_le_bytes());
    file.extend(format!("{header:<width$}\n", width = length - 1).into_bytes());
    file.extend(bytes);
    std::fs::write(path, file).unwrap();
}

/// Returns the bytes of the elements.
pub(crate) fn read(path: &Path) -> Option<Vec<u8>> {
    let file = std::fs::read(path).ok()?;
    let length = u16::from_le_bytes([*file.get(8)?, *file.get(9)?]) as usize;
    Some(file.get(10 + length..)?.to_vec())
}
