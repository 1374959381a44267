//! The types of a kernel's parameters, read from mangled names, and compared with declarations in Rust.
//!
//! PTX states a pointer as a number of 64 bits. A C++ compiler encodes the types of the parameters in the name of a
//! kernel, by the Itanium ABI. For a kernel that is `extern "C"`, a second compilation finds them: see [`PROBE`].
//! Nothing is returned for a name that may not state the types, such as that of a parameter `T::type`. So a check may
//! be left out but is never wrong.

use std::fmt;

use cpp_demangle::{DemangleNodeType, DemangleOptions, DemangleWrite, Symbol};

/// The type of a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CType {
    /// `void`, behind a pointer.
    Void,
    /// `bool`.
    Bool,
    /// An integer or a character.
    Integer {
        /// The name in C.
        name: &'static str,
        /// The size in bytes.
        size: u32,
    },
    /// `__half`, `float` or `double`.
    Float {
        /// The name in C.
        name: &'static str,
        /// The size in bytes.
        size: u32,
    },
    /// `__nv_bfloat16`.
    BFloat16,
    /// A pointer.
    Pointer {
        /// The type that it points to.
        to: Box<CType>,
        /// Whether that type is `const`.
        is_const: bool,
    },
    /// A type that is none of these: a struct, a union, an enumeration, an array or a reference.
    Other(String),
}

impl fmt::Display for CType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CType::Void => f.write_str("void"),
            CType::Bool => f.write_str("bool"),
            CType::Integer { name, .. } | CType::Float { name, .. } => f.write_str(name),
            CType::BFloat16 => f.write_str("__nv_bfloat16"),
            CType::Pointer { to, is_const } => {
                let space = if matches!(**to, CType::Pointer { .. }) { "" } else { " " };
                match (is_const, &**to) {
                    (true, CType::Pointer { .. }) => write!(f, "{to}const *"),
                    (true, _) => write!(f, "const {to}{space}*"),
                    (false, _) => write!(f, "{to}{space}*"),
                }
            }
            CType::Other(name) => f.write_str(name),
        }
    }
}

/// The name of a function template. The second compilation adds it behind the source, with the type of each kernel as
/// its argument. The mangled names of its instances therefore hold the types.
pub const PROBE: &str = "cuda_nvrtc_signature";

/// Returns the types of the parameters that a mangled name of a kernel encodes. Returns `None` if the name is not
/// mangled or has a form that the parser does not know.
///
/// ```
/// let types = cuda_nvrtc::signature::of_kernel("_Z5saxpyPKfPffj").unwrap_or_default();
/// let types: Vec<_> = types.iter().map(ToString::to_string).collect();
/// assert_eq!(types, ["const float *", "float *", "float", "unsigned int"]);
/// ```
pub fn of_kernel(name: &str) -> Option<Vec<CType>> {
    let text = text(name)?;
    let list = text.strip_suffix(')')?;
    let mut depth = 1;
    let open = list.rfind(|c| {
        depth += i32::from(c == ')') - i32::from(c == '(');
        depth == 0
    })?;
    types(&list[open + 1..])
}

/// Returns the types of the parameters that the mangled name of an instance of [`PROBE`] encodes.
pub fn of_probe(name: &str) -> Option<Vec<CType>> {
    let text = text(name)?;
    let argument = text.strip_prefix("void ")?.strip_prefix(PROBE)?.strip_prefix("<void (*)(")?;
    types(argument.strip_suffix(")>()")?)
}

/// Returns the types of the parameters of the kernel `entry` of a PTX text: from a comment that this crate wrote before
/// the text, or from the mangled name. Returns `None` if neither states them.
pub fn of_entry(ptx: &str, entry: &str) -> Option<Vec<CType>> {
    match crate::ptx::probe_of(ptx, entry) {
        Some(probe) => of_probe(probe),
        None => of_kernel(entry),
    }
}

/// The maximum length of a text in bytes. References to earlier parts let a name of 240 bytes stand for gigabytes.
const MAX_TEXT: usize = 1 << 16;

/// `long` has 4 bytes in Windows.
const LONG: u32 = if cfg!(windows) { 4 } else { 8 };

/// Follows a type that the text states in place of a parameter of the template.
const OF_PARAMETER: char = '\0';

/// The text of a mangled function, such as `void axpy<float>(float const*, float*)`: `cpp_demangle` keeps the parsed
/// types private. `None` if the types in the text may be others than those of the function.
fn text(name: &str) -> Option<String> {
    // The text of a parameter pack of pointers has one `*`, behind the last type.
    (name.starts_with("_Z") && !name.contains("Dp")).then_some(())?;
    let mut text = Text::default();
    let symbol = Symbol::new(name).ok()?;
    symbol.structured_demangle(&mut text, &DemangleOptions::new()).ok()?;
    // `T::type`, `Box<T>::type` and `decltype (..)` may be any type.
    let is_any = ["\0::", ">::", "decltype "].iter().any(|any| text.written.contains(any));
    (!is_any).then(|| text.written.replace(OF_PARAMETER, ""))
}

