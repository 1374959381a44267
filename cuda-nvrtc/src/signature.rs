//! The types of a kernel's parameters, read from mangled names.
//!
//! PTX states a pointer as a number of 64 bits. A C++ compiler encodes the types of the parameters in the name of a kernel, by
//! the Itanium ABI. For a kernel that is `extern "C"`, a second compilation finds them: see [`PROBE`]. Nothing is returned
//! for a name that may not state the types, such as that of a parameter `T::type`. So a check may be left out but is never
//! wrong.

mod demangle;
mod fit;

use std::fmt;

pub use fit::{Declared, NumberKind, Scalar};

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

/// The name of a function template. The second compilation adds it behind the source, with the type of each kernel as its
/// argument. The mangled names of its instances therefore hold the types.
pub const PROBE: &str = "cuda_nvrtc_signature";

/// Returns the types of the parameters that a mangled name of a kernel encodes. Returns `None` if the name is not mangled
/// or has a form that the parser does not know.
///
/// ```
/// let types = cuda_nvrtc::signature::of_kernel("_Z5saxpyPKfPffj").unwrap_or_default();
/// let types: Vec<_> = types.iter().map(ToString::to_string).collect();
/// assert_eq!(types, ["const float *", "float *", "float", "unsigned int"]);
/// ```
pub fn of_kernel(name: &str) -> Option<Vec<CType>> {
    demangle::parameters(name)
}

/// Returns the types of the parameters that the mangled name of an instance of [`PROBE`] encodes.
pub fn of_probe(name: &str) -> Option<Vec<CType>> {
    demangle::probed(name, PROBE)
}

/// Returns the types of the parameters of the kernel `entry` of a PTX text: from a comment that this crate wrote before the
/// text, or from the mangled name. Returns `None` if neither states them.
pub fn of_entry(ptx: &str, entry: &str) -> Option<Vec<CType>> {
    match crate::ptx::probe_of(ptx, entry) {
        Some(probe) => of_probe(probe),
        None => of_kernel(entry),
    }
}
