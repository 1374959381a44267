//! The cases, read from the comments in `kernels/suite/*.cu`.
//!
//! ```text
//! // compile nvrtc12.9-sm_80 nvcc13.0-sm_90-fast
//! // case gemv <<<12, 128, 0>>>(in f32 unit 6144, out f32 64, i32 96) ulp 2 ref gemv
//! ```
//!
//! An argument is `in TYPE RULE COUNT`, `inout TYPE RULE COUNT`, `out TYPE COUNT`, `scratch TYPE COUNT` (zeroed and
//! not compared), a scalar `TYPE VALUE`, or `struct TYPE VALUE TYPE VALUE ..` by value.

use std::io::Read;
use std::path::{Path, PathBuf};

use crate::inputs::{self, Type};

/// A source and its cases.
pub(crate) struct Theme {
    pub(crate) name: String,
    pub(crate) variants: Vec<String>,
    pub(crate) cases: Vec<Case>,
}

/// One launch.
pub(crate) struct Case {
    pub(crate) theme: String,
    /// The kernel, and after an `@` a suffix that distinguishes several cases of that kernel.
    pub(crate) name: String,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
    pub(crate) args: Vec<Arg>,
    /// Permitted difference of results in units of the last place. 0 means bitwise equality.
    pub(crate) ulp: u64,
    /// Results that differ by at most this value count as equal.
    pub(crate) floor: f64,
    /// Whether printed lines are compared too.
    pub(crate) prints: bool,
    pub(crate) reference: Option<String>,
}

/// A kernel argument.
pub(crate) enum Arg {
    Scalar(Type, String),
    Struct(Vec<(Type, String)>),
    Array { ty: Type, count: usize, rule: Option<String>, role: Role },
}

/// The role of an array.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    In,
    InOut,
    Out,
    Scratch,
}

/// Returns the path of `kernels/suite`.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels/suite")
}

/// Returns the PTX in a compressed file.
pub(crate) fn unpack(path: &Path) -> String {
    let file = std::fs::File::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
    text
}

/// Returns all themes, ordered by name.
pub(crate) fn themes() -> Vec<Theme> {
    let entries = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let mut sources: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|e| e == "cu")).collect();
    sources.sort();
    sources.iter().map(|path| theme(path)).collect()
}

fn theme(path: &Path) -> Theme {
    let name = path.file_stem().unwrap().to_str().unwrap().to_string();
    let text = std::fs::read_to_string(path).unwrap();
    let after = |prefix: &'static str| text.lines().filter_map(move |l| l.strip_prefix(prefix));
    let variants = after("// compile ").flat_map(str::split_whitespace).map(String::from).collect();
    let cases = after("// case ").map(|line| parse(&name, line)).collect();
    Theme { name, variants, cases }
}

fn parse(theme: &str, line: &str) -> Case {
    let fail = |what: &str| -> ! { panic!("{theme}.cu: {what}: {line}") };
    let Some((name, rest)) = line.split_once("<<<") else { fail("no launch") };
    let Some((launch, rest)) = rest.split_once(">>>(") else { fail("no arguments") };
    let Some((args, words)) = rest.rsplit_once(')') else { fail("no end of arguments") };
    let launch: Vec<&str> = launch.split(',').map(str::trim).collect();
    let mut case = Case {
        theme: theme.into(),
        name: name.trim().into(),
        grid: dims(launch[0]),
        block: dims(launch[1]),
        shared: launch.get(2).map_or(0, |s| s.parse().unwrap()),
        args: args.split(',').map(str::trim).filter(|a| !a.is_empty()).map(arg).collect(),
        ulp: 0,
        floor: 0.0,
        prints: false,
        reference: None,
    };
    let mut words = words.split_whitespace();
    while let Some(word) = words.next() {
        let mut value = || words.next().unwrap_or_else(|| fail("a word without a value"));
        match word {
            "ulp" => case.ulp = value().parse().unwrap(),
            "abs" => case.floor = value().parse().unwrap(),
            "ref" => case.reference = Some(value().into()),
            "prints" => case.prints = true,
            _ => fail("an unknown word"),
        }
    }
    case
}

fn dims(text: &str) -> [u32; 3] {
    let mut dims = [1; 3];
    for (dim, part) in dims.iter_mut().zip(text.split('x')) {
        *dim = part.parse().unwrap();
    }
    dims
}

fn arg(text: &str) -> Arg {
    let words: Vec<&str> = text.split_whitespace().collect();
    let array = |ty: &str, count: &str, rule: Option<&str>, role| Arg::Array {
        ty: Type::named(ty),
        count: count.parse().unwrap_or_else(|_| panic!("a count: {text}")),
        rule: rule.map(String::from),
        role,
    };
    match words[..] {
        ["in", ty, rule, count] => array(ty, count, Some(rule), Role::In),
        ["inout", ty, rule, count] => array(ty, count, Some(rule), Role::InOut),
        ["out", ty, count] => array(ty, count, None, Role::Out),
        ["scratch", ty, count] => array(ty, count, None, Role::Scratch),
        ["struct", ref fields @ ..] => {
            let fields = fields.chunks(2).map(|f| (Type::named(f[0]), f[1].to_string()));
            Arg::Struct(fields.collect())
        }
        [ty, value] => Arg::Scalar(Type::named(ty), value.into()),
        _ => panic!("no argument: {text}"),
    }
}

impl Theme {
    /// Returns the names of the PTX files.
    pub(crate) fn files(&self) -> Vec<String> {
        self.variants.iter().map(|variant| format!("{}.{variant}.ptx.gz", self.name)).collect()
    }

    /// Returns the number of different kernels that its cases launch.
    pub(crate) fn kernels(&self) -> usize {
        let mut names: Vec<&str> = self.cases.iter().map(Case::kernel).collect();
        names.sort_unstable();
        names.dedup();
        names.len()
    }
}

impl Case {
    /// Returns the kernel's name in the PTX.
    pub(crate) fn kernel(&self) -> &str {
        self.name.split('@').next().unwrap_or_default()
    }

    pub(crate) fn full_name(&self, variant: &str) -> String {
        format!("{}.{variant}:{}", self.theme, self.name)
    }

    /// Returns the path of its compressed PTX.
    pub(crate) fn file(&self, variant: &str) -> PathBuf {
        folder().join("ptx").join(format!("{}.{variant}.ptx.gz", self.theme))
    }

    /// Returns the bytes of an array before the launch.
    pub(crate) fn input(&self, index: usize) -> Vec<u8> {
        match &self.args[index] {
            Arg::Array { ty, count, rule, .. } => {
                inputs::make(*ty, rule.as_deref().unwrap_or("zero"), *count, index as u64 + 1)
            }
            Arg::Scalar(ty, value) => ty.scalar(value),
            Arg::Struct(fields) => inputs::layout(fields),
        }
    }

    /// Returns the indices and types of the compared arrays.
    pub(crate) fn outputs(&self) -> Vec<(usize, Type)> {
        let compared = |(i, arg): (usize, &Arg)| match arg {
            Arg::Array { ty, role: Role::Out | Role::InOut, .. } => Some((i, *ty)),
            _ => None,
        };
        self.args.iter().enumerate().filter_map(compared).collect()
    }
}
