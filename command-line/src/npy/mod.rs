//! Reads and writes `.npy` files with an element type that is known only at run time.
//!
//! The crates `ndarray-npy` and `npyz` need the element type at compile time. `npyz` also overflows on invalid shapes,
//! allocates any length that a header states, and parses nested headers recursively.

mod header;

use std::io::{Read, Write};

use crate::{array_type::ArrayType, failure::Failure};

/// Reads an array. Memory is allocated as bytes are read, not for the size that the header states.
///
/// # Errors
/// A failure of bad input that says what is wrong with the file.
pub fn read(mut file: impl Read) -> Result<(ArrayType, Vec<u8>), Failure> {
    let array = header::read(&mut file)?;
    let mut bytes = Vec::new();
    // Reading one byte more shows whether the file is too long.
    file.take(array.bytes() as u64 + 1).read_to_end(&mut bytes)?;
    let (found, wanted) = (bytes.len(), array.bytes());
    if found < wanted {
        return Err(Failure::bad_input(format_args!(
            "the file is truncated: its header states {array} ({wanted} bytes), {found} bytes follow it"
        )));
    }
    if found > wanted {
        return Err(Failure::bad_input(format_args!(
            "the file has more bytes than the {wanted} that its header states ({array})"
        )));
    }
    Ok((array, bytes))
}

/// Writes an array as an `.npy` file of version 1.0.
///
/// # Errors
/// The error of the file.
pub fn write(mut file: impl Write, array: &ArrayType, bytes: &[u8]) -> std::io::Result<()> {
    file.write_all(&header::format(array))?;
    file.write_all(bytes)?;
    file.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::Dtype;

    fn file(dtype: Dtype, shape: &[usize]) -> (ArrayType, Vec<u8>, Vec<u8>) {
        let array = ArrayType::new(dtype, shape.to_vec()).unwrap();
        let bytes: Vec<u8> = (0..array.bytes()).map(|index| index as u8).collect();
        let mut file = Vec::new();
        write(&mut file, &array, &bytes).unwrap();
        (array, bytes, file)
    }

    fn why(file: &[u8]) -> String {
        format!("{:?}", read(file).unwrap_err())
    }

    #[test]
    fn write_then_read_returns_the_same_array() {
        for shape in [&[][..], &[0], &[5], &[3, 4], &[2, 0, 7], &[1; 32]] {
            for dtype in [Dtype::Bool, Dtype::F16, Dtype::Bf16, Dtype::F32, Dtype::U64] {
                let (array, bytes, file) = file(dtype, shape);
                assert_eq!(read(&file[..]).unwrap(), (array, bytes));
            }
        }
    }

    #[test]
    fn truncated_file_is_refused_at_every_length() {
        let (_, _, file) = file(Dtype::F32, &[3, 2]);
        for length in 0..file.len() {
            assert!(read(&file[..length]).is_err(), "{length}");
        }
        assert!(why(&file[..file.len() - 1]).contains("truncated"));
    }

    #[test]
    fn trailing_bytes_are_refused() {
        let (_, _, mut file) = file(Dtype::F32, &[3, 2]);
        file.push(0);
        assert!(why(&file).contains("more bytes"));
    }

    /// Sets every byte of the header to every value. The result is an error or an array of the size of the file.
    #[test]
    fn mutated_headers_never_change_the_size() {
        let (_, bytes, file) = file(Dtype::I16, &[3, 2]);
        for at in 0..file.len() - bytes.len() {
            for value in 0..=u8::MAX {
                let mut mutant = file.clone();
                mutant[at] = value;
                if let Ok((array, read)) = read(&mutant[..]) {
                    assert_eq!((array.bytes(), read.len()), (bytes.len(), bytes.len()));
                }
            }
        }
    }
}
