//! `cvt`: conversions between the types in `number`. `decode::alu` selects the handlers.

pub(crate) mod cvt;
pub(crate) mod forms;
pub(crate) mod from_int;
pub(crate) mod narrow;