#[derive(Default)]
struct Text {
    written: String,
    /// The parts of the name that are being written, outermost first.
    nodes: Vec<DemangleNodeType>,
}

impl DemangleWrite for Text {
    fn push_demangle_node(&mut self, node: DemangleNodeType) {
        self.nodes.push(node);
    }

    fn write_string(&mut self, part: &str) -> fmt::Result {
        self.written.push_str(part);
        if self.written.len() > MAX_TEXT { Err(fmt::Error) } else { Ok(()) }
    }

    fn pop_demangle_node(&mut self) {
        if self.nodes.pop() == Some(DemangleNodeType::TemplateParam) {
            self.written.push(OF_PARAMETER);
        }
    }
}

/// The types of a list of parameters.
fn types(list: &str) -> Option<Vec<CType>> {
    let (mut types, mut text) = (Vec::new(), String::new());
    let (mut angles, mut rounds) = (0u32, 0u32);
    for c in list.chars() {
        match c {
            '<' => angles += 1,
            '>' => angles = angles.checked_sub(1)?,
            // Template arguments decide the size of a class, so its name alone does not identify the type.
            _ if angles > 0 => {}
            ',' if rounds == 0 => types.push(qualified(std::mem::take(&mut text).trim())?.0),
            c => {
                rounds = (rounds + u32::from(c == '(')).checked_sub(u32::from(c == ')'))?;
                text.push(c);
            }
        }
    }
    if !list.is_empty() {
        types.push(qualified(text.trim())?.0);
    }
    (angles == 0 && rounds == 0).then_some(types)
}

/// A type, and whether it is `const`.
fn qualified(text: &str) -> Option<(CType, bool)> {
    let mut ty = text;
    while let Some((rest, "const" | "volatile" | "restrict")) = ty.rsplit_once(' ') {
        ty = rest;
    }
    let is_const = text[ty.len()..].contains("const");
    let ty = if ty.ends_with(')') {
        CType::Other("a function".into())
    } else if let Some(to) = ty.strip_suffix('*') {
        let (to, is_const) = qualified(to)?;
        CType::Pointer { to: to.into(), is_const }
    } else if let Some(to) = ty.strip_suffix('&') {
        CType::Other(format!("{} &", qualified(to.trim_end_matches('&'))?.0))
    } else if let Some((of, count)) = ty.split_once(" (*) [") {
        let (of, is_const) = qualified(of)?;
        CType::Pointer { to: CType::Other(format!("{of}[{count}")).into(), is_const }
    } else {
        named(ty)?
    };
    Some((ty, is_const))
}

/// A type of C, a class that has a counterpart in Rust, or another class.
fn named(name: &str) -> Option<CType> {
    let integer = |name, size| CType::Integer { name, size };
    let float = |name, size| CType::Float { name, size };
    Some(match name {
        "void" => CType::Void,
        "bool" => CType::Bool,
        "char" => integer("char", 1),
        "signed char" => integer("signed char", 1),
        "unsigned char" => integer("unsigned char", 1),
        "short" => integer("short", 2),
        "unsigned short" => integer("unsigned short", 2),
        "int" => integer("int", 4),
        "unsigned int" => integer("unsigned int", 4),
        "long" => integer("long", LONG),
        "unsigned long" => integer("unsigned long", LONG),
        "long long" => integer("long long", 8),
        "unsigned long long" => integer("unsigned long long", 8),
        "float" => float("float", 4),
        "double" => float("double", 8),
        "__half" => float("__half", 2),
        "__nv_bfloat16" => CType::BFloat16,
        _ => {
            let is_of_name = |c: char| c.is_alphanumeric() || "_:$".contains(c);
            name.chars().all(is_of_name).then(|| CType::Other(name.to_owned()))?
        }
    })
}

/// The declaration of an argument in Rust, as far as it is compared with the type in C.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Declared {
    /// A slice.
    Buffer {
        /// The type of its elements, if it is a number.
        element: Option<Scalar>,
        /// Whether it is `&mut`.
        written: bool,
    },
    /// A number, by value.
    Scalar(Scalar),
    /// Any other value of this size in bytes, if it is known.
    Value(Option<u32>),
}

/// A type of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scalar {
    /// Its kind.
    pub kind: NumberKind,
    /// Its size in bytes.
    pub size: u32,
}

