//! Streams, and the path of a submission.
//!
//! Uses [`Device`](super::Device), `runtime` and `order`; `memory`, `kernel` and `recording` use it. Work comes in with its
//! [`Operand`]s through [`Stream`]'s `submit`, which orders it after earlier uses of the same memory and hands it to the
//! backend. Work on a stream of a recording goes to a [`Recorder`] instead.

mod allocate;
mod allocation;
mod credit;
mod event;
mod join;
mod lending;
mod recorder;
mod sent;
#[allow(clippy::module_inception)] // the stream itself, beside the steps of a submission
mod stream;
mod submit;
pub(super) mod trace;
mod turns;

pub use allocation::Allocation;
pub(crate) use allocation::Operand;
pub use event::Event;
pub use recorder::MAX_RECORDED_BYTES;
pub(crate) use recorder::{Recorder, UploadSource};
pub use stream::Stream;
pub(crate) use submit::Keep;
pub(crate) use turns::Turns;
