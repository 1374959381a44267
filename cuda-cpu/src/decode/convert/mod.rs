//! Decodes conversions. `forms` lists the valid ones.

pub(super) mod cvt;
mod forms;
