//! The far end: a CPU device behind a link.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, mpsc::Receiver},
    thread,
};

use cuda_async::{Error, Result};
use cuda_core::{
    Backend, DeviceInfo, NoticeSink, Provider, Ticket,
    order::{Poison, uses_of},
    protocol::{
        Answer as Replies, Control, HostBlock, HostRegion, Notice, StreamId, Submission, Work,
    },
};
use cuda_cpu::CpuProvider;

use super::{
    delay::FarEnd,
    schema::{Answer, Call, decode_call, encode_answer},
};

/// Sends answers. Held while the bytes of downloads are sent, so that no progress overtakes them.
struct Outbox {
    to_client: FarEnd,
    /// The largest number of round trips in a frame of the client.
    trips: u64,
    streams: HashMap<StreamId, Stream>,
    /// The latest fault. Submissions that a lost device refuses fail with it, as those do that it skips.
    fault: Option<Error>,
}

#[derive(Default)]
struct Stream {
    /// Downloads that the client waits for.
    landings: Vec<(u64, Arc<HostBlock>)>,
    /// The last submission that the device took, and how far it is.
    taken: u64,
    complete: u64,
    /// The last submission that the device refused behind that.
    refused: u64,
}

impl Outbox {
    fn send(&self, answer: &Answer) {
        self.to_client.send(encode_answer(self.trips + 1, answer));
    }

    /// The device has completed this number.
    fn progress(&mut self, id: StreamId, complete: u64) {
        let stream = self.streams.entry(id).or_default();
        stream.complete = complete.max(stream.complete);
        let (landed, rest): (Vec<_>, _) =
            std::mem::take(&mut stream.landings).into_iter().partition(|(at, _)| *at <= complete);
        stream.landings = rest;
        let done = stream.complete >= stream.taken;
        let complete = if done { stream.complete.max(stream.refused) } else { stream.complete };
        for (number, block) in landed {
            // SAFETY: the download has run or was skipped, and nothing else knows of the block.
            let bytes = unsafe { block.shared_bytes() }.to_vec();
            self.send(&Answer::Landed { ticket: Ticket { stream: id, number }, bytes });
        }
        self.send(&Answer::Notice(Notice::Progress { stream: id, accepted: complete, complete }));
    }
}

struct Sink(Arc<Mutex<Outbox>>);

// SAFETY: notices are passed on as they are, behind the bytes of the downloads that they cover.
unsafe impl NoticeSink for Sink {
    unsafe fn notice(&self, notice: Notice) {
        let mut outbox = self.0.lock().unwrap();
        match notice {
            Notice::Progress { stream, complete, .. } => outbox.progress(stream, complete),
            Notice::Failed { ticket, error } => {
                if matches!(error, Error::Fault(_)) {
                    outbox.fault = Some(error.clone());
                }
                outbox.send(&Answer::Notice(Notice::Failed { ticket, error }));
            }
            other => outbox.send(&Answer::Notice(other)),
        }
    }
}

struct Node {
    backend: Arc<dyn Backend>,
    outbox: Arc<Mutex<Outbox>>,
    /// The write sets of submissions that the device refused.
    poison: Poison,
}

pub fn start(
    provider: CpuProvider,
    from_client: Receiver<Vec<u8>>,
    to_client: FarEnd,
) -> Result<DeviceInfo> {
    let outbox =
        Arc::new(Mutex::new(Outbox { to_client, trips: 0, streams: HashMap::new(), fault: None }));
    let backend = provider.open(0, Arc::new(Sink(outbox.clone())))?;
    let info = backend.info().clone();
    let node = Node { backend, outbox, poison: Poison::default() };
    thread::spawn(move || from_client.iter().for_each(|frame| node.receive(&frame)));
    Ok(info)
}

