//! Copies between host and device: their bytes arrive, and leave, in pieces.

use cuda_core::{
    Access, Ticket,
    protocol::{HostRegion, Region, StreamId, Work},
};
use cuda_lease::{session::SessionError, wire::TransferId};

use super::{
    Engine, Outcome,
    state::{BackendStep, Download, State, Task, Upload, violation},
};
use crate::worker::{
    reports::{SMALL, StagedDownload, StepMemory},
    staging::{PIECE, Staged},
};

impl Engine {
    /// Waits until the command of an upload has arrived. Returns the bytes of the upload that have arrived, and those
    /// that are still to come. Returns `None` at the end of the session.
    pub(in crate::worker) fn expected(&self, transfer: TransferId) -> Option<(u64, u64)> {
        let mut state = self.state.lock();
        loop {
            if state.is_closed {
                return None;
            }
            if let Some(upload) = state.upload(transfer) {
                return Some((upload.arrived, upload.bytes - upload.arrived));
            }
            if let Some(expected) = state.contents.expected(transfer) {
                return Some(expected);
            }
            self.announced.wait(&mut state);
        }
    }

    /// Takes the next `bytes` bytes of an upload, or of the content of a graph command, that is
    /// [`expected`](Self::expected).
    ///
    /// # Errors
    /// The content is complete and malformed.
    pub(in crate::worker) fn piece(
        &self,
        transfer: TransferId,
        piece: Staged,
        bytes: usize,
    ) -> Result<(), SessionError> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let Some(upload) = state.upload(transfer) else {
            return self.content(state, transfer, &piece, bytes);
        };
        upload.arrived += bytes as u64;
        let is_complete = upload.arrived >= upload.bytes;
        if !upload.is_refused {
            upload.pieces.push_back((piece, bytes));
        }
        if is_complete {
            state.uploads.remove(&transfer);
        }
        self.advance(state);
        Ok(())
    }

    /// Writes bytes that arrived with their command.
    pub(super) fn write(
        &self,
        state: &mut State,
        ticket: Ticket,
        after: Vec<Ticket>,
        to: Region,
        bytes: &[u8],
    ) -> Result<(), SessionError> {
        let (number, length) = (ticket.number, bytes.len() as u64);
        let mut upload = Upload::new(number, to, None, length);
        upload.arrived = length;
        match self.inline.copy(bytes) {
            Some(Ok(piece)) => upload.pieces.push_back((piece, bytes.len())),
            Some(Err(error)) => upload.error = Some(error),
            None => {
                return Err(violation(format!(
                    "the bytes in commands in flight exceed the limit of {} bytes; wait for progress before \
                     sending more",
                    2 * super::STAGING
                )));
            }
        }
        self.put(state, ticket.stream, after, Task::Upload(upload))
    }

    /// Submits the pieces of an upload that have arrived.
    pub(super) fn upload(
        &self,
        state: &mut State,
        stream: StreamId,
        after: &[Ticket],
        upload: &mut Upload,
    ) -> Outcome {
        let ticket = Ticket { stream, number: upload.number };
        if let Some(error) = upload.error.take() {
            let range = upload.to.used(upload.bytes, Access::Write);
            self.skip(state, ticket, after, &[range], error);
            return Outcome::Done;
        }
        while let Some((piece, bytes)) = upload.pieces.pop_front() {
            let length = bytes as u64;
            let from = HostRegion { block: piece.block().id(), offset: 0 };
            let to = at(upload.to, upload.submitted);
            upload.submitted += length;
            let is_last = upload.submitted >= upload.bytes;
            let work = Work::Upload { from, to, bytes: length };
            let host = [piece.block().clone()];
            // The order of the stream covers all pieces behind the first.
            let after = if upload.submitted == length { after } else { &[] };
            let memory = StepMemory::Upload(piece);
            let step = BackendStep { ticket, after, work: &work, host: &host, is_last, memory };
            if let Err(error) = self.run(state, step) {
                // The later pieces do not reach the backend, so all memory of the upload is poisoned.
                let range = upload.to.used(upload.bytes, Access::Write);
                state.objects.spread(&[range], &error);
                upload.is_refused = true;
                upload.pieces.clear();
            }
        }
        if upload.is_refused {
            // The rest of the bytes is discarded as it arrives.
            return if upload.arrived >= upload.bytes { Outcome::Done } else { Outcome::Waits };
        }
        if upload.bytes == 0 {
            let work = Work::Join;
            _ = self.run(state, BackendStep::whole(ticket, after, &work));
            return Outcome::Done;
        }
        // Its staging memory returns to the pool when the copies are complete.
        self.want_all(state, stream);
        if upload.submitted >= upload.bytes { Outcome::Done } else { Outcome::Waits }
    }

    /// Submits a download, as far as there is staging memory.
    pub(super) fn download(
        &self,
        state: &mut State,
        stream: StreamId,
        after: &[Ticket],
        download: &mut Download,
    ) -> Outcome {
        let ticket = Ticket { stream, number: download.number };
        if download.bytes <= SMALL && !self.reports.outbox.takes_downloads() {
            return Outcome::Waits;
        }
        while download.submitted < download.bytes || download.bytes == 0 {
            let bytes = (download.bytes - download.submitted).min(PIECE as u64);
            let block = match self.downloads.try_take(bytes as usize) {
                None => {
                    self.want_all(state, stream);
                    return Outcome::Waits;
                }
                Some(Ok(block)) => block,
                Some(Err(error)) => {
                    // The order of the stream covers all pieces behind the first.
                    let after = if download.submitted == 0 { after } else { &[] };
                    self.skip(state, ticket, after, &[], error);
                    return Outcome::Done;
                }
            };
            let from = at(download.from, download.submitted);
            let to = HostRegion { block: block.block().id(), offset: 0 };
            let host = [block.block().clone()];
            let piece = StagedDownload {
                transfer: download.transfer,
                offset: download.submitted,
                bytes: bytes as usize,
                block,
                is_small: download.bytes <= SMALL,
            };
            let after = if download.submitted == 0 { after } else { &[] };
            download.submitted += bytes;
            let is_last = download.submitted >= download.bytes;
            let work = Work::Download { from, to, bytes };
            let memory = StepMemory::Download(piece);
            let step = BackendStep { ticket, after, work: &work, host: &host, is_last, memory };
            if self.run(state, step).is_err() || is_last {
                break;
            }
        }
        // Its bytes travel as soon as they are there.
        self.want_all(state, stream);
        Outcome::Done
    }
}

fn at(region: Region, offset: u64) -> Region {
    Region { offset: region.offset.saturating_add(offset), ..region }
}
