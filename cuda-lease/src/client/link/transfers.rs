//! Copies in flight, and the progress that waits for their bytes.

use std::{collections::VecDeque, sync::Arc};

use cuda_core::{
    Ticket,
    protocol::{HostBlock, StreamId},
};
use rustc_hash::FxHashMap;

use crate::{session::SessionError, wire::TransferId};

/// The copies of a session whose bytes are not all sent or received, and the progress of its streams.
///
/// The node sends progress and bytes on different lanes. Progress of a stream is therefore withheld from the first
/// unfinished copy on, because the client may reuse the host memory of a copy as soon as progress covers it.
#[derive(Default)]
pub(super) struct Transfers {
    downloads: FxHashMap<TransferId, Download>,
    streams: FxHashMap<StreamId, Stream>,
    /// The bytes that travel with their commands.
    inline: u64,
}

struct Download {
    ticket: Ticket,
    block: Arc<HostBlock>,
    start: usize,
    bytes: usize,
    received: usize,
}

#[derive(Default)]
struct Stream {
    /// The progress that was passed on.
    complete: u64,
    /// The progress that the node reported.
    reported: u64,
    /// The submissions whose copies are not finished, in order.
    unfinished: VecDeque<u64>,
    /// The submissions whose bytes travel with them, and the numbers of bytes.
    inline: VecDeque<(u64, u64)>,
    is_retired: bool,
}

/// The maximum number of bytes that travel with their commands and whose commands are not complete. The node has memory
/// for as many.
const INLINE: u64 = 64 << 20;

/// A place for bytes that have arrived.
pub(super) struct Place {
    pub(super) block: Arc<HostBlock>,
    pub(super) start: usize,
    ticket: Ticket,
    is_last: bool,
}

impl Transfers {
    /// Adds a stream, before its command is sent.
    pub(super) fn add_stream(&mut self, stream: StreamId) {
        self.streams.entry(stream).or_default();
    }

    /// Adds a download, before its command is sent.
    pub(super) fn add_download(
        &mut self,
        ticket: Ticket,
        transfer: TransferId,
        block: Arc<HostBlock>,
        start: usize,
        bytes: usize,
    ) {
        if bytes > 0 {
            self.add(ticket);
            self.downloads.insert(transfer, Download { ticket, block, start, bytes, received: 0 });
        }
    }

    /// Adds a copy whose host memory is in use until [`finish`](Self::finish).
    pub(super) fn add(&mut self, ticket: Ticket) {
        self.streams.entry(ticket.stream).or_default().unfinished.push_back(ticket.number);
    }

    /// Counts an upload whose bytes travel with its command. Returns `false` if there are too many.
    pub(super) fn add_inline(&mut self, ticket: Ticket, bytes: u64) -> bool {
        if self.inline + bytes > INLINE {
            return false;
        }
        self.inline += bytes;
        self.streams.entry(ticket.stream).or_default().inline.push_back((ticket.number, bytes));
        true
    }

    /// Finds the place for the next bytes of a download. Returns `None` for a download that has failed.
    ///
    /// # Errors
    /// The bytes are not those that come next.
    pub(super) fn place(
        &mut self,
        transfer: TransferId,
        offset: u64,
        bytes: usize,
    ) -> Result<Option<Place>, SessionError> {
        let Some(download) = self.downloads.get_mut(&transfer) else { return Ok(None) };
        let left = download.bytes - download.received;
        if offset != download.received as u64 || bytes > left {
            let message = format!(
                "download {}: received {bytes} bytes at offset {offset}, expected at most {left} bytes at offset {}",
                transfer.0, download.received
            );
            return Err(SessionError::Command(message));
        }
        let start = download.start + download.received;
        download.received += bytes;
        let is_last = bytes == left;
        Ok(Some(Place { block: download.block.clone(), start, ticket: download.ticket, is_last }))
    }

    /// Records that the bytes of a place were written. Returns progress to pass on.
    pub(super) fn arrived(
        &mut self,
        transfer: TransferId,
        place: &Place,
    ) -> Option<(StreamId, u64)> {
        if !place.is_last {
            return None;
        }
        self.downloads.remove(&transfer);
        self.finish(place.ticket)
    }

