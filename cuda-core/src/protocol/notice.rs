//! Notices: reports of a backend to its client.

use super::{Error, StreamId, Ticket};

/// A report from a backend. [`Control::Want`](super::Control::Want) requests [`Progress`](Notice::Progress). The other
/// notices need no request.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Notice {
    /// The progress of a stream. Cumulative: a later notice replaces an earlier one.
    ///
    /// Failures of the submissions that it covers, and of their predecessors on other streams, were reported before.
    Progress {
        /// The stream.
        stream: StreamId,
        /// The number of the last accepted submission. The host memory that uploads up to this number read may be
        /// changed again.
        accepted: u64,
        /// The number of the last complete submission. Submissions up to this number have run or were skipped, and the
        /// bytes of their downloads are visible.
        complete: u64,
    },
    /// A submission failed, or was skipped because of an earlier failure. Its write set is poisoned. Wakes no task: the
    /// progress that covers it follows.
    Failed {
        /// The submission.
        ticket: Ticket,
        /// The root cause.
        error: Error,
    },
    /// A kernel faulted. Submissions that have not begun are skipped and fail with this error, until the device is
    /// reset. Wakes no task.
    Faulted {
        /// The fault.
        error: Error,
    },
    /// Text that a kernel printed, sent before the progress that covers the launch. Wakes no task. A GPU's driver
    /// writes such text to standard output itself, so the CUDA backend sends none.
    Output {
        /// The output of one call of `printf`, or of several.
        text: String,
    },
    /// The device is lost permanently: submissions that are not complete will never complete.
    Lost {
        /// The cause.
        error: Error,
    },
}
