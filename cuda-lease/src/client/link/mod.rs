//! The state that the backend and the connection of a lease share.

mod transfers;

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use cuda_core::{
    Error, NoticeSink, Ticket,
    protocol::{Answer, Control, Feature, HostBlock, ModuleId, Notice, Reply, Request, StreamId},
};
use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashMap;
use tokio::sync::Notify;

use self::transfers::Transfers;
use super::end::not_submitted;
use crate::{
    session::{Outgoing, SessionError},
    wire::{Chunk, Command, Content, Event, Hash, TransferId},
};

/// The bytes of bulk data that may be sent and not acknowledged.
const BULK_WINDOW: usize = 16 << 20;

/// The bytes of commands that may be sent and not acknowledged. Otherwise a node that acknowledges nothing fills the memory
/// of the client, because it can report progress all the same.
const COMMANDS_WINDOW: usize = 64 << 20;

/// The bytes of new graphs that wait. A node keeps no more for a session.
const NEW_GRAPHS: usize = 256 << 20;

/// Uploads up to this number of bytes travel with their command. Longer ones travel on the bulk lane.
const SMALL: u64 = 16 << 10;

/// A lease's session, as the client sees it.
pub(super) struct Link {
    pub(super) address: String,
    sink: Arc<dyn NoticeSink>,
    pub(super) commands: Mutex<Commands>,
    pub(super) bulk: Mutex<Bulk>,
    /// Set while the sender has been notified of queued commands.
    has_commands: AtomicBool,
    pub(super) send_commands: Notify,
    pub(super) send_bulk: Notify,
    state: Mutex<State>,
    changed: Condvar,
    requests: AtomicU64,
    transfers_begun: AtomicU64,
    /// Set when something was received since the last command.
    has_heard: AtomicBool,
    /// The number of flights of commands. A flight starts with the first command after something was received.
    flights: AtomicU64,
}

/// The lane of commands.
pub(super) struct Commands {
    pub(super) outgoing: Outgoing,
    /// The streams that are not retired.
    submitted: FxHashMap<StreamId, Submitted>,
}

/// The tickets that were taken on a stream.
#[derive(Clone, Copy, Default)]
struct Submitted {
    /// The number of the last one.
    last: u64,
    /// The number of the first one since commands were last given out for sending.
    first: u64,
    /// The sequence number of its command.
    first_sequence: u64,
}

/// The lane of bulk data.
pub(super) struct Bulk {
    pub(super) outgoing: Outgoing,
    pending: VecDeque<Pending>,
}

/// An upload whose bytes are not all copied to the lane.
struct Pending {
    /// The submission of the upload. `None` for the content of a new graph.
    ticket: Option<Ticket>,
    transfer: TransferId,
    source: Source,
    bytes: usize,
    sent: usize,
}

/// The memory whose bytes an upload sends.
enum Source {
    Block { block: Arc<HostBlock>, start: usize },
    Owned(Vec<u8>),
}

#[derive(Default)]
struct State {
    transfers: Transfers,
    replies: FxHashMap<u64, Answer>,
    /// The code of modules that the node may ask for.
    images: FxHashMap<Hash, (Bytes, Vec<ModuleId>)>,
    hashes: FxHashMap<ModuleId, Hash>,
    loading: FxHashMap<u64, ModuleId>,
    lost: Option<Error>,
}

impl Link {
    pub(super) fn new(address: String, epoch: u32, sink: Arc<dyn NoticeSink>) -> Arc<Self> {
        Arc::new(Self {
            address,
            sink,
            commands: Mutex::new(Commands {
                outgoing: Outgoing::new(epoch),
                submitted: FxHashMap::default(),
            }),
            bulk: Mutex::new(Bulk { outgoing: Outgoing::new(epoch), pending: VecDeque::new() }),
            has_commands: AtomicBool::new(false),
            send_commands: Notify::new(),
            send_bulk: Notify::new(),
            state: Mutex::default(),
            changed: Condvar::new(),
            requests: AtomicU64::new(1),
            transfers_begun: AtomicU64::new(1),
            has_heard: AtomicBool::new(true),
            flights: AtomicU64::new(0),
        })
    }

