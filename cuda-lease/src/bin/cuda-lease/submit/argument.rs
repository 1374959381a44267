//! Reads the arguments, and compares them with the kernel's parameters.

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

use command_line::{Dtype, Failure, parameter, scalar};
use cuda_core::{
    ArgumentKind,
    protocol::{EntryInfo, ParamInfo},
};

use super::files;

/// The maximum size of all arguments of a kernel in bytes.
const MAX_BYTES: u64 = 32 << 10;

/// The size of a device address in bytes.
const ADDRESS: u32 = 8;

/// An argument of the command line.
#[derive(Debug, PartialEq)]
enum Argument {
    /// `u32=256`: a number.
    Number(Dtype, Vec<u8>),
    /// `f32@x.npy`: numbers by value.
    Array(Dtype, PathBuf),
    /// `bytes@s.bin`: a struct by value.
    Bytes(PathBuf),
}

/// Reads the arguments behind the pointer of the region, and checks them if the kernel is known.
pub(super) fn read(
    texts: &[OsString],
    kernel: Option<&EntryInfo>,
) -> Result<Vec<Vec<u8>>, Failure> {
    let behind = kernel.map(|kernel| parameters(kernel, texts.len())).transpose()?;
    let one = |(index, text): (usize, &OsString)| {
        let param = behind.and_then(|params| params.get(index));
        let place = || format!("--arg {}", text.to_string_lossy());
        let argument = parse(text).map_err(|why| Failure::bad_input(why).at(place()))?;
        argument.bytes(param).map_err(|failure| failure.at(place()))
    };
    texts.iter().enumerate().map(one).collect()
}

/// The parameters behind the pointer of the region.
fn parameters(kernel: &EntryInfo, arguments: usize) -> Result<&[ParamInfo], Failure> {
    let name = &kernel.name;
    let Some((first, behind)) =
        kernel.params.split_first().filter(|(first, _)| first.size == ADDRESS)
    else {
        let why = match kernel.params.first() {
            Some(first) => format!("is `{}` ({})", first.name, first.ty),
            None => "is missing".to_owned(),
        };
        return Err(Failure::bad_input(format_args!(
            "kernel `{name}`: the first parameter {why}; a submit passes the pointer of the region there (u64)"
        )));
    };
    if behind.len() == arguments {
        return Ok(behind);
    }
    let types: Vec<_> = behind.iter().map(|param| format!("{} {}", param.ty, param.name)).collect();
    let types = if types.is_empty() { "none".to_owned() } else { types.join(", ") };
    let (count, follow) = match behind.len() {
        0 => ("no".to_owned(), "arguments follow"),
        1 => ("1".to_owned(), "argument follows"),
        count => (count.to_string(), "arguments follow"),
    };
    let advice =
        if behind.is_empty() { "remove --arg" } else { "write one --arg TYPE=VALUE for each" };
    Err(Failure::bad_input(format_args!(
        "kernel `{name}`: {count} {follow} the pointer `{}` of the region ({types}), the command line has {arguments}; {advice}",
        first.name,
    )))
}

fn parse(text: &OsStr) -> Result<Argument, String> {
    let bytes = text.as_encoded_bytes();
    let at = bytes.iter().position(|byte| matches!(byte, b'=' | b'@'));
    let at = at.ok_or("expected TYPE=VALUE or TYPE@FILE, such as u32=256")?;
    let kind = String::from_utf8_lossy(&bytes[..at]).into_owned();
    let is_file = bytes[at] == b'@';
    let rest = &bytes[at + 1..];
    if is_file && rest.is_empty() {
        return Err("the path after the @ is missing".into());
    }
    let path = || PathBuf::from(<OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(rest));
    if kind == "bytes" {
        return if is_file {
            Ok(Argument::Bytes(path()))
        } else {
            Err("a struct is read from a file; write bytes@FILE".into())
        };
    }
    let dtype = Dtype::named(&kind).ok_or_else(|| {
        format!("unknown type `{kind}`; the types are {}, and bytes@FILE", Dtype::all())
    })?;
    if is_file {
        return Ok(Argument::Array(dtype, path()));
    }
    let value = std::str::from_utf8(rest).map_err(|_| "the value is not UTF-8")?;
    Ok(Argument::Number(dtype, scalar::parse(dtype, value)?))
}