/// A kind of numbers. Signed and unsigned integers are one kind, as in PTX.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NumberKind {
    /// Integers, characters and `bool`.
    Integer,
    /// IEEE floats.
    Float,
    /// bfloat16.
    BFloat,
}

impl CType {
    /// Returns the reason why the declaration does not fit this type, as the end of a sentence about the argument.
    /// Returns `None` if it fits, or if the type says too little: `void *`, structs, and vectors such as `float4`.
    ///
    /// `&[T]` does not fit a pointer to a type that is not `const`, because the kernel may write there.
    pub fn misfit(&self, declared: Declared) -> Option<String> {
        match (self, declared) {
            (CType::Pointer { to, is_const }, Declared::Buffer { element, written }) => {
                element_misfit(to, element, written).or_else(|| {
                    (!is_const && !written).then(|| {
                        format!("is only read; write `&mut [T]`, or `const {to} *` in the source")
                    })
                })
            }
            (CType::Pointer { .. }, Declared::Scalar(_)) => {
                Some("is passed by value; write `&[T]` or `&mut [T]`".to_owned())
            }
            (_, Declared::Buffer { .. }) => {
                let number = self.number()?;
                Some(format!("is a buffer; write `{}`", rust_name(self, number)))
            }
            (_, Declared::Scalar(given)) => {
                let number = self.number()?;
                (number != given)
                    .then(|| format!("is another type; write `{}`", rust_name(self, number)))
            }
            (_, Declared::Value(_)) => None,
        }
    }

    /// The type as a number.
    fn number(&self) -> Option<Scalar> {
        let number = |kind, size| Some(Scalar { kind, size });
        match *self {
            CType::Bool => number(NumberKind::Integer, 1),
            CType::Integer { size, .. } => number(NumberKind::Integer, size),
            CType::Float { size, .. } => number(NumberKind::Float, size),
            CType::BFloat16 => number(NumberKind::BFloat, 2),
            CType::Void | CType::Pointer { .. } | CType::Other(_) => None,
        }
    }
}

/// The reason why the elements of a buffer are not those that a pointer points to.
fn element_misfit(to: &CType, element: Option<Scalar>, written: bool) -> Option<String> {
    let (want, have) = (to.number()?, element?);
    let form = if written { "&mut " } else { "&" };
    (want != have)
        .then(|| format!("has elements of another type; write `{form}[{}]`", rust_name(to, want)))
}

/// The name of a number in Rust.
fn rust_name(ty: &CType, number: Scalar) -> String {
    let bits = number.size * 8;
    match (number.kind, ty) {
        (NumberKind::BFloat, _) => "bf16".to_owned(),
        (NumberKind::Float, _) => format!("f{bits}"),
        (NumberKind::Integer, CType::Integer { name, .. }) if !is_unsigned(name) => {
            format!("i{bits}")
        }
        (NumberKind::Integer, _) => format!("u{bits}"),
    }
}

