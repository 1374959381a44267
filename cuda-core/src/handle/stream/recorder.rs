//! The recorder: takes work instead of a backend, and keeps everything that the work names.

use std::{any::Any, sync::Arc};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::allocation::{Allocation, Operand};
use crate::{
    handle::device::Device,
    order::{Retain, plan::Plan},
    protocol::{
        AllocId, EntryInfo, Error, FunctionId, HostBlock, ModuleId, Name, Result, StreamId, Ticket,
        Work,
    },
    runtime::Found,
    sync::Mutex,
};

/// The maximum number of bytes of host memory that the uploads of one recording may keep.
pub const MAX_RECORDED_BYTES: usize = 1 << 30;

/// The work of one recording so far. All its streams share it. `None` once the recording has ended.
pub(crate) struct Recorder {
    work: Mutex<Option<RecordedWork>>,
    /// Whether the work is only looked at and never replayed.
    is_plan: bool,
}

/// Recorded work and its resources.
#[derive(Default)]
pub(crate) struct RecordedWork {
    pub(crate) plan: Plan,
    /// The memory that the nodes name.
    pub(crate) memory: FxHashMap<AllocId, Arc<Allocation>>,
    /// The modules of the launches.
    pub(crate) modules: FxHashMap<ModuleId, Arc<dyn Any + Send + Sync>>,
    /// The names of the kernels that are launched.
    pub(crate) kernels: FxHashMap<FunctionId, Name>,
    /// By node.
    pub(crate) uploads: FxHashMap<u32, UploadSource>,
    host_bytes: usize,
}

/// The bytes of an upload. They never change again, because the upload has consumed the buffer that owned them.
pub(crate) struct UploadSource {
    pub(crate) lease: Arc<dyn Retain>,
    pub(crate) block: Arc<HostBlock>,
}

impl Recorder {
    pub(crate) fn new() -> Self {
        Self { work: Mutex::new(Some(RecordedWork::default())), is_plan: false }
    }

    /// The recorder of a plan, whose memory does not exist.
    pub(crate) fn of_plan() -> Self {
        Self { is_plan: true, ..Self::new() }
    }

    pub(crate) fn is_plan(&self) -> bool {
        self.is_plan
    }

    /// Begins a named operation. Returns its key, or `None` if the recording has ended.
    pub(super) fn begin_name(&self, name: &str) -> Option<u64> {
        Some(self.work.lock().as_mut()?.plan.names.begin(name))
    }

    /// Ends a named operation.
    pub(super) fn end_name(&self, key: u64) {
        if let Some(work) = self.work.lock().as_mut() {
            work.plan.names.end(key);
        }
    }

    /// Ends the recording.
    ///
    /// # Errors
    /// [`Error::Misuse`] if it has ended.
    pub(crate) fn end(&self) -> Result<RecordedWork> {
        self.work.lock().take().ok_or_else(ended)
    }

    /// Records work of one stream, after everything that it depends on. Returns its number on that stream.
    ///
    /// # Errors
    /// [`Error::NeedsHostData`] for a download, [`Error::Unsupported`] for a copy to another device,
    /// [`Error::OutOfRange`] beyond the limits of a recording, [`Error::Misuse`] if it has ended.
    pub(super) fn append(
        &self,
        device: &Device,
        stream: StreamId,
        work: &Work<'_>,
        operands: &[Operand<'_>],
        source: Option<UploadSource>,
    ) -> Result<u64> {
        let mut recorded = self.work.lock();
        let recorded = recorded.as_mut().ok_or_else(ended)?;
        match work {
            Work::Download { .. } => return Err(Error::needs_host_data("to_host")),
            Work::Send { .. } => {
                let what = "a copy to another device inside a recording";
                return Err(Error::unsupported(what, &device.info().address));
            }
            _ => {}
        }
        let module = module_of(device, work)?;
        let in_order = module.as_ref().is_some_and(|it| it.has_variables);
        let memory = operands.iter().map(|it| it.allocation.shared().ok_or(Error::AlreadyEnded));
        let memory = memory.collect::<Result<SmallVec<[_; 6]>>>()?;
        let bytes = source.as_ref().map_or(0, |it| it.lease.host_bytes());
        recorded.check_room(bytes)?;
        let node = recorded.plan.next();
        let number = recorded.plan.append(stream, work.clone().into_owned(), in_order)?;
        recorded.host_bytes += bytes;
        if let Some(module) = module {
            recorded.keep(module);
        }
        recorded.uploads.extend(source.map(|source| (node, source)));
        memory.iter().for_each(|allocation| allocation.take_turns());
        recorded.memory.extend(memory.into_iter().map(|allocation| (allocation.id(), allocation)));
        Ok(number)
    }

    /// Orders later work of a stream after other streams of the recording. Returns the number of its last node.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub(super) fn join(&self, stream: StreamId, tickets: &[Ticket]) -> Result<u64> {
        self.work.lock().as_mut().ok_or_else(ended)?.plan.join(stream, tickets)
    }
}

impl RecordedWork {
    fn keep(&mut self, launched: LaunchModule) {
        let LaunchModule { function, held, entries, .. } = launched;
        self.modules.insert(function.module, held);
        let entry = entries.get(function.entry as usize);
        if let Some(entry) = entry {
            self.kernels.entry(function).or_insert_with(|| entry.name.as_str().into());
        }
    }

    fn check_room(&self, bytes: usize) -> Result<()> {
        if self.host_bytes.saturating_add(bytes) <= MAX_RECORDED_BYTES {
            return Ok(());
        }
        let detail = format!(
            "its uploads keep more than {MAX_RECORDED_BYTES} bytes of host memory, which is the limit; upload before \
             the recording"
        );
        Err(Error::OutOfRange { what: "a recording".into(), detail })
    }
}

/// The module of a launch.
struct LaunchModule {
    function: FunctionId,
    held: Arc<dyn Any + Send + Sync>,
    has_variables: bool,
    entries: Arc<[EntryInfo]>,
}

fn module_of(device: &Device, work: &Work<'_>) -> Result<Option<LaunchModule>> {
    let Work::Launch(launch) = work else { return Ok(None) };
    let function = launch.function;
    // The launch has a handle of the kernel, so the module is loaded.
    let found = device.core().modules.find(function.module).ok_or_else(unloaded)?;
    let Found { held, has_variables, entries } = found;
    Ok(Some(LaunchModule { function, held, has_variables, entries }))
}

#[cold]
fn unloaded() -> Error {
    let detail = "its module was unloaded; keep the module until the launch is recorded";
    Error::Misuse { what: "a launch inside a recording".into(), detail: detail.into() }
}

#[cold]
fn ended() -> Error {
    let detail = "the recording has ended; use a stream of the device";
    Error::Misuse { what: "a stream of a recording".into(), detail: detail.into() }
}
