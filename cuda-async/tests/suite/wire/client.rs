//! The client: a [`Backend`] without a device.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    },
    thread,
};

use cuda_async::{Error, Result, cuda_core::DeviceInfo};
use cuda_core::{
    Backend, Command, HostBlock, HostId, Notice, NoticeSink, Reply, Request, StreamId,
};

use super::frame::{Answer, Call, What, decode, encode};

type Waiting = SyncSender<Result<Option<Reply>>>;

struct Client {
    info: DeviceInfo,
    to_node: Mutex<Sender<Vec<u8>>>,
    shared: Arc<Shared>,
    calls: AtomicU64,
}

#[derive(Default)]
struct Shared {
    waiting: Mutex<HashMap<u64, Waiting>>,
    /// The host blocks that downloads fill.
    landing: Mutex<HashMap<HostId, Arc<HostBlock>>>,
}

pub fn start(
    info: DeviceInfo,
    to_node: Sender<Vec<u8>>,
    from_node: Receiver<Vec<u8>>,
    sink: Arc<dyn NoticeSink>,
) -> Arc<dyn Backend> {
    let shared = Arc::new(Shared::default());
    let (notices, to_tell) = channel();
    let receiving = shared.clone();
    thread::spawn(move || from_node.iter().for_each(|bytes| receiving.receive(&bytes, &notices)));
    // A woken task may enqueue, and then waits for the receiving thread.
    thread::spawn(move || to_tell.iter().for_each(|notice: Notice| sink.notice(notice)));
    Arc::new(Client { info, to_node: Mutex::new(to_node), shared, calls: AtomicU64::new(0) })
}

impl Shared {
    fn receive(&self, bytes: &[u8], notices: &Sender<Notice>) {
        match decode(bytes) {
            Answer::Notice(notice) => drop(notices.send(notice)),
            Answer::Done { number, result } => {
                let waiting = self.waiting.lock().unwrap().remove(&number).unwrap();
                waiting.send(result).unwrap();
            }
            Answer::Landed { to, bytes } => {
                let block = self.landing.lock().unwrap().remove(&to.block).unwrap();
                let start = to.offset as usize;
                // SAFETY: this carries out the download that names these bytes.
                let place = unsafe { block.shared_bytes_mut(start..start + bytes.len()) };
                place.unwrap().copy_from_slice(&bytes);
            }
        }
    }
}

impl Client {
    fn call(&self, what: What) -> Result<Option<Reply>> {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        let (done, answer) = sync_channel(1);
        self.shared.waiting.lock().unwrap().insert(number, done);
        self.to_node.lock().unwrap().send(encode(&Call { number, what })).unwrap();
        answer.recv().unwrap()
    }
}

impl Backend for Client {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    unsafe fn enqueue(
        &self,
        stream: StreamId,
        command: Command<'_>,
        host: &[Arc<HostBlock>],
    ) -> Result<()> {
        let mut bytes = Vec::new();
        match &command {
            Command::Upload { from, bytes: count, .. } => {
                let block = host.iter().find(|block| block.id() == from.block).unwrap();
                let start = from.offset as usize;
                // SAFETY: the block is not written until the command has run.
                bytes.extend_from_slice(unsafe {
                    &block.shared_bytes()[start..start + *count as usize]
                });
            }
            Command::Download { to, .. } => {
                let block = host.iter().find(|block| block.id() == to.block).unwrap();
                self.shared.landing.lock().unwrap().insert(to.block, block.clone());
            }
            _ => {}
        }
        self.call(What::Enqueue { stream, command: command.into_owned(), bytes }).map(drop)
    }

    fn request(&self, request: Request) -> Result<Reply> {
        self.call(What::Request(request))?.ok_or(Error::AlreadyEnded)
    }
}
