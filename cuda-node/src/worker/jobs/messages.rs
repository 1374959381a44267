//! Messages about stateless submits between supervisor and worker. They never travel over a network.

use bytes::Bytes;
use cuda_core::protocol::Status;
use cuda_lease::internals::message;

message! {
    /// The next bytes of the input of the current job, or of its output.
    JobPart = 0x0711; {
        /// The bytes.
        part: Bytes,
    }

    /// The worker does not have the image of the current job.
    NeedImage = 0x0790; {}

    /// The end of the current job. [`JobPart`] frames with `output_bytes` bytes follow it.
    JobDone = 0x0791; {
        /// The status.
        status: Status,
        /// The error in words, or the text that the kernel printed.
        text: String,
        /// The number of bytes of the output.
        output_bytes: u64,
        /// The time from the submission of the input and the launch to their completion, in nanoseconds. 0 for a job that failed.
        device_nanos: u64,
        /// The device memory of the lease in use, in bytes.
        memory: u64,
    }
}

/// The maximum number of bytes of an input or output in one frame.
pub const JOB_PART: usize = 256 << 10;
