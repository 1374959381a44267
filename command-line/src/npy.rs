//! Reads and writes `.npy` files with an element type that is known only at run time.
//!
//! The crates `ndarray-npy` and `npyz` need the element type at compile time. `npyz` also overflows on invalid shapes,
//! allocates any length that a header states, and parses nested headers recursively.
//!
//! A file of version 1.0, 2.0 or 3.0 begins with a header: a magic number, a length, and a Python dict.

use std::io::{ErrorKind, Read, Write};

use crate::{
    dtype::{ArrayType, Dtype, MAX_DIMENSIONS},
    failure::Failure,
};

/// The maximum length of the dict in bytes. Only structured types need more than a few hundred.
const MAX_DICT: usize = 1 << 16;

const MAGIC: &[u8] = b"\x93NUMPY";

/// The alignment of the array's bytes in the file. The dict is padded to it.
const ALIGNMENT: usize = 64;

/// Reads an array. Memory is allocated as bytes are read, not for the size that the header states.
///
/// # Errors
/// A failure of bad input that says what is wrong with the file.
pub fn read(mut file: impl Read) -> Result<(ArrayType, Vec<u8>), Failure> {
    let array = read_header(&mut file)?;
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
    file.write_all(&format_header(array))?;
    file.write_all(bytes)?;
    file.flush()
}

/// Reads the header, up to the first byte of the array.
fn read_header(file: &mut impl Read) -> Result<ArrayType, Failure> {
    let start: [u8; 8] = exactly(file)?;
    if !start.starts_with(MAGIC) {
        return Err(Failure::bad_input("not an .npy file"));
    }
    let length = match start[6..] {
        [1, 0] => usize::from(u16::from_le_bytes(exactly(file)?)),
        [2 | 3, 0] => u32::from_le_bytes(exactly(file)?) as usize,
        _ => {
            let (major, minor) = (start[6], start[7]);
            return Err(Failure::bad_input(format_args!(
                "unsupported .npy version {major}.{minor}; save it as version 1.0"
            )));
        }
    };
    if length > MAX_DICT {
        return Err(Failure::bad_input(format_args!(
            "the header of {length} bytes is too long, the limit is {MAX_DICT}"
        )));
    }
    let mut dict = vec![0; length];
    fill(file, &mut dict)?;
    let dict = str::from_utf8(&dict).map_err(|_| Failure::bad_input("the header is not UTF-8"))?;
    parse(dict).map_err(|why| Failure::bad_input(format_args!("invalid .npy header: {why}")))
}

/// Formats a padded header of version 1.0.
fn format_header(array: &ArrayType) -> Vec<u8> {
    let lengths: String = array.shape().iter().map(|length| format!("{length}, ")).collect();
    // A Python tuple of one element keeps its comma.
    let shape =
        if array.shape().len() == 1 { lengths.trim_end() } else { lengths.trim_end_matches(", ") };
    let descr = array.dtype().descr();
    let mut dict = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}");
    let start = MAGIC.len() + 4;
    let padded = (start + dict.len() + 1).next_multiple_of(ALIGNMENT) - start;
    dict.extend(std::iter::repeat_n(' ', padded - 1 - dict.len()));
    dict.push('\n');
    // At most 32 dimensions of 20 digits, so the length fits in two bytes.
    [MAGIC, &[1, 0], &(padded as u16).to_le_bytes(), dict.as_bytes()].concat()
}

fn exactly<const N: usize>(file: &mut impl Read) -> Result<[u8; N], Failure> {
    let mut bytes = [0; N];
    fill(file, &mut bytes)?;
    Ok(bytes)
}

fn fill(file: &mut impl Read, bytes: &mut [u8]) -> Result<(), Failure> {
    file.read_exact(bytes).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => Failure::bad_input("not an .npy file, or truncated"),
        _ => error.into(),
    })
}

/// Parses the dict: `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`, with the keys in any order.
fn parse(dict: &str) -> Result<ArrayType, String> {
    let (mut descr, mut fortran, mut shape) = (None, None, None);
    let mut text = Text(dict);
    text.expect('{')?;
    while !text.eat('}') {
        let key = text.string()?;
        text.expect(':')?;
        let repeated = match key {
            "descr" => descr.replace(text.dtype()?).is_some(),
            "fortran_order" => fortran.replace(text.boolean()?).is_some(),
            "shape" => shape.replace(text.shape()?).is_some(),
            _ => return Err(format!("unknown key `{key}`")),
        };
        if repeated {
            return Err(format!("duplicate key `{key}`"));
        }
        if !text.eat(',') {
            text.expect('}')?;
            break;
        }
    }
    if !text.is_at_end() {
        return Err("unexpected text after the dict".into());
    }
    let (Some(dtype), Some(fortran), Some(shape)) = (descr, fortran, shape) else {
        return Err("missing key `descr`, `fortran_order` or `shape`".into());
    };
    if fortran && shape.len() > 1 {
        return Err("the array is in Fortran order; save it with numpy.ascontiguousarray".into());
    }
    ArrayType::new(dtype, shape)
}

/// The text of the dict that is not parsed yet. Every method skips whitespace first.
struct Text<'a>(&'a str);

impl<'a> Text<'a> {
    fn eat(&mut self, wanted: char) -> bool {
        self.skip_blanks();
        let rest = self.0.strip_prefix(wanted);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn expect(&mut self, wanted: char) -> Result<(), String> {
        if self.eat(wanted) { Ok(()) } else { Err(format!("expected `{wanted}`")) }
    }

    fn is_at_end(&mut self) -> bool {
        self.skip_blanks();
        self.0.is_empty()
    }

    /// Parses `'text'` or `"text"`. Strings in a header have no escapes.
    fn string(&mut self) -> Result<&'a str, String> {
        let quote = if self.eat('"') { '"' } else { '\'' };
        if quote == '\'' {
            self.expect(quote)?;
        }
        let (string, rest) = self.0.split_once(quote).ok_or("unterminated string")?;
        self.0 = rest;
        Ok(string)
    }

