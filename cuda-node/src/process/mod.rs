//! Worker processes: launching, killing and reaping them, and their sockets to the supervisor.
//!
//! A supervisor and a worker share three Unix stream sockets. *Commands* carries commands down and events up. *Bulk*
//! carries bulk bytes in both directions. *Jobs* carries stateless submits and their replies. In the worker they are
//! the descriptors [`COMMANDS_DESCRIPTOR`], [`BULK_DESCRIPTOR`] and [`JOBS_DESCRIPTOR`]. The worker's standard input is
//! a socket that the supervisor holds open and never writes to. Its end of file tells the worker that the supervisor has
//! exited.
//!
//! The supervisor calls [`WorkerLauncher::launch`], which returns a [`WorkerProcess`] and its [`SupervisorEnds`]. The
//! worker calls [`die_with_supervisor`] and [`WorkerEnds::take`] first. Tests that need no process use [`pair`]. Both
//! write their logs with [`log_to_stderr`]. A worker with a [`Sandbox`] enters it before all else.
//!
//! A worker with a sandbox also has a cgroup where the machine gives one, in which the supervisor limits its host memory
//! when it gets a lease.
//!
//! A worker whose launcher has a folder for [successors](WorkerLauncher::successors) outlives its supervisor, once it has
//! a lease: it waits for the next one with [`Successors`], which takes it over with [`WorkerLauncher::take_over`].
//!
//! This module uses nothing else of the crate.

mod cgroup;
mod descriptors;
mod ends;
mod error;
mod host_memory;
mod log;
mod sandbox;
mod spawn;
mod successors;
mod worker_process;

pub use descriptors::{
    BULK_DESCRIPTOR, COMMANDS_DESCRIPTOR, JOBS_DESCRIPTOR, SUCCESSORS_DESCRIPTOR,
    raise_descriptor_limit,
};
pub use ends::{Ends, SupervisorEnds, SupervisorWatch, WorkerEnds, die_with_supervisor, pair};
pub use error::{DescriptorProblem, Error, Result};
pub use host_memory::{limit_host_memory, return_large_blocks};
pub use log::log_to_stderr;
pub(crate) use sandbox::give;
pub use sandbox::{
    Confinement, DEFAULT_UIDS, DeviceFiles, Part, PartReport, Sandbox, SandboxReport, hide_memory,
};
pub use successors::Successors;
pub use worker_process::{ExitCause, WorkerLauncher, WorkerOutput, WorkerProcess, WorkerRecord};
