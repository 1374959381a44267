//! Checked device memory.
//!
//! This is the lowest layer of the crate. Every other folder may use it.
//!
//! Addresses are synthetic 64-bit numbers, unrelated to host pointers. Each allocation is followed by a guard gap, and
//! addresses are never reused. So an invalid access hits either unallocated addresses or the range of a freed
//! allocation, and its error says which.
//!
//! # Which code may access which bytes, and when
//!
//! 1. The table (address to allocation) is behind a lock. Allocations are shared by `Arc`. A holder may access the
//!    bytes, even after `free` has removed the allocation from the table. A running kernel holds the allocations that
//!    it has accessed until the launch ends. So a free during a kernel is a bug of the program, but never a dangling
//!    pointer here. If a kernel frees memory itself, a worker drops the allocation and all pointers into it
//!    immediately, or before it runs another block's turn.
//! 2. Device bytes are accessed only through raw pointers, never through Rust references, and only by the functions of
//!    [`access`]. A kernel may race with itself, with another stream or with the host. So scalar accesses are relaxed
//!    atomics of their own width, whose alignment was checked, and races of one width are defined. Bulk copies, fills
//!    and the 64-byte accesses of half a warp are inline assembly, which is opaque to the compiler. Rust's memory model
//!    does not define races of different widths, or of an atomic and assembly. For these the module relies on the
//!    compiler, which makes one instruction of each atomic access. A racing reader gets a mix of old and new bytes, as
//!    on a GPU.
//! 3. The callers of [`access`] check bounds against the allocation's size before they make a pointer. The functions of
//!    [`access`] are `unsafe` only for this reason.
//!
//! [`Contents`] defines the initial contents of memory. By default, the first 64 KiB are `0xFF`, which reads as NaN or
//! -1 and makes missing initialization reproducible, and the rest is zero. A memory with [`Memory::tracking`] records
//! for each byte whether it was written ([`written`]). The table is not locked while the host's allocator runs.

pub(crate) mod access;
mod accounting;
mod error;
mod host_ops;
mod storage;
mod table;
mod view;
pub(crate) mod written;

pub use accounting::Usage;
pub(crate) use error::count;
pub use error::{AccessError, FreeError, Nearest, OutOfMemory};
pub(crate) use storage::Allocation;
pub use storage::Contents;
pub use table::Memory;
pub(crate) use view::{Range, View};
