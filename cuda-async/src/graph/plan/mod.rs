//! Plans: the work of an operation or a graph as data, and drawings of it.

// `nodes` holds the data. `record` makes a plan of an operation. `text`, `dot`, `mermaid` and `svg` draw it: they use
// the labels of `label` and the tree of names of `groups`. `svg` also uses the places of `layout`, and leaves out the
// edges that `implied` finds. A typical call goes from `PlanExt::plan` to a stream of a plan in `cuda-core`, and back
// to `Plan::of_nodes`.

mod dot;
mod groups;
mod implied;
mod label;
mod layout;
mod mermaid;
mod nodes;
mod record;
mod svg;
mod text;

pub(super) use label::{counted, duration, padded, printable, title};
pub use nodes::{Plan, PlanNode, PlanWork};
pub use record::PlanExt;
