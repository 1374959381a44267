//! Counters of the data path.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use cuda_lease::wire::{Chunk, Command, Frame, Step, opcode};

/// The kinds of operations that are counted.
pub const OPERATIONS: [&str; 8] =
    ["launch", "write", "read", "copy", "fill", "join", "timestamp", "allocate"];

/// The bytes of a chunk in front of its data.
const CHUNK_HEADER: usize = 16;

/// The index in [`OPERATIONS`] of a command.
#[inline]
fn kind(code: u16) -> Option<usize> {
    Some(match code {
        opcode::LAUNCH | opcode::LAUNCH_WITH | opcode::GRAPH_LAUNCH => 0,
        opcode::MEM_WRITE | opcode::MEM_WRITE_BULK => 1,
        opcode::MEM_READ => 2,
        opcode::MEM_COPY => 3,
        opcode::MEM_FILL => 4,
        opcode::JOIN => 5,
        opcode::TIMESTAMP => 6,
        opcode::MEM_ALLOC | opcode::MEM_ALLOC_IN => 7,
        _ => return None,
    })
}

/// The frames of a batch, counted without atomic operations.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    pub(super) operations: [u64; OPERATIONS.len()],
    pub(super) uploaded: u64,
}

impl Tally {
    /// Counts a frame of a client.
    #[inline]
    pub fn add(&mut self, frame: &Frame<'_>) {
        if let Some(kind) = kind(frame.header.opcode) {
            self.operations[kind] += 1;
        }
        match frame.header.opcode {
            Chunk::OPCODE => self.uploaded += data_bytes(frame),
            opcode::MEM_WRITE => {
                if let Ok(Command::Submit { step: Step::Write { bytes, .. }, .. }) =
                    Command::decode(frame.header.opcode, frame.body)
                {
                    self.uploaded += bytes.len() as u64;
                }
            }
            _ => {}
        }
    }
}

/// The data bytes of a [`Chunk`].
pub(super) fn data_bytes(frame: &Frame<'_>) -> u64 {
    frame.body.len().saturating_sub(CHUNK_HEADER) as u64
}

/// Totals of a lease, or of all leases of a node.
#[derive(Debug, Default)]
pub struct Traffic {
    pub(super) operations: [AtomicU64; OPERATIONS.len()],
    pub(super) failed: AtomicU64,
    pub(super) faults: AtomicU64,
    pub(super) uploaded: AtomicU64,
    pub(super) output: AtomicU64,
}

impl Traffic {
    /// Returns the operations that were passed to workers, in the order of [`OPERATIONS`].
    pub fn operations(&self) -> [u64; OPERATIONS.len()] {
        std::array::from_fn(|kind| self.operations[kind].load(Relaxed))
    }

    /// Returns the operations that failed or were skipped.
    pub fn failed(&self) -> u64 {
        self.failed.load(Relaxed)
    }

    /// Returns the faults of kernels.
    pub fn faults(&self) -> u64 {
        self.faults.load(Relaxed)
    }

    /// Returns the bytes of uploads.
    pub fn uploaded(&self) -> u64 {
        self.uploaded.load(Relaxed)
    }

    /// Returns the bytes of downloads and of outputs of stateless submits.
    pub fn output(&self) -> u64 {
        self.output.load(Relaxed)
    }
}