    /// Sends a command, without waiting for anything.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the wire protocol does not have the command.
    #[inline]
    pub(super) fn send(&self, command: &Command<'_>) -> Result<(), Error> {
        let unsupported = || Error::unsupported(Feature::Control, &self.address);
        let opcode = command.opcode().ok_or_else(unsupported)?;
        let mut commands = self.commands.lock();
        let sequence = commands.outgoing.push(opcode, |out| command.encode(out));
        if let Some(Ticket { stream, number }) = taken_by(command) {
            let last_sent = commands.outgoing.last_sent();
            let submitted = commands.submitted.entry(stream).or_default();
            if submitted.first_sequence <= last_sent {
                (submitted.first, submitted.first_sequence) = (number, sequence);
            }
            submitted.last = number;
        }
        drop(commands);
        if self.has_heard.load(Ordering::Relaxed) && self.has_heard.swap(false, Ordering::Relaxed) {
            self.flights.fetch_add(1, Ordering::Relaxed);
        }
        if !self.has_commands.swap(true, Ordering::AcqRel) {
            self.send_commands.notify_one();
        }
        Ok(())
    }

    /// Takes the commands to send next. Returns `None` if there are none, or if too many bytes are not acknowledged.
    pub(super) fn take_commands(&self) -> Option<Bytes> {
        self.has_commands.store(false, Ordering::Release);
        let outgoing = &mut self.commands.lock().outgoing;
        if outgoing.in_flight() < COMMANDS_WINDOW { outgoing.take() } else { None }
    }

    /// The number of flights of commands so far. A flight ends when something is received, so a pipeline that is sent
    /// in one flight takes one round trip.
    pub(super) fn flights(&self) -> u64 {
        self.flights.load(Ordering::Relaxed)
    }

    pub(super) fn next_transfer(&self) -> TransferId {
        TransferId(self.transfers_begun.fetch_add(1, Ordering::Relaxed))
    }

    /// Adds an upload for the bulk lane. The bytes are copied later, so progress that covers it is held until then.
    ///
    /// # Errors
    /// The error that lost the lease. Then the block is not used.
    pub(super) fn upload(
        &self,
        ticket: Ticket,
        transfer: TransferId,
        block: Arc<HostBlock>,
        start: usize,
        bytes: usize,
    ) -> Result<(), Error> {
        // Held until the upload is in the lane, so that `lose` removes it.
        let mut state = self.state.lock();
        state.check()?;
        state.transfers.add(ticket);
        self.push_bulk(Some(ticket), transfer, Source::Block { block, start }, bytes);
        Ok(())
    }

