//! The backend: each command one driver call, each request a few.

use std::sync::Arc;

use super::{
    completion::{Completion, Notifier},
    context::{Bound, Primary},
    discard::{Discarded, Remains, Stream},
    host_memory, launch,
    memory::Memory,
    modules::Modules,
    peers,
    streams::{Events, Streams},
    transfer::{self, On},
};
use crate::{
    Backend, Command, DeviceInfo, Error, HostBlock, NoticeSink, PeerRegion, RawStream, Region,
    Reply, Request, Result, StreamId,
};

/// One NVIDIA GPU.
///
/// Copies run beside the host's work only with blocks of [`Backend::host_block`]: the driver stages
/// other memory itself, and may block for it.
///
/// A kernel that faults loses the device for this process: whoever meets the fault first gets
/// [`Error::Fault`], as does everybody who asks how a stream is, and everything that comes after it gets
/// [`Error::DeviceLost`] at once. CUDA offers no way back but a new process.
pub struct CudaBackend {
    primary: &'static Primary,
    streams: Streams,
    events: Events,
    memory: Memory,
    modules: Modules,
    notifier: Notifier,
}

impl CudaBackend {
    pub(super) fn new(
        primary: &'static Primary,
        notices: Arc<dyn NoticeSink>,
        completion: Completion,
    ) -> Result<Self> {
        primary.alive()?;
        // What earlier backends of this device left.
        primary.drain(&primary.bind()?);
        Ok(Self {
            primary,
            streams: Streams::new(primary),
            events: Events::new(primary),
            memory: Memory::new(primary),
            modules: Modules::new(primary),
            notifier: Notifier::new(primary, notices, completion),
        })
    }

    fn on<'a>(&'a self, stream: &'a Stream) -> On<'a> {
        On { primary: self.primary, memory: &self.memory, stream }
    }

    fn no_reset(&self) -> Error {
        let what =
            "a reset (after a fault a process cannot use CUDA any more: restart the process)";
        Error::unsupported(what, &self.primary.info.address)
    }

    fn answer(&self, request: Request, bound: &Bound) -> Result<Reply> {
        match request {
            Request::CreateStream { id, priority } => self.streams.create(id, priority, bound)?,
            Request::DestroyStream { id } => {
                self.streams.destroy(id)?;
                self.primary.drain(bound);
            }
            Request::Query { stream } => {
                return self.streams.query(stream, bound).map(Reply::Idle);
            }
            Request::Synchronize { stream } => self.streams.synchronize(stream, bound)?,
            Request::LoadModule { id, image } => {
                return self.modules.load(id, image, bound).map(Reply::Module);
            }
            Request::UnloadModule { id } => self.modules.unload(id, bound)?,
            Request::Memory => return self.memory.info(bound).map(Reply::Memory),
            Request::ReachPeer { address } => peers::reach(self.primary, &address, bound)?,
            Request::Reset => return Err(self.no_reset()),
        }
        Ok(Reply::Done)
    }
}

impl Backend for CudaBackend {
    fn info(&self) -> &DeviceInfo {
        &self.primary.info
    }

    unsafe fn enqueue(
        &self,
        stream: StreamId,
        command: Command<'_>,
        host: &[Arc<HostBlock>],
    ) -> Result<()> {
        match command {
            // This asks about what came before: if the device is lost, the fault itself is the answer.
            Command::Notify { .. } => self.primary.intact()?,
            _ => self.primary.alive()?,
        }
        let id = stream;
        let bound = &self.primary.bind()?;
        if let Command::Launch(it) = &command {
            let (modules, memory) = (&self.modules, &self.memory);
            let stream = self.streams.raw(id)?;
            // SAFETY: the caller promises it.
            return unsafe { launch::launch(self.primary, modules, memory, stream, it, bound) };
        }
        let stream = self.streams.find(id)?;
        match command {
            Command::Alloc { id, bytes } => self.memory.alloc(id, bytes, &stream, bound),
            Command::Free { id } => self.memory.free(id, &stream, bound),
            Command::Upload { from, to, bytes } => {
                transfer::upload(self.on(&stream), from, to, bytes, host, bound)
            }
            Command::Download { from, to, bytes } => {
                transfer::download(self.on(&stream), from, to, bytes, host, bound)
            }
            Command::Copy { from, to, bytes } => {
                transfer::copy(self.on(&stream), from, to, bytes, bound)
            }
            Command::CopyToPeer { from, to, bytes } => {
                peers::copy(self.primary, &self.memory, &stream, (from, to, bytes), bound)
            }
            Command::Fill { to, pattern, count } => {
                transfer::fill(self.on(&stream), to, pattern, count, bound)
            }
            Command::Record { event } => self.events.record(event, &stream, bound),
            Command::Wait { event } => self.events.wait(event, &stream, bound),
            Command::Notify { token } => self.notifier.notify(id, &stream, token, bound),
            Command::Launch(_) => Ok(()), // above
        }
    }

    fn request(&self, request: Request) -> Result<Reply> {
        if request == Request::Reset {
            // Said before "the device is lost": whoever asks wants to know what to do instead.
            return Err(self.no_reset());
        }
        match request {
            // As for a `Notify`.
            Request::Query { .. } | Request::Synchronize { .. } => self.primary.intact()?,
            _ => self.primary.alive()?,
        }
        let bound = self.primary.bind()?;
        // These may be asked inside a poll, where nothing may block.
        if !matches!(request, Request::CreateStream { .. } | Request::Query { .. }) {
            self.primary.drain(&bound);
        }
        self.answer(request, &bound)
    }

    fn peer_region(&self, region: Region, bytes: u64) -> Option<PeerRegion> {
        let address = self.memory.locate(region, bytes).ok()?;
        Some(PeerRegion { ordinal: self.primary.ordinal, address })
    }

    fn host_block(&self, bytes: usize) -> Result<HostBlock> {
        self.primary.alive()?;
        let bound = self.primary.bind()?;
        self.primary.drain(&bound);
        host_memory::host_block(self.primary, bytes, &bound)
    }

    unsafe fn external(
        &self,
        stream: StreamId,
        submit: &mut dyn FnMut(RawStream) -> Result<()>,
    ) -> Result<()> {
        self.primary.alive()?;
        let stream = self.streams.find(stream)?;
        let _bound = self.primary.bind()?;
        submit(RawStream { stream: stream.raw.0, context: self.primary.context.0 })
    }
}

impl Drop for CudaBackend {
    fn drop(&mut self) {
        let remains = Remains {
            streams: self.streams.take(),
            memory: self.memory.take(),
            events: self.events.take(),
            modules: self.modules.take(),
        };
        // On a lost device there is nothing to give back.
        if self.primary.alive().is_ok() {
            self.primary.trash.put(Discarded::Remains(remains));
        }
    }
}

impl std::fmt::Debug for CudaBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CudaBackend").field("info", &self.primary.info).finish_non_exhaustive()
    }
}
