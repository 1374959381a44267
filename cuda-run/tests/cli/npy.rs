//! A minimal reader and writer of `.npy` files, independent of the program's own code.

use std::{fs, path::Path};

/// A numeric type with a `descr` in `.npy` files.
pub(crate) trait Number: Copy {
    const DESCR: &'static str;
    fn bytes(self) -> Vec<u8>;
    fn from_bytes(bytes: &[u8]) -> Self;
}

macro_rules! numbers {
    ($($ty:ty: $descr:literal;)*) => {$(
        impl Number for $ty {
            const DESCR: &'static str = $descr;

            fn bytes(self) -> Vec<u8> {
                self.to_le_bytes().into()
            }

            fn from_bytes(bytes: &[u8]) -> Self {
                Self::from_le_bytes(bytes.try_into().unwrap())
            }
        }
    )*};
}

numbers! { u8: "|u1"; i32: "<i4"; u32: "<u4"; f32: "<f4"; f64: "<f8"; }

/// Formats a file with this header and these bytes.
pub(crate) fn file(descr: &str, order: &str, shape: &str, bytes: &[u8]) -> Vec<u8> {
    let dict = format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n");
    let length = (dict.len() as u16).to_le_bytes();
    [b"\x93NUMPY\x01\x00", &length[..], dict.as_bytes(), bytes].concat()
}

/// Saves an array of one dimension.
pub(crate) fn save<T: Number>(path: &Path, values: &[T]) {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.bytes()).collect();
    let descr = format!("'{}'", T::DESCR);
    fs::write(path, file(&descr, "False", &format!("({},)", values.len()), &bytes)).unwrap();
}

/// Loads an array that has exactly this type and shape.
pub(crate) fn load<T: Number>(path: &Path, shape: &str) -> Vec<T> {
    let file = fs::read(path).unwrap();
    let dict = header(&file);
    let expected = format!("'descr': '{}', 'fortran_order': False, 'shape': {shape}, ", T::DESCR);
    assert!(dict.contains(&expected), "{dict} is not {expected}");
    body(&file).chunks_exact(size_of::<T>()).map(T::from_bytes).collect()
}

/// Returns the dict of a file of version 1.0, and checks that the body is aligned.
pub(crate) fn header(file: &[u8]) -> &str {
    assert!(file.starts_with(b"\x93NUMPY\x01\x00"));
    let start = file.len() - body(file).len();
    assert!(start.is_multiple_of(64));
    str::from_utf8(&file[10..start]).unwrap()
}

fn body(file: &[u8]) -> &[u8] {
    &file[10 + usize::from(u16::from_le_bytes([file[8], file[9]]))..]
}