    /// Returns the content of a graph command: the bytes themselves, or their upload on the bulk lane if there are more
    /// than `SMALL` bytes. Progress that covers the ticket of a launch is held as with [`upload`](Self::upload).
    ///
    /// # Errors
    /// The errors of [`upload`](Self::upload), and [`Error::OutOfHostMemory`] if too many bytes of new graphs wait.
    pub(super) fn content<'a>(
        &self,
        ticket: Option<Ticket>,
        bytes: &'a mut Vec<u8>,
    ) -> Result<Content<'a>, Error> {
        let length = bytes.len();
        if length as u64 <= SMALL {
            return Ok(Content::Inline(bytes));
        }
        let mut state = self.state.lock();
        state.check()?;
        match ticket {
            Some(ticket) => state.transfers.add(ticket),
            // A node may take none, and report their launches as complete all the same.
            None if length > NEW_GRAPHS - self.bulk.lock().new_graphs() => {
                return Err(Error::OutOfHostMemory { requested: length as u64 });
            }
            None => {}
        }
        let transfer = self.next_transfer();
        self.push_bulk(ticket, transfer, Source::Owned(std::mem::take(bytes)), length);
        Ok(Content::Bulk { transfer, bytes: length as u64 })
    }

    fn push_bulk(
        &self,
        ticket: Option<Ticket>,
        transfer: TransferId,
        source: Source,
        bytes: usize,
    ) {
        let pending = Pending { ticket, transfer, source, bytes, sent: 0 };
        self.bulk.lock().pending.push_back(pending);
        self.send_bulk.notify_one();
    }

    /// Counts an upload whose bytes travel with its command. Returns `false` if its bytes have to travel on the bulk
    /// lane.
    pub(super) fn upload_inline(&self, ticket: Ticket, bytes: u64) -> bool {
        bytes <= SMALL && self.state.lock().transfers.add_inline(ticket, bytes)
    }

    /// Adds a download.
    ///
    /// # Errors
    /// The errors of [`upload`](Self::upload).
    pub(super) fn download(
        &self,
        ticket: Ticket,
        transfer: TransferId,
        block: Arc<HostBlock>,
        start: usize,
        bytes: usize,
    ) -> Result<(), Error> {
        let mut state = self.state.lock();
        state.check()?;
        state.transfers.add_download(ticket, transfer, block, start, bytes);
        Ok(())
    }

    /// Copies the next bytes of uploads to the bulk lane, and takes the frames to send next. Returns `None` if there
    /// are none, or if too many bytes are not acknowledged.
    pub(super) fn take_bulk(&self) -> Option<Bytes> {
        let (frames, finished) = self.bulk.lock().take()?;
        if let Some(ticket) = finished {
            // The node reports progress behind the bytes, unless it refused the upload.
            let progress = self.state.lock().transfers.finish(ticket);
            self.deliver(progress);
        }
        Some(frames)
    }

    /// Sends a request of the wire protocol. `answer` gets the reply.
    pub(super) fn request(&self, request: Request, answer: Answer) {
        let id = self.requests.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state.lock();
        if let Err(error) = state.check() {
            drop(state);
            return answer.give(Err(not_submitted(error)));
        }
        if let Request::Loaded { module } = request {
            state.loading.insert(id, module);
        }
        state.replies.insert(id, answer);
        _ = self.send(&Command::Request { id, request });
    }

    /// Keeps the code of a module until the node has loaded it.
    pub(super) fn keep_image(&self, module: ModuleId, hash: Hash, image: Bytes) {
        let mut state = self.state.lock();
        state.hashes.insert(module, hash);
        state.images.entry(hash).or_insert_with(|| (image, Vec::new())).1.push(module);
    }

    pub(super) fn drop_image(&self, module: ModuleId) {
        self.state.lock().drop_image(module);
    }

    /// Returns the code with a hash.
    pub(super) fn image(&self, hash: &Hash) -> Option<Bytes> {
        self.state.lock().images.get(hash).map(|(image, _)| image.clone())
    }

    /// The progress of a stream.
    ///
    /// # Errors
    /// The error that lost the lease.
    pub(super) fn peek(&self, stream: StreamId) -> Result<u64, Error> {
        let state = self.state.lock();
        state.check()?;
        Ok(state.transfers.complete(stream))
    }

    /// Waits until a ticket is complete.
    ///
    /// # Errors
    /// The error that lost the lease.
    pub(super) fn wait(&self, ticket: Ticket) -> Result<(), Error> {
        let mut state = self.state.lock();
        loop {
            if state.transfers.complete(ticket.stream) >= ticket.number {
                return Ok(());
            }
            state.check()?;
            self.changed.wait(&mut state);
        }
    }

    /// Adds a stream, before its command is sent.
    pub(super) fn add_stream(&self, stream: StreamId) {
        self.commands.lock().submitted.insert(stream, Submitted::default());
        self.state.lock().transfers.add_stream(stream);
    }

    pub(super) fn retire(&self, stream: StreamId) {
        self.commands.lock().submitted.remove(&stream);
        self.state.lock().transfers.retire(stream);
    }

    /// Returns the error that lost the lease.
    pub(super) fn lost(&self) -> Option<Error> {
        self.state.lock().lost.clone()
    }

    /// Checks that the node has got a submission that it reports.
    ///
    /// # Errors
    /// It was not sent. Such a report would complete later submissions, whose copies have not begun, or those that wait for
    /// acknowledgements, which would be without limit.
    fn check_sent(&self, Ticket { stream, number }: Ticket) -> Result<(), SessionError> {
        let commands = self.commands.lock();
        // A report may arrive again after the end of its stream.
        let Some(submitted) = commands.submitted.get(&stream) else { return Ok(()) };
        let is_sent = submitted.first_sequence <= commands.outgoing.last_sent();
        let sent = if is_sent { submitted.last } else { submitted.first.saturating_sub(1) };
        if number <= sent {
            return Ok(());
        }
        let stream = stream.0;
        Err(SessionError::Command(format!(
            "it reports submission {number} of stream {stream}, and {sent} were sent"
        )))
    }

    /// Takes an event of the node, on the thread of the connection. Returns the hash of a blob that the node needs. A
    /// request for one that the client does not have is ignored: the node may ask for the code of a load that was
    /// cancelled meanwhile, and the caller keeps a hash until its blob is sent.
    ///
    /// # Errors
    /// It reports a submission that was not sent.
    pub(super) fn event(&self, event: Event) -> Result<Option<Hash>, SessionError> {
        self.has_heard.store(true, Ordering::Relaxed);
        match event {
            Event::Notice(Notice::Progress { stream, complete, .. }) => {
                self.check_sent(Ticket { stream, number: complete })?;
                let progress = self.state.lock().transfers.progress(stream, complete);
                self.deliver(progress);
            }
            Event::Notice(Notice::Lost { error }) => self.lose(error),
            Event::Notice(notice) => {
                let progress = match &notice {
                    Notice::Failed { ticket, .. } => {
                        self.check_sent(*ticket)?;
                        self.state.lock().transfers.failed(*ticket)
                    }
                    _ => None,
                };
                // SAFETY: the node reported this notice, and its backend keeps the rules of `Backend`.
                unsafe { self.sink.notice(notice) };
                self.deliver(progress);
            }
            Event::Reply { id, reply } => self.reply(id, reply),
            Event::NeedBlob { hash } => {
                return Ok(Some(hash).filter(|hash| self.image(hash).is_some()));
            }
            Event::Ending { status, detail, .. } => {
                tracing::warn!(%status, detail, address = self.address, "the lease ends soon");
            }
        }
        Ok(None)
    }

    /// Takes bytes of a download.
    ///
    /// # Errors
    /// The bytes are not those that come next.
    pub(super) fn chunk(&self, chunk: &Chunk<'_>) -> Result<(), SessionError> {
        let place =
            self.state.lock().transfers.place(chunk.transfer, chunk.offset, chunk.bytes.len())?;
        let Some(place) = place else { return Ok(()) };
        let range = place.start..place.start + chunk.bytes.len();
        // SAFETY: this method carries out the download that names these bytes. The client touches them only when
        // progress covers the download, and `transfers` holds that progress back until `arrived`.
        if let Some(bytes) = unsafe { place.block.shared_bytes_mut(range) } {
            bytes.copy_from_slice(chunk.bytes);
        }
        let progress = self.state.lock().transfers.arrived(chunk.transfer, &place);
        self.deliver(progress);
        Ok(())
    }

    fn deliver(&self, progress: Option<(StreamId, u64)>) {
        if let Some((stream, complete)) = progress {
            self.changed.notify_all();
            let notice = Notice::Progress { stream, accepted: complete, complete };
            // SAFETY: the node's backend reported it, failures travel in front of it on the same lane, and the bytes of
            // all copies that it covers are there.
            unsafe { self.sink.notice(notice) };
        }
    }

    fn reply(&self, id: u64, reply: Result<Reply, Error>) {
        let answer = {
            let mut state = self.state.lock();
            if let Some(module) = state.loading.remove(&id) {
                state.drop_image(module);
            }
            state.replies.remove(&id)
        };
        if let Some(answer) = answer {
            answer.give(reply);
        }
    }

    /// Fails everything that is not complete, because the lease is lost.
    pub(super) fn lose(&self, error: Error) {
        let replies = {
            let mut state = self.state.lock();
            if state.lost.is_some() {
                return;
            }
            state.lost = Some(error.clone());
            // From now on no bytes of the client's memory are written or read: later copies are refused, and this runs
            // on the thread that copies (`chunk`, `take_bulk`).
            state.transfers.clear();
            self.bulk.lock().pending.clear();
            std::mem::take(&mut state.replies)
        };
        self.changed.notify_all();
        // SAFETY: nothing that is not complete will be, and no host memory is used any more.
        unsafe { self.sink.notice(Notice::Lost { error: error.clone() }) };
        replies.into_values().for_each(|answer| answer.give(Err(error.clone())));
    }
}

