//! A submission to the backend.

use std::sync::Arc;

use cuda_core::{
    Ticket,
    protocol::{HostBlock, Work},
};

use crate::worker::reports::Keep;

/// A submission to the backend: a step of the client, or a part of one.
pub(super) struct BackendStep<'a> {
    /// The client's ticket of the step.
    pub(super) ticket: Ticket,
    /// The client's tickets of other streams that the step comes after.
    pub(super) after: &'a [Ticket],
    pub(super) work: &'a Work<'a>,
    /// The blocks that the work names.
    pub(super) host: &'a [Arc<HostBlock>],
    /// Whether the step has no more parts.
    pub(super) is_last: bool,
    /// The memory that is kept until the part is complete.
    pub(super) keep: Keep,
}

impl<'a> BackendStep<'a> {
    /// A whole step without host bytes.
    pub(super) fn whole(ticket: Ticket, after: &'a [Ticket], work: &'a Work<'a>) -> Self {
        Self { ticket, after, work, host: &[], is_last: true, keep: Keep::Nothing }
    }
}
