//! Checked device memory.
//!
//! Addresses are synthetic: a 64-bit number that no host pointer has anything to do with. Every
//! allocation stands alone, with a guard gap after it, and an address is not given out twice, so a
//! stray access finds either nothing or the poisoned range of what was freed, and says which.
//!
//! # Who may touch what, and when
//!
//! 1. The table (address to allocation) is behind a lock. An allocation is shared by `Arc`: whoever
//!    holds it may touch its bytes, also after `free` has taken it out of the table. A running
//!    kernel keeps those it has touched until the launch ends, so freeing under a kernel is a bug of
//!    the program but never a dangling pointer here. What a kernel frees itself a worker lets go of right then, or
//!    before it runs another block's turn, and with it all pointers into it that it has kept.
//! 2. Device bytes are only reached through raw pointers, never through a Rust reference, and only
//!    by the functions of [`access`]. A kernel may race with itself, with another stream or with the
//!    host. So that this is no undefined behaviour, scalar accesses are relaxed atomics of their own
//!    width (aligned: checked before), and bulk copies, fills and the 64-byte accesses of half a
//!    warp are inline assembly, which the compiler cannot see through; a racing reader gets a mix of
//!    old and new bytes, as on a GPU.
//! 3. Bounds are checked before a pointer is made, against the allocation's size, by whoever calls
//!    [`access`]; those functions are `unsafe` for that reason alone.
//!
//! New memory holds what [`Contents`] says: by default `0xFF` in its first 64 KiB, which reads as NaN or
//! -1 and thus shows a missing initialisation, every time in the same way, and zero behind them.
//! A memory that is made for it ([`Memory::tracking`]) knows of each byte whether somebody has written it ([`written`]).
//! Allocating and freeing let go of the table while the host's allocator is at work.

pub(crate) mod access;
pub(crate) mod access_16;
mod contents;
mod error;
mod host_ops;
mod room;
mod storage;
mod table;
mod view;
pub(crate) mod written;

pub use contents::{Contents, Usage};
pub(crate) use error::count;
pub use error::{AccessError, FreeError, Nearest, OutOfMemory};
pub(crate) use storage::Allocation;
pub use table::Memory;
pub(crate) use view::{Range, View};
