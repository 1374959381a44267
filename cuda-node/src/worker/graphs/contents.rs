//! The contents of graph commands that travel on the bulk lane.

use std::sync::Arc;

use cuda_core::{internals::IdMap, protocol::GraphId};
use cuda_lease::{session::SessionError, wire::TransferId};

use crate::worker::quota::{Charge, Quota};

/// The maximum number of contents that a session collects at a time.
const CONTENT_COUNT: usize = 16 << 10;

/// The incomplete contents, and those of launches that are held.
#[derive(Default)]
pub(in crate::worker) struct Contents(IdMap<TransferId, Content>);

struct Content {
    total: u64,
    arrived: u64,
    /// The bytes, with their charge. `None`: they are discarded as they arrive.
    bytes: Option<(Vec<u8>, Charge)>,
    /// The graph that they create. `None` for those of a launch.
    graph: Option<GraphId>,
}

/// Content that is complete.
pub(in crate::worker) enum Arrived {
    /// The nodes of a new graph. The number of bytes if they were discarded.
    Nodes(GraphId, Result<Vec<u8>, u64>),
    /// The changes of a launch.
    Changes,
}

impl Contents {
    /// Announces content. If the quota has no space for it, it is discarded.
    ///
    /// # Errors
    /// The id is in use, or the session has too many contents.
    pub(in crate::worker) fn announce(
        &mut self,
        transfer: TransferId,
        total: u64,
        graph: Option<GraphId>,
        quota: &Arc<Quota>,
    ) -> Result<(), SessionError> {
        if self.0.len() >= CONTENT_COUNT {
            return Err(SessionError::Command(format!(
                "more than {CONTENT_COUNT} graph commands wait for their content"
            )));
        }
        let bytes = quota.charge(total).ok().map(|charge| (Vec::new(), charge));
        if self.0.insert(transfer, Content { total, arrived: 0, bytes, graph }).is_some() {
            return Err(SessionError::Command(format!(
                "the id of upload {} is already in use",
                transfer.0
            )));
        }
        Ok(())
    }

    /// The bytes of content that have arrived, and those that are still to come. `None` if none are.
    pub(in crate::worker) fn expected(&self, transfer: TransferId) -> Option<(u64, u64)> {
        let content = self.0.get(&transfer).filter(|content| content.arrived < content.total)?;
        Some((content.arrived, content.total - content.arrived))
    }

    /// Adds the next bytes of content that is [`expected`](Self::expected). Returns the content that they complete.
    pub(in crate::worker) fn add(&mut self, transfer: TransferId, part: &[u8]) -> Option<Arrived> {
        let content = self.0.get_mut(&transfer)?;
        content.arrived += part.len() as u64;
        if let Some((bytes, _)) = &mut content.bytes {
            bytes.extend_from_slice(part);
        }
        if content.arrived < content.total {
            return None;
        }
        match content.graph {
            None => Some(Arrived::Changes),
            Some(graph) => {
                let bytes = self.take(transfer)?;
                Some(Arrived::Nodes(graph, bytes))
            }
        }
    }

    /// Discards the content of a graph that was dropped.
    pub(in crate::worker) fn discard(&mut self, transfer: TransferId) {
        if let Some(content) = self.0.get_mut(&transfer) {
            content.bytes = None;
        }
    }

    /// Whether content is complete.
    pub(in crate::worker) fn is_complete(&self, transfer: TransferId) -> bool {
        self.expected(transfer).is_none()
    }

    /// The bytes of a launch's content. `None` if they were discarded.
    pub(in crate::worker) fn bytes(&self, transfer: TransferId) -> Option<&[u8]> {
        self.0.get(&transfer)?.bytes.as_ref().map(|(bytes, _)| &bytes[..])
    }

    /// Takes content that is complete. The number of its bytes if they were discarded.
    pub(in crate::worker) fn take(&mut self, transfer: TransferId) -> Option<Result<Vec<u8>, u64>> {
        let Content { bytes, total, .. } = self.0.remove(&transfer)?;
        Some(bytes.map(|(bytes, _)| bytes).ok_or(total))
    }
}
