//! A client of the backend that counts its submissions, and a sink that records the notices.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, Sender, channel},
    },
};

use cuda_core::{
    Backend, Error, NoticeSink, Ticket,
    protocol::{
        AllocId, Answer, Control, HostBlock, ModuleId, ModuleImage, Notice, Reply, Request,
        StreamId, Submission, Work,
    },
};

/// Progress of this stream panics in the sink.
pub const PANIC: StreamId = StreamId(666);
/// Progress of this stream blocks in the sink until the test sends to `go`.
pub const BLOCK: StreamId = StreamId(777);

/// Records all notices, and checks that they keep the protocol.
pub struct Sink {
    progress: Mutex<Sender<(StreamId, u64)>>,
    go: Mutex<Receiver<()>>,
    log: Mutex<Log>,
}

#[derive(Default)]
struct Log {
    complete: HashMap<StreamId, u64>,
    failed: HashMap<Ticket, Error>,
    faulted: Vec<Error>,
    violations: Vec<String>,
}

impl Sink {
    pub fn new(progress: Sender<(StreamId, u64)>, go: Receiver<()>) -> Arc<Self> {
        let (progress, go) = (Mutex::new(progress), Mutex::new(go));
        Arc::new(Self { progress, go, log: Mutex::default() })
    }

    /// The faults that were reported and not taken out yet.
    pub fn take_faults(&self) -> Vec<Error> {
        std::mem::take(&mut self.log.lock().unwrap().faulted)
    }

    /// The failure of one submission.
    pub fn failure(&self, ticket: Ticket) -> Option<Error> {
        self.log.lock().unwrap().failed.get(&ticket).cloned()
    }

    /// Takes out the failures of a stream. Returns the first.
    pub fn take_failure(&self, stream: StreamId) -> Option<Error> {
        let mut log = self.log.lock().unwrap();
        let taken = log.failed.extract_if(|ticket, _| ticket.stream == stream);
        taken.min_by_key(|(ticket, _)| ticket.number).map(|(_, error)| error)
    }

    /// The notices that broke the protocol.
    pub fn violations(&self) -> Vec<String> {
        self.log.lock().unwrap().violations.clone()
    }
}

impl Log {
    fn take(&mut self, notice: &Notice) {
        match notice {
            Notice::Failed { ticket, error } => {
                let complete = self.complete.get(&ticket.stream).copied().unwrap_or(0);
                if complete >= ticket.number {
                    self.violations.push(format!("failure of {ticket:?} behind its progress"));
                }
                if self.failed.insert(*ticket, error.clone()).is_some() {
                    self.violations.push(format!("{ticket:?} failed twice"));
                }
            }
            Notice::Progress { stream, accepted, complete } => {
                let known = self.complete.entry(*stream).or_default();
                if *complete < *known || accepted < complete {
                    self.violations.push(format!("{notice:?} after {known}"));
                }
                *known = *complete;
            }
            Notice::Faulted { error } => self.faulted.push(error.clone()),
            other => self.violations.push(format!("{other:?}")),
        }
    }
}

// SAFETY: forwards nothing.
unsafe impl NoticeSink for Sink {
    unsafe fn notice(&self, notice: Notice) {
        self.log.lock().unwrap().take(&notice);
        let Notice::Progress { stream, complete, .. } = notice else { return };
        match stream {
            PANIC => panic!("a waker that panics"),
            BLOCK => _ = self.go.lock().unwrap().recv(),
            _ => _ = self.progress.lock().unwrap().send((stream, complete)),
        }
    }
}

/// Submits from many threads. Each stream has a lock, held while a number is used, as in the library.
#[derive(Clone)]
pub struct Client {
    pub backend: Arc<dyn Backend>,
    numbers: Arc<Mutex<HashMap<StreamId, Arc<Mutex<u64>>>>>,
}

