//! The output of a submit: its form, and the file or stdout to which it is written.

use std::{
    fmt::Write,
    io::{self, IsTerminal},
    path::Path,
};

use command_line::{ArrayType, Dtype, Failure, npy, scalar, stdout};

use crate::out_file::{OutFile, PUBLIC};

/// The bytes on a line of a hexadecimal dump.
const HEX_LINE: usize = 16;

/// The place of the output.
pub(crate) struct Output {
    format: Format,
    /// The file. `None` for stdout.
    file: Option<OutFile>,
}

impl Output {
    /// Checks before the run that the output can be written.
    pub(crate) fn new(format: Format, path: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = path else {
            if format.is_binary() && io::stdout().is_terminal() {
                return Err(Failure::bad_input(
                    "the output is not text; write it to a file with --out",
                ));
            }
            return Ok(Self { format, file: None });
        };
        Ok(Self { format, file: Some(OutFile::open(path, PUBLIC)?) })
    }

    /// Writes all of the output.
    pub(crate) fn write(self, bytes: &[u8]) -> Result<(), Failure> {
        let rendered = self.format.render(bytes)?;
        match self.file {
            Some(file) => file.write(&rendered),
            None => stdout::write(&rendered),
        }
    }
}

/// The form in which the output is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// One number a line.
    Numbers(Dtype),
    /// A hexadecimal dump.
    Hex,
    /// The bytes.
    Raw,
    /// An `.npy` file of one dimension.
    Npy(Dtype),
}

impl Format {
    /// Parses the name of a format.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let unknown = || {
            format!(
                "unknown format; the formats are hex, raw, npy, npy:TYPE, and the types {}",
                Dtype::all()
            )
        };
        let named = |text| Dtype::named(text).ok_or_else(unknown);
        match text {
            "hex" => Ok(Self::Hex),
            "raw" => Ok(Self::Raw),
            "npy" => Ok(Self::Npy(Dtype::F32)),
            _ => match text.strip_prefix("npy:") {
                Some(dtype) => named(dtype).map(Self::Npy),
                None => named(text).map(Self::Numbers),
            },
        }
    }

    /// Whether the output is not text.
    fn is_binary(self) -> bool {
        matches!(self, Self::Raw | Self::Npy(_))
    }

    /// Checks that this many bytes have this form.
    pub(crate) fn check(self, bytes: u64) -> Result<(), Failure> {
        let (Self::Numbers(dtype) | Self::Npy(dtype)) = self else { return Ok(()) };
        let (size, name) = (dtype.size(), dtype.name());
        if bytes.is_multiple_of(size as u64) {
            return Ok(());
        }
        Err(Failure::bad_input(format_args!(
            "--output-bytes {bytes}: no whole number of {name} of {size} bytes"
        )))
    }

    /// The output in this form.
    fn render(self, bytes: &[u8]) -> Result<Vec<u8>, Failure> {
        self.check(bytes.len() as u64)?;
        let mut text = String::new();
        match self {
            Self::Raw => return Ok(bytes.to_vec()),
            Self::Npy(dtype) => {
                let shape = vec![bytes.len() / dtype.size()];
                let array = ArrayType::new(dtype, shape).map_err(Failure::bad_input)?;
                let mut file = Vec::new();
                npy::write(&mut file, &array, bytes)?;
                return Ok(file);
            }
            // Writing to a string cannot fail.
            Self::Numbers(dtype) => bytes
                .chunks(dtype.size())
                .for_each(|number| _ = writeln!(text, "{}", scalar::format(dtype, number))),
            Self::Hex => {
                for (index, line) in bytes.chunks(HEX_LINE).enumerate() {
                    _ = write!(text, "{:08x} ", index * HEX_LINE);
                    line.iter().for_each(|byte| _ = write!(text, " {byte:02x}"));
                    text.push('\n');
                }
            }
        }
        Ok(text.into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_has_a_name() {
        assert_eq!(Format::parse("f32"), Ok(Format::Numbers(Dtype::F32)));
        assert_eq!(Format::parse("npy:u16"), Ok(Format::Npy(Dtype::U16)));
        for text in ["", "float", "npy:", "npy:x", "HEX"] {
            assert!(Format::parse(text).unwrap_err().contains("the formats are hex"), "{text}");
        }
    }

    #[test]
    fn bytes_become_numbers_or_a_dump() {
        let render = |format: Format, bytes: &[u8]| {
            String::from_utf8(format.render(bytes).unwrap()).unwrap()
        };
        let bytes = [1.0f32, 256.0].map(f32::to_le_bytes).concat();
        assert_eq!(render(Format::Numbers(Dtype::F32), &bytes), "1.0\n256.0\n");
        let dump = render(Format::Hex, &(0..18).collect::<Vec<_>>());
        assert_eq!(
            dump,
            "00000000  00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f\n00000010  10 11\n"
        );
        assert_eq!(render(Format::Hex, &[]), "");
        let npy = Format::Npy(Dtype::F32).render(&bytes).unwrap();
        assert_eq!(npy::read(&npy[..]).unwrap().1, bytes);
        assert!(Format::Numbers(Dtype::F32).render(&bytes[..6]).is_err());
    }
}