    fn dtype(&mut self) -> Result<Dtype, String> {
        self.skip_blanks();
        if self.0.starts_with(['[', '(', '{']) {
            return Err("structured dtypes are not supported".into());
        }
        Dtype::described(self.string()?)
    }

    fn boolean(&mut self) -> Result<bool, String> {
        match self.word(|c| c.is_ascii_alphabetic()) {
            "True" => Ok(true),
            "False" => Ok(false),
            _ => Err("`fortran_order` is neither True nor False".into()),
        }
    }

    /// Parses `()`, `(3,)`, `(3, 4)`.
    fn shape(&mut self) -> Result<Vec<usize>, String> {
        let mut shape = Vec::new();
        self.expect('(')?;
        while !self.eat(')') {
            shape.push(self.length()?);
            if shape.len() > MAX_DIMENSIONS {
                return Err(format!("more than {MAX_DIMENSIONS} dimensions, which is the limit"));
            }
            if !self.eat(',') {
                self.expect(')')?;
                break;
            }
        }
        Ok(shape)
    }

    /// Parses `3`, or `3L` as written by Python 2.
    fn length(&mut self) -> Result<usize, String> {
        let digits = self.word(|c| c.is_ascii_digit());
        let length = digits.parse().map_err(|_| "`shape` is not a tuple of lengths")?;
        self.0 = self.0.strip_prefix('L').unwrap_or(self.0);
        Ok(length)
    }

    fn word(&mut self, belongs: impl Fn(char) -> bool) -> &'a str {
        self.skip_blanks();
        let end = self.0.find(|c| !belongs(c)).unwrap_or(self.0.len());
        let (word, rest) = self.0.split_at(end);
        self.0 = rest;
        word
    }

    fn skip_blanks(&mut self) {
        self.0 = self.0.trim_start_matches([' ', '\t', '\n', '\r']);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    fn array(dtype: Dtype, shape: &[usize]) -> ArrayType {
        ArrayType::new(dtype, shape.to_vec()).unwrap()
    }

    #[test]
    fn header_is_identical_to_numpy() {
        let expected =
            b"\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }";
        let header = format_header(&array(Dtype::F32, &[3]));
        assert!(header.starts_with(expected), "{}", String::from_utf8_lossy(&header));
        assert_eq!((header.len(), header.last()), (128, Some(&b'\n')));
        let text = |shape: &[usize]| {
            String::from_utf8_lossy(&format_header(&array(Dtype::Bool, shape))).into_owned()
        };
        assert!(text(&[]).contains("'shape': (), }"));
        assert!(text(&[3, 4]).contains("'shape': (3, 4), }"));
    }

    #[test]
    fn reads_every_version_and_unusual_formatting() {
        let dict = "{'shape':(2L,3),\"descr\" : '<f8','fortran_order':False}\n";
        let length = dict.len() as u8;
        for start in [&[1, 0, length, 0][..], &[2, 0, length, 0, 0, 0], &[3, 0, length, 0, 0, 0]] {
            let file = [MAGIC, start, dict.as_bytes()].concat();
            assert_eq!(read_header(&mut &file[..]).unwrap(), array(Dtype::F64, &[2, 3]));
        }
    }

    #[test]
    fn fortran_order_is_accepted_for_one_dimension() {
        let dict = |shape| format!("{{'descr': '|u1', 'fortran_order': True, 'shape': {shape}, }}");
        assert_eq!(parse(&dict("(3,)")), Ok(array(Dtype::U8, &[3])));
        assert!(parse(&dict("(3, 1)")).unwrap_err().contains("Fortran"));
    }

    #[test]
    fn invalid_headers_give_the_reason() {
        for (dict, why) in [
            ("", "expected"),
            ("{}", "missing key"),
            ("{'descr': '<f4'", "expected"),
            ("{'descr': '<f4', 'descr': '<f4'}", "duplicate key `descr`"),
            ("{'descr': '<f4', 'x': 1}", "unknown key"),
            ("{'descr': [('a', '<f4')]}", "structured"),
            ("{'descr': '>f4'}", "big-endian"),
            ("{'descr': '<c8'}", "not supported"),
            ("{'descr': '<f4}", "unterminated string"),
            ("{'shape': (1, -1)}", "tuple of lengths"),
            ("{'shape': 3}", "expected"),
            ("{'shape': (99999999999999999999,)}", "tuple of lengths"),
            ("{'fortran_order': 0}", "neither"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': ()} x", "after the dict"),
            (
                "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904,)}",
                "larger than the limit",
            ),
        ] {
            let error = parse(dict).unwrap_err();
            assert!(error.contains(why), "{dict}: {error}");
        }
        let deep = format!("{{'shape': {}", "(".repeat(60_000));
        assert!(parse(&deep).is_err());
        let long = format!("{{'shape': ({}", "1,".repeat(30_000));
        assert!(parse(&long).unwrap_err().contains("dimensions"));
    }

    #[test]
    fn header_length_is_limited_before_allocating() {
        let file = [MAGIC, &[2, 0, 0xff, 0xff, 0xff, 0xff]].concat();
        let why = format!("{:?}", read_header(&mut &file[..]).unwrap_err());
        assert!(why.contains("too long"), "{why}");
        let file = [MAGIC, &[9, 9, 0, 0]].concat();
        assert!(format!("{:?}", read_header(&mut &file[..]).unwrap_err()).contains("version 9.9"));
    }
}
