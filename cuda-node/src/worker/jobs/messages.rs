//! Messages about stateless submits between supervisor and worker. They never travel over a network.

use bytes::Bytes;
use cuda_core::protocol::Status;
use cuda_lease::{
    internals::message,
    wire::{Hash, ImageKind},
};

message! {
    /// One stateless submit. [`JobInput`] frames with `input_bytes` bytes follow it.
    Job = 0x0710; {
        /// The form of the image.
        kind: ImageKind,
        /// The hash of the image.
        hash: Hash,
        /// The name of the kernel.
        kernel: String,
        /// The number of blocks.
        grid: [u32; 3],
        /// The number of threads of a block.
        block: [u32; 3],
        /// The dynamic shared memory of a block in bytes.
        shared_bytes: u32,
        /// The bytes of the arguments after the pointer to the region.
        arguments: Vec<Bytes>,
        /// The size of the region in bytes; 0 for the smallest one that holds input and output.
        region_bytes: u64,
        /// The number of bytes that are written to the start of the region.
        input_bytes: u64,
        /// The offset of the output in the region.
        output_offset: u64,
        /// The maximum number of bytes of the output.
        max_output: u64,
    }

    /// The next bytes of a job's input.
    JobInput = 0x0711; {
        /// The bytes.
        part: Bytes,
    }

    /// The next bytes of the image that [`NeedImage`] asked for.
    JobImage = 0x0712; {
        /// The number of bytes of the whole image.
        total: u64,
        /// The bytes of this part.
        part: Bytes,
    }

    /// The worker does not have the image of the current job.
    NeedImage = 0x0790; {}

    /// The end of the current job. [`JobOutput`] frames with `output_bytes` bytes follow it.
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

    /// The next bytes of a job's output.
    JobOutput = 0x0792; {
        /// The bytes.
        part: Bytes,
    }
}

/// The maximum number of bytes of input, image or output in one frame.
pub const JOB_PART: usize = 256 << 10;
