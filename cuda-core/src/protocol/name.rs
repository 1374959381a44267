//! Names in messages and drawings.

use std::sync::Arc;

/// The name of a graph node, an operation, a kernel or a memory pool, for messages and drawings. The name of a graph
/// node consists of the names of the operations that it belongs to, outermost first, separated by `/`. A name has no
/// effect on the work.
pub type Name = Arc<str>;
