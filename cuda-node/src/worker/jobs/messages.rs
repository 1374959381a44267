//! Messages about stateless submits between supervisor and worker. They never travel over a network.
//!
//! Each job is the client's `Submit`, without token and image, and the raw
//! bytes of its input. The answer is [`JobDone`] and the raw bytes of the output. If the worker does not have the image, it
//! first answers with [`Status::NotFound`], and the supervisor sends the length of the image as a `u64` and its raw bytes.

use cuda_core::protocol::Status;
use cuda_lease::internals::message;

message! {
    /// The end of the current job. The output follows.
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
