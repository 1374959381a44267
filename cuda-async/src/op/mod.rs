//! Device operations: the steps that submit work ([`Submit`]), and the value that holds them ([`Op`]).
//!
//! To write an operation of your own, implement [`Submit`] for its steps and wrap them in [`Op`]. To take one as an
//! argument, write `impl DeviceOp<Output = T>`, or [`IntoDeviceOp`] to take tuples, vectors and results of operations
//! too.

// This folder holds the traits that every combinator and every custom operation implements. It uses `context`
// only. `run` drives the steps, and `ops`, `memory` and `kernel` implement them. A typical call goes from
// `Submit::submit` to `ExecutionContext::enqueue`.

mod lazy_arg;
mod operation;
mod span;
mod submit;

pub use lazy_arg::{LazyArg, Ready};
pub use operation::{Fallible, IntoDeviceOp, Op};
pub(crate) use span::OpSpan;
pub use submit::{Submit, Submitted, poll_stored};
