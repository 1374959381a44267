//! Parameters of kernels, and the arguments that fit them.

use crate::protocol::{ParamInfo, ParamType, ScalarKind};

/// The kind of an argument, as far as the kernel's PTX states it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArgumentKind {
    /// An integer, or an address.
    Integer,
    /// A floating-point number.
    Float,
    /// Bytes that may be anything: a struct.
    Bytes,
}

impl ArgumentKind {
    /// Whether it can stand for a parameter that the PTX declares as `ty`. Compilers declare structs, and from
    /// CUDA 13 on many numbers, as plain bits, which anything fits.
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
    pub(super) offset: u32,
    pub(super) size: u32,
    pub(super) kind: ArgumentKind,
}

impl Place {
    /// The reason why it does not fit a parameter.
    #[cold]
    pub(super) fn misfit(&self, param: &ParamInfo) -> Option<String> {
        let Place { offset, size, kind } = *self;
        let ty = param.ty;
        if param.size != size {
            return Some(format!("is a {ty} of {} bytes, the argument has {size}", param.size));
        }
        if !kind.fits(ty) {
            let given = if kind == ArgumentKind::Float { "a float" } else { "an integer" };
            return Some(format!("is a {ty}, the argument is {given}"));
        }
        let advice = "align the struct as the kernel's own is";
        (param.offset != offset)
            .then(|| format!("stands at byte {}, the argument at {offset}; {advice}", param.offset))
    }
}

/// A parameter, as far as an argument is compared with it.
pub(crate) struct Slot {
    offset: u32,
    size: u32,
    takes_integers: bool,
    takes_floats: bool,
}

impl Slot {
    pub(crate) fn new(param: &ParamInfo) -> Self {
        Self {
            offset: param.offset,
            size: param.size,
            takes_integers: ArgumentKind::Integer.fits(param.ty),
            takes_floats: ArgumentKind::Float.fits(param.ty),
        }
    }

    #[inline]
    pub(super) fn takes(&self, place: &Place) -> bool {
        let kind = match place.kind {
            ArgumentKind::Integer => self.takes_integers,
            ArgumentKind::Float => self.takes_floats,
            ArgumentKind::Bytes => true,
        };
        kind && self.size == place.size && self.offset == place.offset
    }
}