/// Whether an integer of C is unsigned. A `char` is a byte.
fn is_unsigned(name: &str) -> bool {
    name.starts_with("unsigned") || name == "char"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(types: Option<Vec<CType>>) -> Option<String> {
        let types: Vec<_> = types?.iter().map(ToString::to_string).collect();
        Some(types.join(", "))
    }

    #[test]
    fn parameters_are_read() {
        for (name, types) in [
            ("_Z5saxpyPKfPffj", "const float *, float *, float, unsigned int"),
            ("_Z5emptyv", ""),
            ("_Z1kPKfS0_Pf", "const float *, const float *, float *"),
            ("_Z1kPiS_S_", "int *, int *, int *"),
            ("_Z1kPK6__halfP13__nv_bfloat16", "const __half *, __nv_bfloat16 *"),
            ("_Z1kP6float4S_S0_", "float4 *, float4, float4 *"),
            ("_Z4axpyIfEvPKT_PS0_S0_j", "const float *, float *, float, unsigned int"),
            ("_Z4axpyILi4EdEvPT0_", "double *"),
            ("_ZN2ns5saxpyEPKhPb", "const unsigned char *, bool *"),
            ("_ZL5localPVfPKx", "float *, const long long *"),
            ("_Z1kPPKfPKPf", "const float **, float *const *"),
            ("_Z1kPN2ns3VecE3BoxIfE", "ns::Vec *, Box"),
            ("_Z1kPvPKvRi", "void *, const void *, int &"),
            ("_Z3twoPA4_fPA4_KfPFffE", "float[4] *, const float[4] *, a function"),
        ] {
            assert_eq!(shown(of_kernel(name)).as_deref(), Some(types), "{name}");
        }
    }

    #[test]
    fn probe_names_hold_the_type_of_a_kernel() {
        let name = "_Z20cuda_nvrtc_signatureIPFvPKfPffjEEvv";
        let types = "const float *, float *, float, unsigned int";
        assert_eq!(shown(of_probe(name)).as_deref(), Some(types));
        assert_eq!(of_probe("_Z5saxpyPKf"), None);
        assert_eq!(of_probe("_Z20cuda_nvrtc_signatureIPfEvv"), None);
    }

    #[test]
    fn unknown_forms_give_no_types() {
        for name in [
            "saxpy", "_Z", "_Z5sax", "_Z1kPq", "_Z1kS_", "_Z1kS5_", "_Z1kT_", "_Z1kDpf", "_Z1kP",
            "_Z9é", "_Z1kA_f",
        ] {
            assert!(of_kernel(name).is_none_or(|types| types.is_empty()), "{name}");
        }
        assert_eq!(of_kernel(&format!("_Z1k{}f", "P".repeat(1000))), None);
        assert_eq!(of_kernel(&format!("_Z{}k", "9".repeat(40))), None);
    }

    #[test]
    fn types_that_the_name_does_not_state_give_none() {
        for name in [
            "_Z1kI3FooEvPNT_4typeE",
            "_Z1kIfEvPN3BoxIT_E4typeE",
            "_Z1kIfEvPDTcl1fEE",
            "_Z1kIJffEEvDpPT_",
        ] {
            assert_eq!(of_kernel(name), None, "{name}");
        }
    }

    /// Each type is a function that takes the type before it twice.
    #[test]
    fn name_of_a_huge_text_gives_no_types() {
        let doubled = |types: &str| {
            let ids = std::iter::once(String::new()).chain(types.chars().map(String::from));
            let types: String = ids.map(|id| format!("FvS{id}_S{id}_E")).collect();
            of_kernel(&format!("_Z1kPf{types}"))
        };
        assert_eq!(doubled("01234").map(|types| types.len()), Some(7));
        assert_eq!(doubled("0123456789ABCDEFGHIJKLMNO"), None);
    }

    const fn number(kind: NumberKind, size: u32) -> Scalar {
        Scalar { kind, size }
    }

    const F32: Scalar = number(NumberKind::Float, 4);
    const I32: Scalar = number(NumberKind::Integer, 4);
    const U8: Scalar = number(NumberKind::Integer, 1);
    const BF16: Scalar = number(NumberKind::BFloat, 2);

    fn buffer(element: Scalar, written: bool) -> Declared {
        Declared::Buffer { element: Some(element), written }
    }

    fn misfit(mangled: &str, declared: Declared) -> Option<String> {
        of_kernel(&format!("_Z1k{mangled}")).unwrap()[0].misfit(declared)
    }

    #[test]
    fn matching_declarations_fit() {
        for (ty, declared) in [
            ("PKf", buffer(F32, false)),
            ("PKf", buffer(F32, true)),
            ("Pf", buffer(F32, true)),
            ("PKj", buffer(I32, false)),
            ("PKb", buffer(U8, false)),
            ("P13__nv_bfloat16", buffer(BF16, true)),
            ("PKv", buffer(F32, false)),
            ("PK6float4", buffer(F32, false)),
            ("PK5Mixed", Declared::Buffer { element: None, written: false }),
            ("j", Declared::Scalar(I32)),
            ("5Mixed", Declared::Value(Some(8))),
            ("5Mixed", Declared::Scalar(F32)),
        ] {
            assert_eq!(misfit(ty, declared), None, "{ty} {declared:?}");
        }
    }

    #[test]
    fn other_types_do_not_fit() {
        for (ty, declared, why) in [
            ("PKd", buffer(F32, false), "has elements of another type; write `&[f64]`"),
            ("Ph", buffer(F32, true), "has elements of another type; write `&mut [u8]`"),
            ("PKi", buffer(F32, false), "has elements of another type; write `&[i32]`"),
            ("PK6__half", buffer(BF16, false), "has elements of another type; write `&[f16]`"),
            (
                "Pf",
                buffer(F32, false),
                "is only read; write `&mut [T]`, or `const float *` in the source",
            ),
            (
                "Pv",
                buffer(F32, false),
                "is only read; write `&mut [T]`, or `const void *` in the source",
            ),
            (
                "P5Mixed",
                Declared::Buffer { element: None, written: false },
                "is only read; write `&mut [T]`, or `const Mixed *` in the source",
            ),
            ("Pf", Declared::Scalar(I32), "is passed by value; write `&[T]` or `&mut [T]`"),
            ("y", buffer(F32, false), "is a buffer; write `u64`"),
            ("f", Declared::Scalar(I32), "is another type; write `f32`"),
        ] {
            assert_eq!(misfit(ty, declared).as_deref(), Some(why), "{ty} {declared:?}");
        }
    }
}
