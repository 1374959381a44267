//! The one trait between the library and a device.

use std::sync::Arc;

use crate::{
    Command, DeviceInfo, Error, HostBlock, NoticeSink, PeerRegion, Region, Reply, Request, Result,
    StreamId, external::RawStream,
};

/// A device: takes commands and answers requests.
///
/// What an implementation must keep:
/// - Commands of one stream run in the order of their `enqueue` calls; streams run beside each other.
/// - `enqueue` may be called from any thread, returns without waiting for the device, and reports
///   what is known at once (out of memory, a bad launch shape); later errors come with a
///   [`Notice`](crate::Notice) and with [`Request::Synchronize`].
/// - Every accepted `Notify` is answered exactly once, also when the device is lost.
pub trait Backend: Send + Sync + 'static {
    /// What device this is.
    fn info(&self) -> &DeviceInfo;

    /// Puts a command at the end of a stream. `host` holds every block that the command names.
    ///
    /// # Errors
    /// What is known at once; then the command was not taken.
    ///
    /// # Safety
    /// - Until the stream has passed the command, the caller keeps the blocks in `host` alive, nobody touches
    ///   the bytes that it writes, and nobody writes the bytes that it reads.
    /// - No other stream uses the same device memory at the same time, unless both only read it.
    /// - Nobody else uses the memory of another device that the command copies to, until the stream has passed it.
    /// - A launched kernel stays inside the memory that its parameters name.
    /// - Until the call returns nobody asks to destroy the stream or to unload the module that it names.
    unsafe fn enqueue(
        &self,
        stream: StreamId,
        command: Command<'_>,
        host: &[Arc<HostBlock>],
    ) -> Result<()>;

    /// Answers a request; may block.
    fn request(&self, request: Request) -> Result<Reply>;

    /// Where memory of this device is, for [`Command::CopyToPeer`] on another device of the same kind and process;
    /// none where no other device can know.
    fn peer_region(&self, _region: Region, _bytes: u64) -> Option<PeerRegion> {
        None
    }

    /// A block of host memory that the device copies from and to at full speed (pinned, for a GPU).
    /// At least `bytes` bytes; zeroed.
    fn host_block(&self, bytes: usize) -> Result<HostBlock> {
        HostBlock::heap(bytes)
    }

    /// Runs `submit` with the raw stream, for foreign code that enqueues on it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the backend is no CUDA driver.
    ///
    /// # Safety
    /// What `submit` enqueues keeps the rules of [`Backend::enqueue`].
    unsafe fn external(
        &self,
        _stream: StreamId,
        _submit: &mut dyn FnMut(RawStream) -> Result<()>,
    ) -> Result<()> {
        Err(Error::unsupported("foreign submissions", &self.info().address))
    }
}

/// Finds and opens the devices of one kind.
pub trait Provider: Send + Sync {
    /// What stands before the colon in an address: `cuda` in `cuda:1`.
    fn scheme(&self) -> &'static str;

    /// The devices there are, in order of their numbers; empty where there are none.
    fn devices(&self) -> Result<Vec<DeviceInfo>>;

    /// Opens the device with this number. Notices go to `notices`.
    ///
    /// # Errors
    /// [`Error::NoDevice`], or what the driver said.
    fn open(&self, ordinal: u32, notices: Arc<dyn NoticeSink>) -> Result<Arc<dyn Backend>>;
}
