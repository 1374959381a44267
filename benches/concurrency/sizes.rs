//! How much of everything.

use benches::Effort;

pub struct Sizes {
    /// How long the kernel of `kernel` takes.
    pub kernel_nanos: u32,
    /// How long each kernel of `forks` takes.
    pub fork_nanos: u32,
    /// Of both of these.
    pub effort: Effort,
    /// Tasks that are alive at the same time, each with a buffer of its own.
    pub tasks: usize,
    /// Pipelines that each of them runs, one after the other.
    pub pipelines: usize,
    /// Times that all tasks start and end.
    pub rounds: usize,
    /// How long the kernels beside the heartbeat take.
    pub beside_nanos: u32,
    /// How many of them are awaited in a measurement.
    pub beside: usize,
    /// Elements of 8 bytes in a chunk that is uploaded, computed with and downloaded.
    pub chunk: usize,
    /// Chunks of a measurement: they fit into the pinned memory that a device keeps.
    pub chunks: usize,
    /// How long the kernel takes that computes with a chunk.
    pub chunk_nanos: u32,
    /// Of the chunks.
    pub chunk_effort: Effort,
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
};

pub const CPU: Sizes = Sizes {
    effort: Effort { rounds: 5, in_a_row: 5 },
    tasks: 64,
    pipelines: 2,
    rounds: 3,
    beside: 16,
    chunk: 1 << 14,
    chunk_effort: Effort { rounds: 3, in_a_row: 1 },
    ..GPU
};
