//! `cvt`: conversions between the types in `number`. `decode::convert` selects the handlers.

pub(crate) mod cvt;
pub(crate) mod from_int;
pub(crate) mod modifiers;
pub(crate) mod narrow;
