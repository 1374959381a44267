//! Streams, and the path of a submission.
//!
//! This folder uses [`Device`](super::Device), `runtime` and `order`. `memory`, `kernel` and `recording` use this
//! folder. [`Stream`]'s `submit` takes work with its [`Operand`]s, orders it after earlier uses of the same memory, and
//! passes it to the backend. Work on a stream of a recording goes to a [`Recorder`] instead.
//!
//! # The numbers of a stream
//! Three types represent a stream. Each type stores different numbers of submissions:
//!
//! | type | numbers |
//! |---|---|
//! | [`Stream`], a handle | `sent`: the submissions of this handle, as runs of consecutive numbers |
//! | `order::timeline::Timeline`, in the client | `reserved`: the last one that was passed to the backend |
//! | | `published`: the last one that the backend took |
//! | | `asked`, `awaited`: submissions whose report was requested, or will be |
//! | | `progress.completed`: everything up to this number is known to be complete |
//! | `streams::DriverStream` of `cuda-driver`, in the CUDA backend | `submitted`: the last one that the driver took |
//! | | `passed`: everything up to this number is known to be complete |
//! | | `reports.wanted`, `covered`, `enqueued`: the reports that the client wants, and their checkpoints |
//! | | `reported`: the last number that was reported to the client |

mod allocation;
mod capture_pool;
mod foreign;
mod join;
mod recorder;
#[allow(clippy::module_inception)] // the stream itself, beside the steps of a submission
mod stream;
mod submit;

pub use allocation::Allocation;
pub(crate) use allocation::Operand;
pub use capture_pool::CapturePool;
pub(super) use foreign::submit_foreign_on;
pub use join::{Event, join_parts};
pub use recorder::MAX_RECORDED_BYTES;
pub(crate) use recorder::{LoopResources, Recorder, UploadSlot, UploadSource};
pub use stream::{
    Credit, RecordedName, Stream, Window, cancel, check_not_lost, lend_branch, name_recorded,
    report_before_others, request_report,
};
pub(super) use stream::{MemoryRequest, check_pool};
pub(crate) use submit::{Attached, Keep, Ordered};
pub(super) use submit::{trace_launched, trace_replayed};
