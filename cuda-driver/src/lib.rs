//! The CUDA backend of `cuda-core`: NVIDIA GPUs, through the installed driver.
//!
//! Building needs nothing of CUDA. Opening a device loads the driver's library; without one it returns
//! [`Error::NoDriver`](cuda_core::Error::NoDriver).
//!
//! Folders, lowest first: `driver` (functions, library, status codes), `context` (the driver's context and the rest of
//! a device's state in this process), `graphs` (nodes and executables), `windows` (the graph cache), `streams`,
//! `completion` (reports of progress), `objects` (memory, modules, graphs), `work` (submissions and transfers).
//! `backend` implements [`Backend`](cuda_core::Backend) with them. A submission goes from `backend` to `work`; its
//! completion comes back through `completion::watcher`.
//!
//! # Rules
//!
//! The driver's calls may be made from any thread. The rules below keep their arguments alive. A `SAFETY` comment of
//! this crate names the rule where the reason is not beside the call.
//!
//! 1. **Library.** It is loaded once and never unloaded, so its functions live as long as the process.
//! 2. **The driver's context.** It is the device's primary one, which every CUDA library of the process shares. The
//!    first open of a device retains it, and it is never released. `context::Primary` lives as long, and so does its
//!    default memory pool; `context::memory_pools` states the rule for the other pools. A call that needs a context is
//!    made while a `context::Bound` lives, which restores the thread's own context when it is dropped. The completion
//!    thread binds for its whole life.
//! 3. **Streams** are held in `Arc`s. A thread that calls the driver with one holds a clone, or is inside a `submit`,
//!    `peek` or `block_until`, whose caller promises not to retire the stream. An outstanding report holds one too.
//! 4. **Functions and graphs** are used inside `submit`, whose caller promises not to unload the module or drop the
//!    graph. So a launch finds them without a lock, in `context::IdCache`. A module that is unloaded, or a graph that
//!    is dropped, is evicted from it before it is destroyed. A launch that a window holds is not complete, so the
//!    client does not unload its module before the launch is flushed.
//! 5. **Events** belong to a stream, or to freed memory that is in no pool. They are destroyed with their owner.
//! 6. **Device memory** is a number, not a pointer of this process. The client orders its free after all uses, by
//!    tickets. A use after the free would be a fault of the device, not of the process.
//! 7. **Host memory** of a copy belongs to the device until the stream has passed the copy. The client keeps the block
//!    alive; this crate checks the bounds.
//! 8. **Host functions.** A driver's thread runs the host functions of checkpoints, and nothing else. They store a
//!    number and wake the completion thread. They call no driver, do not panic, take no lock that is held across a
//!    driver call, and drop no value of a user.
//! 9. **Progress.** A number counts as complete in one of three cases:
//!    - A query found the stream idle.
//!    - A query found that the stream has passed the event of a checkpoint for the number.
//!    - The host function of a checkpoint for the number has run.
//!
//!    A number is read before the query that relies on it. Before a notice that relies on a host function, the
//!    completion thread queries the stream, to find a fault.
//! 10. **Captures.** Foreign code may capture a stream during a foreign call. Nothing else is enqueued on the stream
//!     meanwhile, and it is not queried (`streams::stream`).
//! 11. **No `Drop` of a resource calls the driver.** A dropped resource goes to `context::ReclaimQueue`. When a backend
//!     is dropped, its resources stay there until its streams have run everything. On a lost device they are leaked.
//!     Three guards call the driver when they are dropped: `context::Bound`, `foreign::ForeignCall` and
//!     `graphs::Capture`.
//!
//! # Threads
//!
//! | thread | started by | runs | ends |
//! |---|---|---|---|
//! | `cuda-completion`, one per backend | the first report that a caller wants | `completion::watcher` | when the backend is dropped and every report is delivered |
//! | `cuda-loader`, one per backend | a module to load, a graph to build, a request that may block | `objects::modules`, `graphs::Executable`, memory statistics, peer access | half a second after the last task |
//! | `cuda-reclaim`, one per device | a resource that was dropped | `context::reclaim` | half a second after the queue is empty |
//!
//! The completion thread checks the checkpoints of the streams that callers wait for. When it has reported nothing for
//! 50 ms, it queries every such stream, because a stream that a fault has stopped passes no checkpoint. While a report
//! has no checkpoint, because the driver refused it or foreign code runs, it does so every 50 ms in any case. With
//! nothing outstanding it parks.

#![deny(missing_docs)]

mod backend;
mod completion;
mod context;
mod deferred;
mod driver;
mod foreign;
mod graphs;
#[cfg(all(test, loom))]
mod loom_models;
mod objects;
mod provider;
#[cfg(all(test, not(loom)))]
mod simulated_tests;
mod streams;
mod teardown;
mod windows;
mod work;

pub use backend::CudaBackend;
pub use completion::Completion;
pub use provider::CudaProvider;
