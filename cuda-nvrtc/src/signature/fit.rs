//! Compares the type of a parameter in C with a declaration in Rust.

use super::CType;

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
    /// Returns the reason why the declaration does not fit this type, as the end of a sentence about the argument. Returns
    /// `None` if it fits, or if the type says too little: `void *`, structs, and vectors such as `float4`.
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
    use crate::signature::of_kernel;

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
