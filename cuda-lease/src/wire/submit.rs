//! Blobs, and the stateless submit.

use bytes::Bytes;
use cuda_core::protocol::Status;

use super::{Hash, ImageKind, TraceContext, codec::message, opcode};

message! {
    /// The first frame of a stream that carries the bytes of a blob. They follow the frame as raw bytes, without
    /// headers, up to the end of the stream. The reply is an empty frame with the opcode of the request and
    /// [`REPLY`](opcode::REPLY).
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

    /// Runs one kernel in the region of a lease, and returns bytes of the region. It has a stream of its own. The input
    /// follows the frame as raw bytes. If the node does not have the image, it refuses with [`Status::NotFound`]; the
    /// client repeats the request with the image, or sends [`PutBlob`] first.
    ///
    /// Before the launch, the node writes the input to the start of the region and zeros to the rest. The output
    /// therefore depends only on the request, and a request can be repeated. The requests of a lease run one after the
    /// other.
    Submit = opcode::SUBMIT; {
        /// The lease.
        lease: u64,
        /// Its token.
        token: Bytes,
        /// The form of the image.
        kind: ImageKind,
        /// The hash of the image.
        hash: Hash,
        /// The image, if it travels with the request. At most [`IMAGE_LIMIT`](Self::IMAGE_LIMIT) bytes.
        image: Option<Bytes>,
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
        /// The size of the region in bytes; 0 for the smallest one that holds input and output. The lease keeps the
        /// region until a request states another size.
        region_bytes: u64,
        /// The number of bytes of the input, at most [`INPUT_LIMIT`](Self::INPUT_LIMIT).
        input_bytes: u64,
        /// The offset of the output in the region.
        output_offset: u64,
        /// The maximum number of bytes of the output. The output ends at the end of the region, and has at most
        /// [`OUTPUT_LIMIT`](Self::OUTPUT_LIMIT) bytes.
        max_output: u64,
    } + {
        /// The span of the client that the submit belongs to.
        trace: TraceContext = TraceContext::TAG,
    }

    /// The reply to [`Submit`].
    Submitted = opcode::SUBMIT | opcode::REPLY; {
        /// [`Status::Ok`], or the step that failed.
        status: Status,
        /// The error in words, or the text that the kernel printed.
        text: String,
        /// The output, if it has at most [`INLINE_LIMIT`](Self::INLINE_LIMIT) bytes.
        output: Bytes,
        /// The number of bytes of a longer output. They follow the frame as raw bytes, up to the end of the stream.
        following_bytes: u64,
    }
}

impl Submit {
    /// The maximum number of bytes of an image inside of the frame. A longer one is sent with [`PutBlob`].
    pub const IMAGE_LIMIT: usize = 512 << 10;

    /// The maximum number of bytes of the input: 64 MiB.
    pub const INPUT_LIMIT: u64 = 64 << 20;

    /// The maximum number of bytes of the output: 64 MiB.
    pub const OUTPUT_LIMIT: u64 = 64 << 20;
}

impl Submitted {
    /// The maximum number of bytes of an output inside of the frame.
    pub const INLINE_LIMIT: usize = 512 << 10;
}
