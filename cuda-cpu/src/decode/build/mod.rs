//! The state while one function is decoded: its frame, its operands and the ops that were emitted.
//!
//! A [`Builder`](builder::Builder) decodes one function. The other files and folders of `decode` use it, one for each
//! family of instructions.

pub(super) mod builder;
pub(super) mod frame;
pub(super) mod metadata;
