//! Types of the values in registers and in memory, and their arithmetic. Uses only `lanes`.

pub(crate) mod float;
pub(crate) mod float_two;
pub(crate) mod ftz;
pub(crate) mod int;
pub(crate) mod lane;
pub(crate) mod nan;
pub(crate) mod narrow;
pub(crate) mod rounding;
pub(crate) mod stored;
