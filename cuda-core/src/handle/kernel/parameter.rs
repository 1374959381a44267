//! Parameters of kernels, and the arguments that fit them.

use crate::protocol::{ParamInfo, ParamType, ScalarKind};

/// The kind of an argument, which is checked against the type in the kernel's PTX.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArgumentKind {
    /// An integer, or an address.
    Integer,
    /// A floating-point number.
    Float,
    /// Bytes without a known type, such as a struct.
    Bytes,
}

impl ArgumentKind {
    /// Returns whether an argument of this kind fits a parameter that the PTX declares as `ty`. Every kind fits a
    /// parameter of plain bits. Compilers declare structs so, and from CUDA 13 on also many numbers.
    pub fn fits(self, ty: ParamType) -> bool {
        use ScalarKind::{Bfloat, Float, Signed, Unsigned};
        match self {
            ArgumentKind::Integer => !matches!(ty.kind(), Float | Bfloat),
            ArgumentKind::Float => !matches!(ty.kind(), Unsigned | Signed),
            ArgumentKind::Bytes => true,
        }
    }
}

/// The position of an argument, and its kind.
#[derive(Clone, Copy)]
pub(super) struct Place {
    at: Span,
    kind: ArgumentKind,
}

/// A byte offset and a size in bytes, in one word: stored and compared at once.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Span(u64);

impl Span {
    #[inline]
    fn new(offset: u32, size: u32) -> Self {
        Self(u64::from(offset) << 32 | u64::from(size))
    }
}

impl Place {
    #[inline]
    pub(super) fn new(offset: u32, size: u32, kind: ArgumentKind) -> Self {
        Self { at: Span::new(offset, size), kind }
    }

    /// The byte offset.
    pub(super) fn start(&self) -> usize {
        (self.at.0 >> 32) as usize
    }

    /// The reason why it does not fit a parameter.
    #[cold]
    pub(super) fn misfit(&self, param: &ParamInfo) -> Option<String> {
        let Place { at: Span(at), kind } = *self;
        let (offset, size) = ((at >> 32) as u32, at as u32);
        let ty = param.ty;
        if param.size != size {
            let advice = advice(param);
            return Some(format!(
                "has type {ty} ({} bytes), the argument has {size}; {advice}",
                param.size
            ));
        }
        if !kind.fits(ty) {
            let given = if kind == ArgumentKind::Float { "a float" } else { "an integer" };
            return Some(format!("has type {ty}, the argument is {given}; {}", advice(param)));
        }
        let advice = "give the struct the alignment that the kernel declares";
        (param.offset != offset)
            .then(|| format!("is at byte {}, the argument at {offset}; {advice}", param.offset))
    }
}

/// Returns an argument that fits the parameter, in words.
#[cold]
fn advice(param: &ParamInfo) -> String {
    let ty = param.ty.to_string();
    match ty.as_str() {
        "f32" | "f64" => format!("pass an `{ty}`: `1.0{ty}`, or `x as {ty}`"),
        "u64" => "pass a `u64` or a buffer".into(),
        "u8" | "u16" | "u32" => format!("pass a `{ty}`: `1{ty}`, or `n as {ty}`"),
        "s8" | "s16" | "s32" | "s64" => {
            let ty = format!("i{}", &ty[1..]);
            format!("pass an `{ty}`: `1{ty}`, or `n as {ty}`")
        }
        _ if matches!(param.ty.kind(), ScalarKind::Float | ScalarKind::Bfloat) => {
            format!("pass floating-point data of {} bytes", param.size)
        }
        _ => format!("pass a value of {} bytes", param.size),
    }
}

/// A parameter, as far as an argument is compared with it.
pub(super) struct Slot {
    at: Span,
    /// Whether it takes an argument, by the argument's kind.
    takes: [bool; 3],
}

impl Slot {
    pub(super) fn new(param: &ParamInfo) -> Self {
        use ArgumentKind::{Bytes, Float, Integer};
        let takes = [Integer, Float, Bytes].map(|kind| kind.fits(param.ty));
        Self { at: Span::new(param.offset, param.size), takes }
    }

    #[inline]
    pub(super) fn takes(&self, place: &Place) -> bool {
        self.at == place.at && self.takes[place.kind as usize]
    }
}