/// The ticket that a command takes on its stream.
#[inline]
fn taken_by(command: &Command<'_>) -> Option<Ticket> {
    match command {
        Command::Submit { ticket, .. } => Some(*ticket),
        Command::Control(Control::Allocate { at, .. } | Control::AllocateIn { at, .. }) => {
            Some(*at)
        }
        _ => None,
    }
}

impl Bulk {
    /// The bytes of new graphs that wait, at most [`NEW_GRAPHS`].
    fn new_graphs(&self) -> usize {
        let new = self.pending.iter().filter(|content| content.ticket.is_none());
        new.map(|content| content.bytes).sum()
    }

    /// The frames to send next, and the upload that is finished with them.
    fn take(&mut self) -> Option<(Bytes, Option<Ticket>)> {
        if self.outgoing.has_more() {
            return Some((self.outgoing.take()?, None));
        }
        if self.outgoing.bytes() >= BULK_WINDOW {
            return None;
        }
        let upload = self.pending.front_mut()?;
        let count = (upload.bytes - upload.sent).min(Chunk::LIMIT);
        let (all, start) = match &upload.source {
            // SAFETY: the caller of `submit` writes to these bytes only when progress covers the upload, and
            // `transfers` holds that progress back until the upload is finished. A session that ends removes its
            // uploads (`lose`) before it reports the end.
            Source::Block { block, start } => (unsafe { block.shared_bytes() }, *start),
            Source::Owned(bytes) => (&bytes[..], 0),
        };
        let start = start + upload.sent;
        let bytes = all.get(start..start + count).unwrap_or_default();
        let chunk = Chunk { transfer: upload.transfer, offset: upload.sent as u64, bytes };
        self.outgoing.push(Chunk::OPCODE, |out| chunk.encode(out));
        upload.sent += count;
        let (is_finished, ticket) = (upload.sent >= upload.bytes, upload.ticket);
        if is_finished {
            self.pending.pop_front();
        }
        Some((self.outgoing.take()?, ticket.filter(|_| is_finished)))
    }
}

