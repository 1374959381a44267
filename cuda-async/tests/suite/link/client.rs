//! The near end: a backend that knows no device.

use std::{
    any::Any,
    collections::HashMap,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicU64, Ordering},
        mpsc::Receiver,
    },
    thread,
};

use cuda_async::{Error, Result};
use cuda_core::{
    Backend, DeviceInfo, NoticeSink, Ticket,
    protocol::{
        Answer as Replies, Capabilities, Control, Foreign, HostBlock, Notice, Request, StreamId,
        Submission, Work,
    },
};

use super::{
    delay::FarEnd,
    schema::{Answer, Call, decode_answer, encode_call},
};

struct Client {
    info: DeviceInfo,
    capabilities: Capabilities,
    to_node: Mutex<FarEnd>,
    shared: Arc<Shared>,
    requests: AtomicU64,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// Round trips on the longest chain of dependent frames.
    trips: Arc<AtomicU64>,
}

#[derive(Default)]
struct State {
    complete: HashMap<StreamId, u64>,
    /// The blocks that downloads fill.
    landing: HashMap<(StreamId, u64), (Arc<HostBlock>, usize)>,
    replies: HashMap<u64, Replies>,
    lost: Option<Error>,
}

pub fn start(
    info: DeviceInfo,
    to_node: FarEnd,
    from_node: Receiver<Vec<u8>>,
    sink: Arc<dyn NoticeSink>,
    trips: Arc<AtomicU64>,
) -> Arc<dyn Backend> {
    let shared = Arc::new(Shared { state: Mutex::default(), changed: Condvar::new(), trips });
    let receiving = shared.clone();
    thread::spawn(move || {
        from_node.iter().for_each(|frame| receiving.receive(&frame, &*sink));
        receiving.end(&*sink);
    });
    let mut capabilities = Capabilities::local(info.memory);
    capabilities.ordered_visibility = false;
    capabilities.slow_host_blocks = true;
    capabilities.pools = 64;
    let (to_node, requests) = (Mutex::new(to_node), AtomicU64::new(0));
    Arc::new(Client { info, capabilities, to_node, shared, requests })
}

impl Shared {
    fn receive(&self, frame: &[u8], sink: &dyn NoticeSink) {
        let (trips, answer) = decode_answer(frame);
        self.trips.fetch_max(trips, Ordering::SeqCst);
        match answer {
            Answer::Landed { ticket, bytes } => {
                let landing =
                    self.state.lock().unwrap().landing.remove(&(ticket.stream, ticket.number));
                let (block, start) = landing.unwrap();
                // SAFETY: this carries out the download that names these bytes.
                let place = unsafe { block.shared_bytes_mut(start..start + bytes.len()) };
                place.unwrap().copy_from_slice(&bytes);
            }
            Answer::Notice(notice) => {
                // SAFETY: the node's notices are those of its device, and downloads have landed before.
                unsafe { sink.notice(notice.clone()) };
                match notice {
                    Notice::Progress { stream, complete, .. } => {
                        let mut state = self.state.lock().unwrap();
                        let known = state.complete.entry(stream).or_default();
                        *known = complete.max(*known);
                        state.landing.retain(|(of, number), _| *of != stream || *number > complete);
                    }
                    Notice::Lost { error } => self.state.lock().unwrap().lost = Some(error),
                    _ => {}
                }
                self.changed.notify_all();
            }
            Answer::Reply { id, reply } => {
                let answer = self.state.lock().unwrap().replies.remove(&id).unwrap();
                answer.give(reply);
            }
        }
    }

    /// The node is gone.
    fn end(&self, sink: &dyn NoticeSink) {
        let cause = "the node is gone".into();
        let error = Error::DeviceLost { address: "link".into(), cause };
        // SAFETY: nothing that is not complete will be.
        unsafe { sink.notice(Notice::Lost { error: error.clone() }) };
        let replies = {
            let mut state = self.state.lock().unwrap();
            state.lost = Some(error);
            std::mem::take(&mut state.replies)
        };
        self.changed.notify_all();
        drop(replies);
    }
}

impl Client {
    fn send(&self, call: &Call) {
        let to_node = self.to_node.lock().unwrap();
        to_node.send(encode_call(self.shared.trips.load(Ordering::SeqCst), call));
    }
}

// SAFETY: the link keeps the order of frames, the node carries them out on a CPU device, and progress is passed on after
// the bytes of the downloads that it covers.
unsafe impl Backend for Client {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    unsafe fn submit(&self, submission: &Submission<'_>, host: &[Arc<HostBlock>]) -> Result<()> {
        let Submission { ticket, after, work } = submission;
        let mut bytes = Vec::new();
        match work {
            Work::Upload { from, bytes: count, .. } => {
                let start = from.offset as usize;
                // SAFETY: the block is not written until the upload is accepted.
                let all = unsafe { host[0].shared_bytes() };
                bytes.extend_from_slice(&all[start..start + *count as usize]);
            }
            Work::Download { to, .. } => {
                let entry = (host[0].clone(), to.offset as usize);
                let mut state = self.shared.state.lock().unwrap();
                state.landing.insert((ticket.stream, ticket.number), entry);
            }
            _ => {}
        }
        let (after, work) = (after.to_vec(), (*work).clone().into_owned());
        self.send(&Call::Submit { ticket: *ticket, after, work, bytes });
        Ok(())
    }

    unsafe fn control(&self, control: Control) -> Result<()> {
        self.send(&Call::Control(control));
        Ok(())
    }

    fn request(&self, request: Request, answer: Replies) {
        let id = self.requests.fetch_add(1, Ordering::Relaxed);
        let mut state = self.shared.state.lock().unwrap();
        if state.lost.is_none() {
            state.replies.insert(id, answer);
            drop(state);
            self.send(&Call::Request { id, request });
        }
    }

    unsafe fn peek(&self, stream: StreamId) -> Result<u64> {
        let state = self.shared.state.lock().unwrap();
        match &state.lost {
            Some(error) => Err(error.clone()),
            None => Ok(state.complete.get(&stream).copied().unwrap_or(0)),
        }
    }

    unsafe fn block_until(&self, ticket: Ticket) -> Result<()> {
        self.send(&Call::Control(Control::Want { ticket }));
        let mut state = self.shared.state.lock().unwrap();
        loop {
            if state.complete.get(&ticket.stream).is_some_and(|known| *known >= ticket.number) {
                return Ok(());
            }
            if let Some(error) = &state.lost {
                return Err(error.clone());
            }
            state = self.shared.changed.wait(state).unwrap();
        }
    }

    fn foreign(&self) -> Option<&dyn Foreign> {
        None
    }

    /// The bytes of uploads were sent, and downloads hold the blocks that they fill.
    fn close(&self, retained: Vec<(Ticket, Box<dyn Any + Send + Sync>)>) {
        drop(retained);
    }
}
