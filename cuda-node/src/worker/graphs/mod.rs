//! The graphs of a session: incomplete content, graphs that wait for their memory, and graphs of the backend.
//!
//! `contents` collects the bytes of graph commands that travel on the bulk lane. `work` turns decoded nodes into work
//! of the backend, with one host block for the bytes of their uploads. `record` keeps the accesses of the nodes, and
//! `table` the state of each graph. The folder uses `wire`, `cuda_core`, `quota` and `modules`. The engine creates and
//! launches the graphs.
//!
//! # Limits
//! A session has at most [`GRAPH_LIMIT`] graphs. Their nodes, the bytes of their uploads and the incomplete content are
//! charged to one quota of [`GRAPH_MEMORY`] bytes of host memory. A graph beyond it is refused, and the session goes
//! on.

mod contents;
mod record;
mod table;
mod work;

pub(super) use contents::{Arrived, Contents};
pub(super) use record::{GraphMemory, NodeAccess};
pub(super) use table::{Answerable, Graphs};
pub(super) use work::{Prepared, change, prepare};

/// The maximum number of graphs of a session.
pub(super) const GRAPH_LIMIT: usize = 4096;

/// The maximum host memory of the graphs of a session, in bytes.
pub(super) const GRAPH_MEMORY: u64 = 256 << 20;
