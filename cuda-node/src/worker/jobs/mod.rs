//! Stateless submits: runs one kernel after the other, in a device context of its own. A *job* is a stateless submit on
//! its way to or in the worker.
//!
//! `serve` reads jobs from a socket of their own and answers them in order, so their bytes never wait in front of a
//! session's commands. `runner` opens the device at the first job, keeps the modules and the region, and runs the
//! kernel. The memory of the region counts against the quota that the session uses too (`quota`).
//!
//! The protocol of the socket: `Assign`, then for each job the client's `Submit`, without token and image, and its input
//! as [`JobPart`]s. The worker may answer [`NeedImage`], and the supervisor sends the image as `WorkerBlob`s. [`JobDone`]
//! and the output as [`JobPart`]s end the job.

mod messages;
mod runner;
mod serve;

pub use messages::{JOB_PART, JobDone, JobPart, NeedImage};
pub use serve::{JobServer, Serving};
