//! Plans: the work of an operation or a graph as data, and drawings of it.

// `nodes` holds the data and the tree of names, and makes the plan of an operation. `text` and `svg` draw it. `svg`
// uses the places of `layout`. A typical call goes from `PlanExt::plan` to a stream of a plan in `cuda-core`, and back
// to `Plan::of_nodes`.

mod layout;
mod nodes;
mod svg;
mod text;

pub use nodes::{Plan, PlanExt, PlanNode, PlanWork};
pub(super) use text::{counted, duration, padded, printable, title};