impl State {
    /// # Errors
    /// The error that lost the lease.
    fn check(&self) -> Result<(), Error> {
        self.lost.clone().map_or(Ok(()), Err)
    }

    fn drop_image(&mut self, module: ModuleId) {
        let Some(hash) = self.hashes.remove(&module) else { return };
        if let Some((_, users)) = self.images.get_mut(&hash) {
            users.retain(|user| *user != module);
            if users.is_empty() {
                self.images.remove(&hash);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use cuda_core::protocol::{AllocId, GraphId, Region};

    use super::*;
    use crate::wire::Step;

    struct Ignore;

    // SAFETY: keeps nothing.
    unsafe impl NoticeSink for Ignore {
        unsafe fn notice(&self, _: Notice) {}
    }

    /// The client keeps the hashes that the node needs until their blobs are sent.
    #[test]
    fn only_blobs_that_the_client_has_are_needed() {
        let link = Link::new("node".into(), 1, Arc::new(Ignore));
        let needed = |number: u8| link.event(Event::NeedBlob { hash: [number; 32] }).unwrap();
        link.keep_image(ModuleId(1), [1; 32], Bytes::from_static(b"code"));
        assert_eq!((needed(1), needed(2)), (Some([1; 32]), None));
        // The node may ask for the code of a load that was cancelled.
        link.drop_image(ModuleId(1));
        assert_eq!((needed(1), link.lost()), (None, None));
    }

    #[test]
    fn commands_wait_while_too_many_bytes_are_not_acknowledged() {
        let link = Link::new("node".into(), 1, Arc::new(Ignore));
        link.add_stream(StreamId(1));
        let bytes = vec![0; SMALL as usize];
        let waits = || {
            let outgoing = &link.commands.lock().outgoing;
            outgoing.bytes() - outgoing.in_flight()
        };
        let (stream, mut number, mut taken) = (StreamId(1), 0, 0);
        let mut send = || {
            number += 1;
            let ticket = Ticket { stream, number };
            let to = Region { alloc: AllocId(1), offset: 0 };
            let step = Step::Write { to, bytes: &bytes };
            link.send(&Command::Submit { ticket, after: Vec::new(), step }).unwrap();
            taken += link.take_commands().map_or(0, |frames| frames.len());
            // Otherwise a node that acknowledges nothing lets the program go on, and what waits fills the memory.
            let progress = Notice::Progress { stream, accepted: number, complete: number };
            assert_eq!(link.event(progress.into()).is_ok(), waits() == 0, "submission {number}");
            taken
        };
        // More than the window. Each command takes more than its bytes.
        let count = COMMANDS_WINDOW / SMALL as usize + 100;
        let most = (0..count).map(|_| send()).max().unwrap();
        assert!(most < COMMANDS_WINDOW + 2 * SMALL as usize, "{most} bytes were sent");
        link.commands.lock().outgoing.acknowledge(1000).unwrap();
        assert!(send() > most);
    }

    /// Otherwise a program that launches a graph again and again fills its memory with what the node does not take.
    #[test]
    fn progress_of_a_launch_waits_for_its_content() {
        let link = Link::new("node".into(), 1, Arc::new(Ignore));
        let stream = StreamId(1);
        link.add_stream(stream);
        // The node acknowledges nothing, and reports each launch as complete.
        for number in 1..=40 {
            let ticket = Ticket { stream, number };
            let mut content = vec![0; BULK_WINDOW / 16];
            let changes = link.content(Some(ticket), &mut content).unwrap();
            let step = Step::Graph { graph: GraphId(1), changes };
            link.send(&Command::Submit { ticket, after: Vec::new(), step }).unwrap();
            link.take_commands().unwrap();
            while link.take_bulk().is_some() {}
            let progress = Notice::Progress { stream, accepted: number, complete: number };
            link.event(progress.into()).unwrap();
        }
        assert_eq!(link.peek(stream).unwrap(), 16);
        let last = link.bulk.lock().outgoing.last();
        link.bulk.lock().outgoing.acknowledge(last).unwrap();
        while link.take_bulk().is_some() {}
        assert_eq!(link.peek(stream).unwrap(), 32);
    }

    #[test]
    fn new_graphs_beyond_what_a_node_keeps_are_refused() {
        let link = Link::new("node".into(), 1, Arc::new(Ignore));
        let create = || link.content(None, &mut vec![0; NEW_GRAPHS / 4]).map(drop);
        assert_eq!([(); 5].map(|()| create().is_ok()), [true, true, true, true, false]);
        // The program can go on when the node takes them.
        while link.take_bulk().is_some() {
            let mut bulk = link.bulk.lock();
            let last = bulk.outgoing.last();
            bulk.outgoing.acknowledge(last).unwrap();
        }
        create().unwrap();
    }
}