impl Node {
    fn receive(&self, frame: &[u8]) {
        let (trips, call) = decode_call(frame);
        {
            let mut outbox = self.outbox.lock().unwrap();
            outbox.trips = outbox.trips.max(trips);
        }
        match call {
            Call::Submit { ticket, after, work, bytes } => {
                self.submit(ticket, &after, work, &bytes)
            }
            Call::Control(
                control @ (Control::Allocate { id, at, .. } | Control::AllocateIn { id, at, .. }),
            ) => {
                // SAFETY: the client is held to the rules of `Backend`.
                let made = unsafe { self.backend.control(control) };
                match made {
                    Ok(()) => self.took(at),
                    Err(error) => {
                        let error = self.cause(error);
                        self.poison.spread_over(id, &error);
                        self.refuse(at, error);
                    }
                }
            }
            Call::Control(Control::Want { ticket }) => self.want(ticket),
            Call::Control(control) => {
                // SAFETY: as above. A control that fails shows in the submissions that need it.
                let _ = unsafe { self.backend.control(control) };
            }
            Call::Request { id, request } => {
                let outbox = self.outbox.clone();
                let reply = move |reply| {
                    outbox.lock().unwrap().send(&Answer::Reply { id, reply });
                };
                self.backend.request(request, Replies::new(reply));
            }
        }
    }

    fn submit(&self, ticket: Ticket, after: &[Ticket], work: Work<'static>, bytes: &[u8]) {
        let (uses, overwrites) = (uses_of(&work), work.overwrites());
        let done = match self.poison.check(&uses, overwrites) {
            Some(error) => Err(error),
            None => self.carry_out(ticket, after, work, bytes).map_err(|error| self.cause(error)),
        };
        match done {
            Ok(()) => self.took(ticket),
            Err(error) => {
                self.poison.spread(&uses, &error);
                self.refuse(ticket, error);
            }
        }
    }

    fn carry_out(
        &self,
        ticket: Ticket,
        after: &[Ticket],
        work: Work<'static>,
        bytes: &[u8],
    ) -> Result<()> {
        let start_of = |block: &HostBlock| HostRegion { block: block.id(), offset: 0 };
        let (work, block) = match work {
            Work::Upload { to, bytes: count, .. } => {
                let mut block = HostBlock::heap(bytes.len())?;
                block.bytes_mut().copy_from_slice(bytes);
                let from = start_of(&block);
                (Work::Upload { from, to, bytes: count }, Some(Arc::new(block)))
            }
            Work::Download { from, bytes, .. } => {
                let block = Arc::new(HostBlock::heap(bytes as usize)?);
                let to = start_of(&block);
                let mut outbox = self.outbox.lock().unwrap();
                let stream = outbox.streams.entry(ticket.stream).or_default();
                stream.landings.push((ticket.number, block.clone()));
                (Work::Download { from, to, bytes }, Some(block))
            }
            other => (other, None),
        };
        let submission = Submission { ticket, after, work: &work };
        // SAFETY: the client is held to the rules of `Backend`; blocks made here are used by this submission alone.
        unsafe { self.backend.submit(&submission, block.as_slice()) }
    }

    /// The root cause of a refusal.
    fn cause(&self, error: Error) -> Error {
        match error {
            Error::DeviceLost { .. } => self.outbox.lock().unwrap().fault.clone().unwrap_or(error),
            error => error,
        }
    }

    fn took(&self, ticket: Ticket) {
        self.outbox.lock().unwrap().streams.entry(ticket.stream).or_default().taken = ticket.number;
    }

    /// The device did not take a submission: it fails, and its number completes behind those before it.
    fn refuse(&self, ticket: Ticket, error: Error) {
        let mut outbox = self.outbox.lock().unwrap();
        outbox.send(&Answer::Notice(Notice::Failed { ticket, error }));
        let stream = outbox.streams.entry(ticket.stream).or_default();
        stream.landings.retain(|(number, _)| *number != ticket.number);
        stream.refused = ticket.number;
    }

    fn want(&self, ticket: Ticket) {
        let taken = {
            let mut outbox = self.outbox.lock().unwrap();
            outbox.streams.entry(ticket.stream).or_default().taken
        };
        if taken == 0 {
            return self.outbox.lock().unwrap().progress(ticket.stream, 0);
        }
        let ticket = Ticket { number: ticket.number.min(taken), ..ticket };
        // SAFETY: gives nothing up.
        let _ = unsafe { self.backend.control(Control::Want { ticket }) };
    }
}
