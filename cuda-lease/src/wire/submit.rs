//! Blobs, and the stateless submit.

use bytes::Bytes;
use cuda_core::protocol::Status;

use super::{Hash, ImageKind, codec::message, opcode};

message! {
    /// The first frame of a stream that brings the bytes of a blob. The bytes follow it without frames, and end with the
    /// stream. The reply is an empty frame with the opcode of the request and [`REPLY`](opcode::REPLY).
    PutBlob = opcode::PUT_BLOB; {
        /// The lease.
        lease: u64,
        /// Its token.
        token: Bytes,
        /// The BLAKE3 hash of the bytes.
        hash: Hash,
        /// Their number.
        bytes: u64,
    }

    /// Runs one kernel in the region of a lease, and returns bytes of the region. It has a stream of its own. If the
    /// node lacks the image, it refuses with [`Status::NotFound`], and the client sends [`PutBlob`] first.
    Submit = opcode::SUBMIT; {
        /// The lease.
        lease: u64,
        /// Its token.
        token: Bytes,
        /// The form of the image.
        kind: ImageKind,
        /// The hash of the image.
        hash: Hash,
        /// The image, if it travels with the request.
        image: Option<Bytes>,
        /// The name of the kernel.
        kernel: String,
        /// The number of blocks.
        grid: [u32; 3],
        /// The number of threads of a block.
        block: [u32; 3],
        /// The dynamic shared memory of a block in bytes.
        shared_bytes: u32,
        /// The bytes of the arguments behind the pointer of the region.
        arguments: Vec<Bytes>,
        /// Bytes that are written to the start of the region first.
        input: Bytes,
        /// The offset of the output in the region.
        output_offset: u64,
        /// The maximum number of bytes of the output.
        max_output: u64,
    }

    /// The reply to [`Submit`].
    Submitted = opcode::SUBMIT | opcode::REPLY; {
        /// [`Status::Ok`], or the step that failed.
        status: Status,
        /// The error in words, or the text that the kernel printed.
        text: String,
        /// The output.
        output: Bytes,
    }
}
