//! Parses the kernel arguments of the command line.

use std::{
    ffi::{OsStr, OsString},
    path::PathBuf,
};

use command_line::{ArrayType, Dtype, Failure, scalar};

/// A kernel argument of the command line.
#[derive(Debug)]
pub(crate) struct Arg {
    /// The text as written, for messages.
    pub(crate) text: String,
    /// The parsed value.
    pub(crate) value: Value,
}

impl Arg {
    /// Whether the argument is a scalar of a floating-point type.
    pub(crate) fn is_float(&self) -> bool {
        let kind = self.text.split('=').next().and_then(Dtype::named);
        matches!(kind, Some(Dtype::F16 | Dtype::Bf16 | Dtype::F32 | Dtype::F64))
    }
}

/// The parsed value of an argument.
#[derive(Debug, PartialEq)]
pub(crate) enum Value {
    /// `i32=7`: the bytes of a scalar.
    Scalar(Vec<u8>),
    /// `in=@path`: an array that the kernel reads.
    In(PathBuf),
    /// `out=f32:1024@path`: a zeroed array, written to `path`.
    Out(ArrayType, PathBuf),
    /// `uninit=f32:1024@path`: an uninitialized array, written to `path`.
    Uninit(ArrayType, PathBuf),
    /// `inout=@from@to`: an array read from `from` and written to `to`.
    InOut(PathBuf, PathBuf),
    /// `bytes=@path`: a struct by value, the bytes of the file.
    Bytes(PathBuf),
}

/// Parses all kernel arguments.
pub(crate) fn parse_all(texts: &[OsString]) -> Result<Vec<Arg>, Failure> {
    let parse_one = |(index, text): (usize, &OsString)| {
        let written = text.to_string_lossy().into_owned();
        match parse(text) {
            Ok(value) => Ok(Arg { text: written, value }),
            Err(why) => {
                Err(Failure::bad_input(why).at(format_args!("argument {index} `{written}`")))
            }
        }
    };
    texts.iter().enumerate().map(parse_one).collect()
}

fn parse(text: &OsStr) -> Result<Value, String> {
    let (kind, rest) = split_at(text.as_encoded_bytes(), b'=')
        .ok_or("expected KIND=VALUE, such as i32=7 or in=@x.npy")?;
    let kind = str::from_utf8(kind).map_err(|_| "the kind before `=` is not UTF-8")?;
    match kind {
        "in" => Ok(Value::In(one_path(kind, rest)?)),
        "bytes" => Ok(Value::Bytes(one_path(kind, rest)?)),
        "out" => output(kind, rest).map(|(array, path)| Value::Out(array, path)),
        "uninit" => output(kind, rest).map(|(array, path)| Value::Uninit(array, path)),
        "inout" => two_paths(rest),
        _ => {
            let dtype = Dtype::named(kind).ok_or_else(|| {
                format!(
                    "unknown kind `{kind}`; expected in, out, inout, uninit, bytes or a scalar type, see --help"
                )
            })?;
            let value = str::from_utf8(rest).map_err(|_| "the value is not UTF-8")?;
            scalar::parse(dtype, value).map(Value::Scalar)
        }
    }
}

/// Parses `@path`.
fn one_path(kind: &str, rest: &[u8]) -> Result<PathBuf, String> {
    let path = rest.strip_prefix(b"@").ok_or_else(|| format!("expected {kind}=@FILE"))?;
    path_of(path)
}

/// Parses `f32:32x32@path`.
fn output(kind: &str, rest: &[u8]) -> Result<(ArrayType, PathBuf), String> {
    let form = || format!("expected {kind}=TYPE:SHAPE@FILE, such as {kind}=f32:32x32@y.npy");
    let (array, path) = split_at(rest, b'@').ok_or_else(form)?;
    let array = str::from_utf8(array).map_err(|_| form())?;
    let (dtype, shape) = array.split_once(':').ok_or_else(form)?;
    let dtype = Dtype::named(dtype)
        .ok_or_else(|| format!("unknown array type `{dtype}`; the types are {}", Dtype::all()))?;
    let shape = shape.split('x').map(length).collect::<Result<_, _>>()?;
    Ok((ArrayType::new(dtype, shape)?, path_of(path)?))
}

fn length(text: &str) -> Result<usize, String> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let length = if digits { text.parse().ok() } else { None };
    length.ok_or_else(|| format!("invalid dimension `{text}`; expected a decimal number"))
}

/// Parses `@from@to`. An `@` inside a path is written `@@`.
fn two_paths(rest: &[u8]) -> Result<Value, String> {
    let form = "expected inout=@FILE@FILE (write an @ inside a path as @@)";
    let mut paths = vec![Vec::new()];
    let mut rest = rest.strip_prefix(b"@").ok_or(form)?.iter().peekable();
    while let Some(&byte) = rest.next() {
        if byte == b'@' && rest.next_if_eq(&&b'@').is_none() {
            paths.push(Vec::new());
        } else if let Some(path) = paths.last_mut() {
            path.push(byte);
        }
    }
    match &paths[..] {
        [from, to] => Ok(Value::InOut(path_of(from)?, path_of(to)?)),
        _ => Err(form.into()),
    }
}

