//! Stateless submits: runs one kernel after the other, on a device handle of its own. A *job* is a stateless submit on its
//! way to or in the worker.
//!
//! [`serve`] reads jobs from a socket of their own and answers them in order, so their bytes never wait in front of a
//! session's commands. [`device`] opens the device at the first job, keeps the modules and the region, and runs the
//! kernel. The folder uses the quota of the session too (`quota`).
//!
//! A job is not translated to commands for an engine (`engine`). The engine carries out what a client has prepared: the
//! client reads the kernels of a module, lays out and checks the arguments, and attributes output and faults to its
//! work. A submit leaves all of that to the node, and the supervisor must not read modules of tenants. So the worker is
//! the client: it uses a device by the handles of `cuda_core`, as every program does, and has no code of its own for
//! memory, launches and completion.
//!
//! - **Several programs.** The jobs of a lease run one after the other, in the order in which their inputs have arrived
//!   at the supervisor. They run beside the session, which has another handle of the device: its order, its printed text
//!   and, on a CPU device, its faults are separate. On a GPU, a fault ends both.
//! - **Limits.** The supervisor counts `submits_per_second`, and the host memory of inputs and outputs. The worker
//!   counts the region against the quota of the lease, together with the session's memory.
//! - **Modules.** The 16 modules that were used last stay loaded until the lease ends, also over a fault that the device
//!   recovers from. Of others the worker requests the image.
//! - **Faults.** The job fails with the fault, and the device is reset for the next one. A device that cannot be reset, a
//!   GPU, ends the worker and its lease.
//! - **Ends.** A job whose client is gone runs to its end, and its output is dropped. The end of the lease kills the
//!   worker, and the submit fails with the cause of that end.

mod device;
mod messages;
mod serve;

pub use messages::JobDone;
pub(super) use serve::JobServer;
