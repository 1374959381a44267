//! The node: a CPU device behind a channel of bytes.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, Sender},
    },
    thread,
};

use cuda_async::{Result, cuda_core::DeviceInfo};
use cuda_core::{
    Backend, Command, HostBlock, HostRegion, Notice, NoticeSink, Provider, Reply, Request, StreamId,
};
use cuda_cpu::CpuProvider;

use super::frame::{Answer, Call, What, decode, encode};

/// Sends answers. Held while the bytes of downloads are sent, so that no notice overtakes them.
struct Outbox {
    to_client: Sender<Vec<u8>>,
    streams: HashMap<StreamId, Landings>,
}

#[derive(Default)]
struct Landings {
    /// The number of downloads enqueued so far.
    enqueued: u64,
    /// The number of downloads enqueued before each notify.
    before: HashMap<u64, u64>,
    flying: Vec<(u64, HostRegion, Arc<HostBlock>)>,
}

impl Outbox {
    fn send(&self, answer: &Answer) {
        // The client may have closed the channel.
        let _ = self.to_client.send(encode(answer));
    }

    /// Sends the bytes of the first `count` downloads of a stream, which are complete.
    fn send_landed(&mut self, stream: StreamId, count: u64) {
        let Some(landings) = self.streams.get_mut(&stream) else { return };
        let flying = std::mem::take(&mut landings.flying);
        let (landed, flying) = flying.into_iter().partition(|(number, ..)| *number <= count);
        landings.flying = flying;
        for (_, to, block) in landed {
            // SAFETY: the download is complete, and no other code uses the block.
            let bytes = unsafe { block.shared_bytes() }.to_vec();
            self.send(&Answer::Landed { to, bytes });
        }
    }
}

struct Sink(Arc<Mutex<Outbox>>);

impl NoticeSink for Sink {
    fn notice(&self, notice: Notice) {
        let mut outbox = self.0.lock().unwrap();
        let landings = outbox.streams.entry(notice.stream).or_default();
        let count = landings.before.remove(&notice.token).unwrap_or(0);
        outbox.send_landed(notice.stream, count);
        outbox.send(&Answer::Notice(notice));
    }
}

pub fn start(
    ordinal: u32,
    from_client: Receiver<Vec<u8>>,
    to_client: Sender<Vec<u8>>,
) -> Result<DeviceInfo> {
    let outbox = Arc::new(Mutex::new(Outbox { to_client, streams: HashMap::new() }));
    let backend = CpuProvider::default().open(ordinal, Arc::new(Sink(outbox.clone())))?;
    let info = backend.info().clone();
    thread::spawn(move || {
        for bytes in from_client {
            let Call { number, what } = decode(&bytes);
            match what {
                What::Enqueue { stream, command, bytes } => {
                    // SAFETY: the client is held to the same rules.
                    let result = unsafe { enqueue(&*backend, &outbox, stream, command, &bytes) }
                        .map(|()| None);
                    outbox.lock().unwrap().send(&Answer::Done { number, result });
                }
                // On a thread of its own: it may block.
                What::Request(asked) => {
                    let (backend, outbox) = (backend.clone(), outbox.clone());
                    thread::spawn(move || request(&*backend, &outbox, number, asked));
                }
            }
        }
    });
    Ok(info)
}

/// # Safety
/// The same as for [`Backend::enqueue`].
unsafe fn enqueue(
    backend: &dyn Backend,
    outbox: &Mutex<Outbox>,
    stream: StreamId,
    command: Command<'static>,
    bytes: &[u8],
) -> Result<()> {
    // SAFETY: what the caller promised of the command; blocks made here are used by it alone.
    let run = |stream, command, host: &[Arc<HostBlock>]| unsafe {
        backend.enqueue(stream, command, host)
    };
    match command {
        Command::Upload { to, bytes: count, .. } => {
            let mut block = HostBlock::heap(bytes.len())?;
            block.bytes_mut().copy_from_slice(bytes);
            let from = HostRegion { block: block.id(), offset: 0 };
            run(stream, Command::Upload { from, to, bytes: count }, &[Arc::new(block)])
        }
        Command::Download { from, to: theirs, bytes } => {
            let block = Arc::new(HostBlock::heap(bytes as usize)?);
            let to = HostRegion { block: block.id(), offset: 0 };
            run(stream, Command::Download { from, to, bytes }, std::slice::from_ref(&block))?;
            let mut outbox = outbox.lock().unwrap();
            let landings = outbox.streams.entry(stream).or_default();
            landings.enqueued += 1;
            landings.flying.push((landings.enqueued, theirs, block));
            Ok(())
        }
        Command::Notify { token } => {
            {
                let mut outbox = outbox.lock().unwrap();
                let landings = outbox.streams.entry(stream).or_default();
                landings.before.insert(token, landings.enqueued);
            }
            run(stream, command, &[])
        }
        command => run(stream, command, &[]),
    }
}

fn request(backend: &dyn Backend, outbox: &Mutex<Outbox>, number: u64, request: Request) {
    let synchronized = match request {
        Request::Synchronize { stream } | Request::Query { stream } => {
            let mut outbox = outbox.lock().unwrap();
            Some((stream, outbox.streams.entry(stream).or_default().enqueued))
        }
        _ => None,
    };
    let result: Result<Reply> = backend.request(request);
    let mut outbox = outbox.lock().unwrap();
    if let Some((stream, count)) = synchronized
        && !matches!(result, Ok(Reply::Idle(false)))
    {
        outbox.send_landed(stream, count);
    }
    outbox.send(&Answer::Done { number, result: result.map(Some) });
}
