//! Sizes and repetitions of the blocks.

use benches::Effort;

pub struct Sizes {
    /// Duration of the kernel in `kernel`.
    pub kernel_nanos: u32,
    /// Duration of each kernel in `forks`.
    pub fork_nanos: u32,
    /// Measurements of both of these blocks.
    pub effort: Effort,
    /// Concurrent tasks, each with its own buffer.
    pub tasks: usize,
    /// Pipelines that each task runs in sequence.
    pub pipelines: usize,
    /// Repetitions of the whole set of tasks.
    pub rounds: usize,
    /// Duration of the kernels beside the heartbeat.
    pub beside_nanos: u32,
    /// Number of these kernels in a measurement.
    pub beside: usize,
    /// Elements of 8 bytes in a chunk that is uploaded, processed and downloaded.
    pub chunk: usize,
    /// Chunks in a measurement. They fit into the device's pool of pinned memory.
    pub chunks: usize,
    /// Duration of the kernel that processes a chunk.
    pub chunk_nanos: u32,
    /// Measurements of the chunks.
    pub chunk_effort: Effort,
    /// Bytes of a vector that is copied.
    pub vector: usize,
    /// Measurements of the vectors.
    pub vector_effort: Effort,
}

pub const GPU: Sizes = Sizes {
    kernel_nanos: 100_000,
    fork_nanos: 200_000,
    effort: Effort { rounds: 40, in_a_row: 25 },
    tasks: 1024,
    pipelines: 20,
    rounds: 9,
    beside_nanos: 10_000_000,
    beside: 128,
    chunk: 1 << 20,
    chunks: 24,
    chunk_nanos: 100_000,
    chunk_effort: Effort { rounds: 10, in_a_row: 2 },
    vector: 64 << 20,
    vector_effort: Effort { rounds: 10, in_a_row: 2 },
};

pub const CPU: Sizes = Sizes {
    effort: Effort { rounds: 5, in_a_row: 5 },
    tasks: 64,
    pipelines: 2,
    rounds: 3,
    beside: 16,
    chunk: 1 << 14,
    chunk_effort: Effort { rounds: 3, in_a_row: 1 },
    vector: 16 << 20,
    vector_effort: Effort { rounds: 3, in_a_row: 1 },
    ..GPU
};