    /// Records that the host memory of a copy is not used any more. Returns progress to pass on.
    pub(super) fn finish(&mut self, ticket: Ticket) -> Option<(StreamId, u64)> {
        let stream = self.streams.get_mut(&ticket.stream)?;
        stream.unfinished.retain(|number| *number != ticket.number);
        self.deliverable(ticket.stream)
    }

    /// Records that a submission failed, so that no more bytes of it arrive. Returns progress to pass on.
    pub(super) fn failed(&mut self, ticket: Ticket) -> Option<(StreamId, u64)> {
        let before = self.downloads.len();
        self.downloads.retain(|_, download| download.ticket != ticket);
        if self.downloads.len() == before { None } else { self.finish(ticket) }
    }

    /// Records progress that the node reported. Returns the progress to pass on.
    pub(super) fn progress(&mut self, stream: StreamId, complete: u64) -> Option<(StreamId, u64)> {
        // A report may arrive again after the end of its stream.
        let state = self.streams.get_mut(&stream)?;
        state.reported = state.reported.max(complete);
        while let Some((number, bytes)) = state.inline.front()
            && *number <= complete
        {
            self.inline -= bytes;
            state.inline.pop_front();
        }
        self.deliverable(stream)
    }

    fn deliverable(&mut self, id: StreamId) -> Option<(StreamId, u64)> {
        let stream = self.streams.get_mut(&id)?;
        let held = stream.unfinished.front().map_or(u64::MAX, |first| first - 1);
        let complete = stream.reported.min(held);
        if complete <= stream.complete {
            return None;
        }
        stream.complete = complete;
        self.remove_if_done(id);
        Some((id, complete))
    }

    /// The progress of a stream that was passed on.
    pub(super) fn complete(&self, stream: StreamId) -> u64 {
        self.streams.get(&stream).map_or(0, |stream| stream.complete)
    }

    /// Removes a stream, when its copies are finished.
    pub(super) fn retire(&mut self, stream: StreamId) {
        self.streams.entry(stream).or_default().is_retired = true;
        self.remove_if_done(stream);
    }

    fn remove_if_done(&mut self, stream: StreamId) {
        let is_done = |stream: &Stream| {
            stream.is_retired && stream.unfinished.is_empty() && stream.inline.is_empty()
        };
        if self.streams.get(&stream).is_some_and(is_done) {
            self.streams.remove(&stream);
        }
    }

    /// Forgets all downloads: the session ended.
    pub(super) fn clear(&mut self) {
        self.downloads.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(number: u64) -> Ticket {
        Ticket { stream: StreamId(1), number }
    }

    #[test]
    fn progress_waits_for_the_bytes_of_downloads() {
        let mut transfers = Transfers::default();
        let block = Arc::new(HostBlock::heap(64).unwrap());
        transfers.add_download(ticket(2), TransferId(9), block, 16, 8);
        assert_eq!(transfers.progress(StreamId(1), 3), Some((StreamId(1), 1)));
        let first = transfers.place(TransferId(9), 0, 3).unwrap().unwrap();
        assert_eq!((first.start, transfers.arrived(TransferId(9), &first)), (16, None));
        let last = transfers.place(TransferId(9), 3, 5).unwrap().unwrap();
        assert_eq!(last.start, 19);
        assert_eq!(transfers.arrived(TransferId(9), &last), Some((StreamId(1), 3)));
        assert!(transfers.place(TransferId(9), 8, 1).unwrap().is_none());
    }

    #[test]
    fn bytes_that_were_not_requested_are_an_error() {
        let mut transfers = Transfers::default();
        let block = Arc::new(HostBlock::heap(64).unwrap());
        transfers.add_download(ticket(1), TransferId(9), block, 0, 8);
        assert!(transfers.place(TransferId(9), 1, 2).is_err());
        assert!(transfers.place(TransferId(9), 0, 9).is_err());
    }

    #[test]
    fn failed_download_holds_nothing_back() {
        let mut transfers = Transfers::default();
        let block = Arc::new(HostBlock::heap(64).unwrap());
        transfers.add_download(ticket(1), TransferId(9), block, 0, 8);
        assert_eq!(transfers.progress(StreamId(1), 1), None);
        assert_eq!(transfers.failed(ticket(1)), Some((StreamId(1), 1)));
    }
}