impl Client {
    pub fn new(backend: Arc<dyn Backend>) -> Self {
        Self { backend, numbers: Arc::default() }
    }

    /// The number of the last submission that was taken.
    fn number(&self, stream: StreamId) -> Arc<Mutex<u64>> {
        self.numbers.lock().unwrap().entry(stream).or_default().clone()
    }

    pub fn last(&self, stream: StreamId) -> Ticket {
        let number = *self.number(stream).lock().unwrap();
        Ticket { stream, number }
    }

    fn counted(
        &self,
        stream: StreamId,
        send: impl FnOnce(Ticket) -> Result<(), Error>,
    ) -> Result<Ticket, Error> {
        let number = self.number(stream);
        let mut number = number.lock().unwrap();
        let ticket = Ticket { stream, number: *number + 1 };
        send(ticket)?;
        *number = ticket.number;
        Ok(ticket)
    }

    pub fn submit(
        &self,
        stream: StreamId,
        after: &[Ticket],
        work: Work<'_>,
        host: &[Arc<HostBlock>],
    ) -> Result<Ticket, Error> {
        self.counted(stream, |ticket| {
            let submission = Submission { ticket, after, work: &work };
            // SAFETY: the tests touch no block that work names before it is complete, and this device only races,
            // without undefined behavior, where streams share memory.
            unsafe { self.backend.submit(&submission, host) }
        })
    }

    pub fn control(&self, control: Control) -> Result<(), Error> {
        // SAFETY: the tests give up only objects that nothing uses any more.
        unsafe { self.backend.control(control) }
    }

    pub fn create_stream(&self, id: StreamId) {
        self.control(Control::CreateStream { id, priority: 0 }).unwrap();
    }

    pub fn retire_stream(&self, id: StreamId) {
        self.control(Control::RetireStream { id }).unwrap();
    }

    pub fn allocate(&self, stream: StreamId, id: AllocId, bytes: u64) -> Result<Ticket, Error> {
        self.counted(stream, |at| self.control(Control::Allocate { id, bytes, at }))
    }

    pub fn free(&self, stream: StreamId, id: AllocId, after: &[Ticket]) -> Result<(), Error> {
        self.control(Control::Free { id, stream, after: after.to_vec() })
    }

    pub fn want(&self, ticket: Ticket) {
        self.control(Control::Want { ticket }).unwrap();
    }

    pub fn block_until(&self, ticket: Ticket) -> Result<(), Error> {
        // SAFETY: the CPU device holds the stream meanwhile, so another thread may retire it.
        unsafe { self.backend.block_until(ticket) }
    }

    pub fn peek(&self, stream: StreamId) -> Result<u64, Error> {
        // SAFETY: as for `block_until`.
        unsafe { self.backend.peek(stream) }
    }

    /// Blocks until everything that was submitted to a stream is complete.
    pub fn drain(&self, stream: StreamId) {
        self.block_until(self.last(stream)).unwrap();
    }

    /// Sends a request. The reply arrives in the channel.
    pub fn request(&self, request: Request) -> Receiver<Result<Reply, Error>> {
        let (send, receive) = channel();
        self.backend.request(request, Answer::new(move |reply| _ = send.send(reply)));
        receive
    }

    /// Sends a request and waits for the reply.
    pub fn ask(&self, request: Request) -> Result<Reply, Error> {
        self.request(request).recv().expect("the backend dropped the answer")
    }

    /// Resets the device and waits for the reply. Returns the fault that the device was lost by.
    pub fn reset(&self) -> Option<Error> {
        match self.ask(Request::Reset) {
            Ok(Reply::Reset { lost }) => lost,
            other => panic!("{other:?}"),
        }
    }

    pub fn load(&self, id: ModuleId, ptx: &str) {
        let image = ModuleImage::Ptx(ptx.into());
        self.control(Control::LoadModule { id, image }).unwrap();
        self.ask(Request::Loaded { module: id }).unwrap();
    }
}
