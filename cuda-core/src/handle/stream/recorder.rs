//! The recorder: takes work instead of a backend, and keeps everything that the work names.

use std::{any::Any, sync::Arc};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::{
    allocation::{Allocation, Operand},
    capture_pool::CapturePool,
};
use crate::{
    handle::device::Device,
    order::{Retain, plan::Plan},
    protocol::{
        Access, AllocId, EntryInfo, Error, ForeignWork, FunctionId, HostBlock, Limit, Misuse,
        ModuleId, Name, Quantity, Repeat, Result, StreamId, Ticket, Work,
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
    /// The memory that was allocated on a stream of the recording.
    pub(crate) allocated: Vec<AllocId>,
    /// The pool whose memory the temporary buffers take when the recording ends.
    pub(crate) pool: Option<Arc<CapturePool>>,
    /// Other resources of the nodes.
    pub(crate) others: Vec<Arc<dyn Any + Send + Sync>>,
}

/// The bytes of an upload. They never change again, because the upload has consumed the buffer that owned them.
#[derive(Clone)]
pub(crate) struct UploadSource {
    pub(crate) retained: Arc<dyn Retain>,
    pub(crate) block: Arc<HostBlock>,
    /// The slot that the bytes come from, if later replays upload other bytes.
    pub(crate) slot: Option<Arc<dyn UploadSlot>>,
}

impl UploadSource {
    pub(crate) fn new(retained: Arc<dyn Retain>, block: Arc<HostBlock>) -> Self {
        Self { retained, block, slot: None }
    }
}

/// The resources of the body of a loop.
pub(crate) struct LoopResources {
    pub(crate) held: Arc<dyn Any + Send + Sync>,
    /// The names of its kernels.
    pub(crate) kernels: FxHashMap<FunctionId, Name>,
    /// The bytes of host memory among them.
    pub(crate) host_bytes: usize,
}

/// Host memory whose bytes are replaced as a whole. Every replacement has another block.
pub(crate) trait UploadSlot: Send + Sync {
    /// The version of the bytes, at least 1. Increases with every replacement.
    fn version(&self) -> u64;

    /// The version, and the bytes of that version.
    fn current(&self) -> (u64, UploadSource);
}

impl Recorder {
    /// Creates a recorder. The temporary buffers of its recording take memory of `pool` when it ends.
    pub(crate) fn new(pool: Option<Arc<CapturePool>>) -> Self {
        let work = RecordedWork { pool, ..RecordedWork::default() };
        Self { work: Mutex::new(Some(work)), is_plan: false }
    }

    /// The recorder of a plan, whose memory does not exist.
    pub(crate) fn of_plan() -> Self {
        Self { is_plan: true, ..Self::new(None) }
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
        self.work.lock().take().ok_or(Error::Misuse(Misuse::RecordingEnded))
    }

    /// Allocates memory for the recording.
    ///
    /// # Errors
    /// [`Error::Misuse`] if its pool is sealed, or the error of `allocate`.
    pub(super) fn allocate(
        &self,
        allocate: impl FnOnce() -> Result<Arc<Allocation>>,
    ) -> Result<Arc<Allocation>> {
        let pool = self.work.lock().as_ref().and_then(|recorded| recorded.pool.clone());
        pool.map_or(Ok(()), |pool| pool.check())?;
        let memory = allocate()?;
        if let Some(recorded) = &mut *self.work.lock() {
            recorded.allocated.push(memory.id());
        }
        Ok(memory)
    }

    /// Records work of one stream, after everything that it depends on. Returns its number on that stream.
    ///
    /// # Errors
    /// [`Error::NeedsHostData`] for a download, [`Error::OutOfRange`] beyond the limits of a recording,
    /// [`Error::Misuse`] for a copy to another device, or if the recording has ended.
    pub(crate) fn append(
        &self,
        device: &Device,
        stream: StreamId,
        work: &Work<'_>,
        operands: &[Operand<'_>],
        source: Option<UploadSource>,
    ) -> Result<u64> {
        let mut recorded = self.work.lock();
        let recorded = recorded.as_mut().ok_or(Misuse::RecordingEnded)?;
        match work {
            Work::Download { .. } => return Err(Error::needs_host_data("to_host")),
            Work::Send { .. } => return Err(Misuse::PeerCopyInRecording.into()),
            _ => {}
        }
        let module = module_of(device, work)?;
        let in_order = module.as_ref().is_some_and(|module| module.has_variables);
        let bytes = source.as_ref().map_or(0, |source| source.retained.host_bytes());
        let node = recorded.plan.next();
        let number = recorded.push(stream, work, operands, in_order, bytes)?;
        if let Some(module) = module {
            recorded.keep(module);
        }
        recorded.uploads.extend(source.map(|source| (node, source)));
        Ok(number)
    }

    /// Records a loop, as [`append`](Self::append). `kept` holds the modules and the uploads of its body.
    pub(crate) fn append_loop(
        &self,
        device: &Device,
        stream: StreamId,
        mut repeat: Repeat,
        operands: &[Operand<'_>],
        kept: LoopResources,
    ) -> Result<u64> {
        let mut recorded = self.work.lock();
        let recorded = recorded.as_mut().ok_or(Misuse::RecordingEnded)?;
        let mut in_order = false;
        for node in &repeat.body.nodes {
            in_order |= module_of(device, &node.work)?.is_some_and(|module| module.has_variables);
        }
        if let (Some(outer), Some(body)) =
            (recorded.plan.names.current(), Arc::get_mut(&mut repeat.body))
        {
            body.nodes
                .iter_mut()
                .for_each(|node| node.name = Some(inside(outer, node.name.as_deref())));
        }
        let work = Work::Repeat(repeat);
        let number = recorded.push(stream, &work, operands, in_order, kept.host_bytes)?;
        recorded.others.push(kept.held);
        recorded.kernels.extend(kept.kernels);
        Ok(number)
    }

    /// Records commands of foreign code. Without operands, they come between everything earlier and everything later on
    /// the stream.
    ///
    /// # Errors
    /// The errors of [`append`](Self::append).
    pub(super) fn append_foreign(
        &self,
        stream: StreamId,
        work: ForeignWork,
        operands: &[Operand<'_>],
        kept: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Result<u64> {
        let mut recorded = self.work.lock();
        let recorded = recorded.as_mut().ok_or(Misuse::RecordingEnded)?;
        if operands.is_empty() {
            let number = recorded.plan.append_between(stream, Work::Foreign(work))?;
            recorded.others.extend(kept);
            return Ok(number);
        }
        let number = recorded.push(stream, &Work::Foreign(work), operands, true, 0)?;
        recorded.others.extend(kept);
        // The commands hold the addresses of their operands. With another owner the memory counts as no temporary
        // buffer, so every replay has it at the same address.
        for operand in operands {
            let memory = operand.allocation.shared().ok_or(Error::AlreadyEnded)?;
            recorded.others.push(memory);
        }
        Ok(number)
    }

    /// Orders later work of a stream after other streams of the recording. Returns the number of its last node.
    ///
    /// # Errors
    /// The errors of [`append`](Self::append).
    pub(super) fn join(&self, stream: StreamId, tickets: &[Ticket]) -> Result<u64> {
        self.work.lock().as_mut().ok_or(Misuse::RecordingEnded)?.plan.join(stream, tickets)
    }
}

impl RecordedWork {
    /// Adds a node, and keeps the memory that it names.
    fn push(
        &mut self,
        stream: StreamId,
        work: &Work<'_>,
        operands: &[Operand<'_>],
        in_order: bool,
        host_bytes: usize,
    ) -> Result<u64> {
        let memory =
            operands.iter().map(|operand| operand.allocation.shared().ok_or(Error::AlreadyEnded));
        let memory = memory.collect::<Result<SmallVec<[_; 6]>>>()?;
        self.check_room(host_bytes)?;
        let number = self.plan.append(stream, work.clone().into_owned(), in_order)?;
        self.host_bytes += host_bytes;
        for operand in operands {
            match operand.access {
                // The recorded operation holds the handle exclusively.
                Access::Write => operand.allocation.let_graphs_write(),
                Access::Read => operand.allocation.take_turns(),
            }
        }
        self.memory.extend(memory.into_iter().map(|allocation| (allocation.id(), allocation)));
        Ok(number)
    }

    fn keep(&mut self, launched: LaunchModule) {
        let LaunchModule { function, held, entries, .. } = launched;
        self.modules.insert(function.module, held);
        let entry = entries.get(function.entry as usize);
        if let Some(entry) = entry {
            self.kernels.entry(function).or_insert_with(|| entry.name.as_str().into());
        }
    }

    fn check_room(&self, bytes: usize) -> Result<()> {
        let bytes = self.host_bytes.saturating_add(bytes) as u64;
        Limit::AtMost(MAX_RECORDED_BYTES as u64).check(
            "a recording",
            Quantity::UploadedBytes,
            bytes,
        )
    }
}

/// The name of a node inside a loop.
fn inside(outer: &Name, inner: Option<&str>) -> Name {
    inner.map_or_else(|| outer.clone(), |inner| format!("{outer}/{inner}").into())
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
    let found = device.core().modules.find(function.module).ok_or(Misuse::UnloadedModule)?;
    let Found { held, has_variables, entries } = found;
    Ok(Some(LaunchModule { function, held, has_variables, entries }))
}