impl Argument {
    /// The bytes, which fit the parameter.
    fn bytes(self, param: Option<&ParamInfo>) -> Result<Vec<u8>, Failure> {
        let (bytes, kind) = match self {
            Self::Number(dtype, bytes) => {
                let is_float = matches!(dtype, Dtype::F16 | Dtype::Bf16 | Dtype::F32 | Dtype::F64);
                (bytes, if is_float { ArgumentKind::Float } else { ArgumentKind::Integer })
            }
            Self::Array(dtype, path) => (array(dtype, &path)?, ArgumentKind::Bytes),
            Self::Bytes(path) => (files::bytes(&path, MAX_BYTES)?, ArgumentKind::Bytes),
        };
        if let Some(param) = param {
            parameter::has_size(param, bytes.len())?;
            parameter::has_kind(param, kind)?;
        }
        Ok(bytes)
    }
}

/// Reads the numbers of a file.
fn array(dtype: Dtype, path: &Path) -> Result<Vec<u8>, Failure> {
    let contents = files::read(path, MAX_BYTES)?;
    let bad = |why: String| Failure::bad_input(why).at(path.display());
    match contents.array {
        Some(array) if array.dtype() != dtype => Err(bad(format!(
            "has numbers of type {}; write {0}@{}",
            array.dtype().name(),
            path.display()
        ))),
        None if !contents.bytes.len().is_multiple_of(dtype.size()) => Err(bad(format!(
            "has {} bytes, which are not a whole number of values of {} bytes",
            contents.bytes.len(),
            dtype.size()
        ))),
        _ => Ok(contents.bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(ptx: &str) -> EntryInfo {
        cuda_core::protocol::entries(ptx).unwrap().remove(0)
    }

    fn read_all(texts: &[&str], params: &str) -> Result<Vec<Vec<u8>>, String> {
        let ptx = format!(".version 7.0\n.target sm_50\n.entry k({params}) {{ ret; }}");
        let texts: Vec<_> = texts.iter().map(OsString::from).collect();
        read(&texts, Some(&kernel(&ptx))).map_err(|failure| format!("{failure:?}"))
    }

    const IOTA: &str = ".param .u64 x, .param .u32 n, .param .f32 a";

    #[test]
    fn numbers_follow_the_pointer_of_the_region() {
        let bytes = read_all(&["u32=256", "f32=1.5"], IOTA).unwrap();
        assert_eq!(bytes, [256u32.to_le_bytes(), 1.5f32.to_le_bytes()]);
    }

    #[test]
    fn mistakes_say_what_to_write() {
        for (texts, params, words) in [
            (
                &["u32=1"][..],
                IOTA,
                "2 arguments follow the pointer `x` of the region (u32 n, f32 a)",
            ),
            (&["u64=1", "f32=1"], IOTA, "has 8 bytes, parameter `n` takes 4 (u32)"),
            (&["f32=1", "f32=1"], IOTA, "is a float, parameter `n` takes u32"),
            (&["int=1", "f32=1"], IOTA, "unknown type `int`; the types are bool i8"),
            (&["u32", "f32=1"], IOTA, "expected TYPE=VALUE"),
            (&["u32=-1", "f32=1"], IOTA, "out of range"),
            (&["u32@", "f32=1"], IOTA, "the path after the @ is missing"),
            (&["bytes=7", "f32=1"], IOTA, "bytes@FILE"),
            (&["u32@/nonexistent", "f32=1"], IOTA, "/nonexistent: No such file"),
            (&[], ".param .u64 x, .param .u32 n", "1 argument follows the pointer `x`"),
            (
                &["u32=1"],
                ".param .u64 x",
                "no arguments follow the pointer `x` of the region (none)",
            ),
            (&["u32=1"], ".param .u64 x", "the command line has 1; remove --arg"),
            (&[], "", "the first parameter is missing"),
            (&["u32=1"], ".param .u32 n", "the first parameter is `n` (u32)"),
        ] {
            let message = read_all(texts, params).unwrap_err();
            assert!(message.contains(words), "{texts:?}: {message}");
        }
    }
}
