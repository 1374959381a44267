//! Names for people.

use std::sync::Arc;

/// The name of a node or of an operation, for people: the names of the operations that it belongs to, outermost first,
/// separated by `/`. It has no effect on the work.
pub type Name = Arc<str>;
