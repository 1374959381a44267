//! The graph cache: windows of submissions that repeat are launched as graphs.
//!
//! A client marks the submissions of one poll as deferrable and ends them with a flush: that is a *window*. A stream
//! learns its windows by their shape, the kinds of their nodes. A window that comes often is measured, and built as a
//! graph if that pays. From then on its nodes are held until the flush, compared with those of the last time, and
//! launched as one graph whose changed nodes get new parameters.
//!
//! Uses `graphs`, `context` and `driver`. A [`DriverStream`](super::streams::DriverStream) owns its [`Window`].
//! `deferred` passes submissions to it, and every use of a stream that has held work flushes it first.
//!
//! # Rules
//! - Held work is not in the driver's stream, so a stream's `submitted` does not cover it. Every call that needs a
//!   number beyond `submitted` flushes first.
//! - The window's lock is taken before the driver's calls for held work, and no thread holds the windows of two
//!   streams. So a thread that needs the work of another stream can flush that stream.
//! - A free that comes while a stream holds work is held too, so the nodes name memory that is alive.
//! - Held work is discarded instead of flushed if no caller waits for it, if every allocation that it writes has a held
//!   free, and if its kernels have no other effects ([`Module::has_other_effects`](cuda_ptx::Module::has_other_effects)).
//!   Nothing else can read these allocations: other work that uses them would have flushed the stream before the free.
//! - A client unloads a module when all its launches are complete, so no held node names one that is being unloaded.
//!   Windows with launches of the module are forgotten before it is unloaded.

mod measure;
mod memory;
mod results;
mod tree;
mod window;

pub(crate) use memory::CacheMemory;
pub(crate) use tree::Shape;
pub(crate) use window::{Due, HeldFree, Next, Window};
