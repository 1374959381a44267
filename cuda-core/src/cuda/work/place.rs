//! The place where work is enqueued.

use crate::cuda::{
    context::Primary,
    objects::{Memory, Modules},
    streams::DriverStream,
};

/// The place where work is enqueued: a stream that the caller holds, and the objects of its backend.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) primary: &'static Primary,
    pub(crate) memory: &'a Memory,
    pub(crate) modules: &'a Modules,
    pub(crate) stream: &'a DriverStream,
}
