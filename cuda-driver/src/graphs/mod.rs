//! Graphs of the driver: their nodes, and the executables that a helper thread builds from them.
//!
//! Uses `context` and `driver`. `objects` holds the graphs of the client, `windows` those of the graph cache.

mod child;
mod executable;
mod node;
mod prepared;

pub(crate) use child::Capture;
pub(crate) use executable::{Executable, GraphSlot};
pub(crate) use node::{
    CopyNode, CopySource, DriverNode, FillNode, KernelNode, OrderedNode, RepeatNode,
};
pub(crate) use prepared::{Prepared, Replies};
