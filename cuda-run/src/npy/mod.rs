//! `.npy` files whose type is known only when they are read: a header, and the array's bytes as they are.
//!
//! No crate fits: `ndarray-npy` and `npyz` need the element type at compile time; `npyz` also overflows on a false shape,
//! allocates any length that a header claims, and parses nested headers recursively.

mod header;

use std::io::{Read, Write};

use crate::{array_type::ArrayType, failure::Failure};

/// Reads an array. The header is believed only as far as there are bytes: memory grows with the file.
pub(crate) fn read(mut file: impl Read) -> Result<(ArrayType, Vec<u8>), Failure> {
    let array = header::read(&mut file)?;
    let mut bytes = Vec::new();
    // Reading one byte more shows whether the file is too long.
    file.take(array.bytes() as u64 + 1).read_to_end(&mut bytes)?;
    let (found, wanted) = (bytes.len(), array.bytes());
    if found < wanted {
        return Err(Failure::bad_input(format_args!(
            "the file is cut short: the header says {array}, {wanted} bytes, and {found} are there"
        )));
    }
    if found > wanted {
        return Err(Failure::bad_input(format_args!(
            "the file goes on behind the {wanted} bytes of {array} that its header says"
        )));
    }
    Ok((array, bytes))
}

/// Writes an array as version 1.0.
pub(crate) fn write(mut file: impl Write, array: &ArrayType, bytes: &[u8]) -> std::io::Result<()> {
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
    fn what_was_written_is_read() {
        for shape in [&[][..], &[0], &[5], &[3, 4], &[2, 0, 7], &[1; 32]] {
            for dtype in [Dtype::Bool, Dtype::F16, Dtype::Bf16, Dtype::F32, Dtype::U64] {
                let (array, bytes, file) = file(dtype, shape);
                assert_eq!(read(&file[..]).unwrap(), (array, bytes));
            }
        }
    }

    #[test]
    fn every_truncation_is_refused() {
        let (_, _, file) = file(Dtype::F32, &[3, 2]);
        for length in 0..file.len() {
            assert!(read(&file[..length]).is_err(), "{length}");
        }
        assert!(why(&file[..file.len() - 1]).contains("cut short"));
    }

    #[test]
    fn bytes_behind_the_end_are_refused() {
        let (_, _, mut file) = file(Dtype::F32, &[3, 2]);
        file.push(0);
        assert!(why(&file).contains("goes on"));
    }

    /// Every byte of the header with every value: an array or an error, and never more than is there.
    #[test]
    fn no_mutation_of_the_header_is_trusted() {
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