fn split_at(bytes: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|&byte| byte == separator)?;
    Some((&bytes[..at], &bytes[at + 1..]))
}

/// Converts bytes to a path. On Unix every byte string is a path; elsewhere it has to be UTF-8.
fn path_of(bytes: &[u8]) -> Result<PathBuf, String> {
    if bytes.is_empty() {
        return Err("missing path after the @".into());
    }
    #[cfg(unix)]
    let path = <OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(bytes);
    #[cfg(not(unix))]
    let path = str::from_utf8(bytes).map_err(|_| "the path is not UTF-8")?;
    Ok(path.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Value {
        parse(text.as_ref()).unwrap()
    }

    fn error(text: &str) -> String {
        parse(text.as_ref()).unwrap_err()
    }

    fn array(dtype: Dtype, shape: &[usize]) -> ArrayType {
        ArrayType::new(dtype, shape.to_vec()).unwrap()
    }

    #[test]
    fn scalars() {
        assert_eq!(value("i32=-7"), Value::Scalar((-7i32).to_le_bytes().into()));
        assert_eq!(value("f32=-inf"), Value::Scalar(f32::NEG_INFINITY.to_le_bytes().into()));
        assert!(error("i8=300").contains("out of range"));
        assert!(error("i32=").contains("not an integer"));
        assert!(error("bool=1").contains("u8=1"));
    }

    #[test]
    fn single_path_may_contain_at_and_equals_signs() {
        assert_eq!(value("in=@x.npy"), Value::In("x.npy".into()));
        assert_eq!(value("in=@@"), Value::In("@".into()));
        assert_eq!(value("in=@a@b=c@@d"), Value::In("a@b=c@@d".into()));
        assert_eq!(value("bytes=@=@ "), Value::Bytes("=@ ".into()));
        let out = Value::Out(array(Dtype::F32, &[4]), "a@b=c".into());
        assert_eq!(value("out=f32:4@a@b=c"), out);
    }

    #[test]
    fn inout_paths_escape_the_at_sign() {
        let both = |from: &str, to: &str| Value::InOut(from.into(), to.into());
        assert_eq!(value("inout=@x@y"), both("x", "y"));
        assert_eq!(value("inout=@x@@1@y=2"), both("x@1", "y=2"));
        assert_eq!(value("inout=@x@@@y"), both("x@", "y"));
        assert_eq!(value("inout=@@@x@y@@"), both("@x", "y@"));
        for text in ["inout=", "inout=x", "inout=@x", "inout=@x@@y", "inout=@x@y@z"] {
            assert!(error(text).contains("inout=@FILE@FILE"), "{text}");
        }
        for text in ["inout=@x@", "inout=@x@@@", "inout=@@x@y@"] {
            assert!(parse(text.as_ref()).is_err(), "{text}");
        }
    }

    #[test]
    fn outputs_require_a_type_and_a_shape() {
        assert_eq!(value("out=bf16:0@y"), Value::Out(array(Dtype::Bf16, &[0]), "y".into()));
        assert_eq!(
            value("out=bool:2x3x4@y"),
            Value::Out(array(Dtype::Bool, &[2, 3, 4]), "y".into())
        );
        assert_eq!(value("uninit=f32:4@y"), Value::Uninit(array(Dtype::F32, &[4]), "y".into()));
        assert!(error("uninit=f32@y").contains("uninit=TYPE:SHAPE@FILE"));
        for text in ["out=", "out=f32", "out=f32:4", "out=f32@y", "out=@y"] {
            assert!(error(text).contains("out=TYPE:SHAPE@FILE"), "{text}");
        }
        for text in ["out=f32:@y", "out=f32:4x@y", "out=f32:-1@y", "out=f32:+1@y", "out=f32:4,4@y"]
        {
            assert!(error(text).contains("invalid dimension"), "{text}");
        }
        assert!(error("out=f99:4@y").contains("unknown array type"));
        assert!(error("out=f32:4@").contains("missing path"));
        assert!(error("out=f32:99999999999999999999@y").contains("invalid dimension"));
        assert!(error("out=f32:9999999999x9999999999@y").contains("larger than the limit"));
    }

    #[test]
    fn invalid_arguments_are_refused() {
        assert!(error("x.npy").contains("KIND=VALUE"));
        assert!(error("").contains("KIND=VALUE"));
        assert!(error("int=7").contains("unknown kind"));
        assert!(error("in=x.npy").contains("in=@FILE"));
        assert!(error("in=@").contains("missing path"));
    }

    #[cfg(unix)]
    #[test]
    fn only_paths_may_be_invalid_utf_8() {
        use std::os::unix::ffi::OsStrExt;
        let path = OsStr::from_bytes(b"\xff.npy");
        assert_eq!(parse(OsStr::from_bytes(b"in=@\xff.npy")), Ok(Value::In(path.into())));
        assert!(parse(OsStr::from_bytes(b"i32=\xff")).is_err());
        assert!(parse(OsStr::from_bytes(b"\xff=1")).is_err());
        assert!(parse(OsStr::from_bytes(b"out=f32:\xff@y")).is_err());
    }
}
