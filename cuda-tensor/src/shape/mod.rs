//! Shapes, the places of elements in memory, and errors about shapes.

pub(super) mod error;
pub(super) mod layout;
#[allow(clippy::module_inception)] // the concept of the folder
pub(super) mod shape;
