//! Arguments of kernels: the forms in which they are passed, and the buffers that come back.

pub(crate) mod arc_buffer;
pub(super) mod argument;
pub(crate) mod buffer_form;
pub(super) mod param;
pub(super) mod typed_args;
