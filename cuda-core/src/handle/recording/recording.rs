//! `Recording`: recorded work and its replays.

use std::{
    any::Any,
    borrow::Cow,
    sync::{Arc, OnceLock},
};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::executable::Executable;
use crate::{
    handle::{
        device::Device,
        stream::{Allocation, Keep, Operand, Recorder, Stream, Turns, UploadSource, trace},
    },
    order::{
        Retain,
        plan::{Node, access_set},
        retention::Until,
        timeline::Watermarks,
    },
    protocol::{Error, FunctionId, Graph, GraphLaunch, GraphNode, Name, Result, Ticket, Use, Work},
    runtime::Pending,
};

/// Recorded work, which can be replayed on every stream of its device.
///
/// It keeps the memory, the modules and the uploaded bytes that it names. A replay writes this memory again. It is
/// ordered with every other use of the same memory, on every stream and through every handle.
pub struct Recording {
    device: Device,
    /// In an order in which they can run.
    pub(super) nodes: Vec<Node>,
    /// The names of the kernels among the nodes.
    pub(super) kernels: FxHashMap<FunctionId, Name>,
    accesses: Vec<Use>,
    /// Everything that the nodes name, sorted by id.
    memory: Vec<Arc<Allocation>>,
    kept: Arc<Kept>,
}

/// The resources of a recording that its replays retain. They do not hold the device.
struct Kept {
    /// Made by the first [`Recording::prepare`]. Dropped before the modules.
    executable: OnceLock<Result<Executable>>,
    /// For each node, the source of its upload, if it is one.
    uploads: Vec<Option<UploadSource>>,
    _modules: Vec<Arc<dyn Any + Send + Sync>>,
}

impl Retain for Kept {}

impl Device {
    /// A stream of a new recording. Work that is submitted to it is recorded and does not run. Other streams of the same
    /// recording come from [`lend_branch`](Stream::lend_branch).
    ///
    /// Memory that is allocated on it is allocated at once, and not again by a replay. A wait for the device is
    /// [`Error::NeedsHostData`]. Events of it order nothing outside the recording, and events of other streams order
    /// nothing inside.
    ///
    /// # Errors
    /// An error of the backend.
    #[doc(hidden)]
    pub fn start_recording(&self) -> Result<Stream> {
        Ok(Stream::recording(self.lend_stream(0)?, Arc::new(Recorder::new())))
    }
}

impl Stream {
    /// Ends the recording of this stream, for all its streams.
    ///
    /// # Errors
    /// [`Error::Misuse`] if this is no stream of a recording or if that has ended.
    #[doc(hidden)]
    pub fn end_recording(&self) -> Result<Recording> {
        let Some(recorder) = self.recorder().filter(|it| !it.is_plan()) else {
            let detail = "it belongs to no recording; end the stream that `start_recording` gave";
            return Err(Error::Misuse {
                what: "the end of a recording".into(),
                detail: detail.into(),
            });
        };
        let mut recorded = recorder.end()?;
        let nodes = recorded.plan.into_nodes();
        let accesses = access_set(&nodes);
        let mut memory: Vec<_> = recorded.memory.into_values().collect();
        memory.sort_unstable_by_key(|it| it.id().0);
        let uploads = (0..nodes.len() as u32).map(|node| recorded.uploads.remove(&node)).collect();
        let modules = recorded.modules.into_values().collect();
        let kernels = recorded.kernels;
        let kept = Kept { executable: OnceLock::new(), uploads, _modules: modules };
        let device = self.device().clone();
        Ok(Recording { device, nodes, kernels, accesses, memory, kept: Arc::new(kept) })
    }
}

impl Recording {
    /// Returns the device on which the recording replays.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the number of nodes, including those that only join branches.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns whether the recording has no nodes.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns the memory that a replay uses. Each allocation has one entry, with its strongest access.
    pub fn accesses(&self) -> &[Use] {
        &self.accesses
    }

    /// Returns the nodes that come directly before a node. All have smaller indices.
    pub fn after(&self, node: usize) -> Option<&[u32]> {
        self.nodes.get(node).map(|node| &node.after[..])
    }

    /// Prepares the recording on its device, so that a replay is one submission. The first call starts this and returns at
    /// once; the device takes up to milliseconds. On a device without graphs there is nothing to prepare.
    ///
    /// # Errors
    /// The reply is the error of the device if it refuses the graph. Replays then submit node by node.
    pub fn prepare(&self) -> Pending<()> {
        if !self.device.core().capabilities.graphs {
            return Pending::ready(Ok(()));
        }
        match self.kept.executable.get_or_init(|| Executable::new(&self.device, self.graph())) {
            Ok(executable) => executable.ready(&self.device),
            Err(error) => Pending::ready(Err(error.clone())),
        }
    }

    /// Whether a replay is one submission: the recording is [prepared](Self::prepare).
    pub fn is_prepared(&self) -> bool {
        self.executable().is_some()
    }

    fn executable(&self) -> Option<&Executable> {
        let executable = self.kept.executable.get()?.as_ref().ok()?;
        Some(executable).filter(|it| it.is_ready())
    }

    fn graph(&self) -> Graph {
        let node = |it: &Node| GraphNode {
            work: it.work.clone(),
            after: it.after.to_vec(),
            name: it.name.clone(),
        };
        let host = self.kept.uploads.iter().flatten().map(|it| it.block.clone()).collect();
        Graph { nodes: self.nodes.iter().map(node).collect(), host }
    }

    /// Submits all nodes to `stream`, after all earlier uses of the same memory. Every later use of that memory comes
    /// after the whole replay.
    ///
    /// A [prepared](Self::prepare) recording is one submission. Otherwise there are as many submissions as nodes, so it takes
    /// the time of that many launches, and other submissions to the same memory wait for that long.
    ///
    /// # Errors
    /// [`Error::Busy`] if the stream has as much in flight as its device allows; nothing is submitted then.
    /// [`Error::WrongDevice`], [`Error::Unsupported`] on a stream of a recording, or an error of the device. If a node
    /// of a recording that is not prepared is refused, the nodes before it still run.
    pub fn replay(&self, stream: &Stream) -> Result<Ticket> {
        match self.executable() {
            Some(executable) if !self.is_empty() => self.launch(stream, executable),
            _ => self.replay_in_order(stream, 0..self.len()),
        }
    }

    /// Submits the whole recording as one graph launch.
    fn launch(&self, stream: &Stream, executable: &Executable) -> Result<Ticket> {
        self.check_stream(stream)?;
        let uses = Cow::Borrowed(&self.accesses[..]);
        let work = Work::Graph(GraphLaunch { graph: executable.id(), uses, changes: Vec::new() });
        let operands: SmallVec<[Operand<'_>; 8]> =
            self.accesses.iter().map(|used| self.operand(used)).collect::<Result<_>>()?;
        let keep = Keep { until: Until::Complete, resource: self.kept.clone() };
        let mut marks = stream.timeline().order.lock();
        let turns = Turns::of_sorted(self.memory.iter().map(|it| &**it));
        let launched = stream.submit_ordered(&mut marks, &work, &operands, &[], Some(keep), None);
        // The turns are released before the order lock.
        drop(turns);
        drop(marks);
        if let Ok(ticket) = launched {
            trace::replayed(ticket, self.len());
        }
        launched
    }

    /// Checks that a replay can be submitted to a stream.
    fn check_stream(&self, stream: &Stream) -> Result<()> {
        self.device.check_same("a stream", stream.device())?;
        if stream.recorder().is_some() {
            let what = "a replay inside a recording";
            return Err(Error::unsupported(what, &self.device.info().address));
        }
        stream.check_credit()?;
        self.device.core().reclaim_memory();
        Ok(())
    }

    /// Replays the nodes in another order; see [`replay`](Self::replay). An order that does not keep
    /// [`after`](Self::after) gives other results. An index that is no node is left out.
    ///
    /// # Errors
    /// As [`replay`](Self::replay).
    pub fn replay_in_order(
        &self,
        stream: &Stream,
        order: impl IntoIterator<Item = usize>,
    ) -> Result<Ticket> {
        self.check_stream(stream)?;
        let mut marks = stream.timeline().order.lock();
        let turns = Turns::of_sorted(self.memory.iter().map(|it| &**it));
        let mut last = Ticket { stream: stream.id(), number: stream.timeline().published() };
        let mut nodes = 0_usize;
        for at in order {
            // The order of the stream implies the joins.
            let node = self.nodes.get(at).filter(|node| !matches!(node.work, Work::Join));
            if let Some(node) = node {
                let upload = self.kept.uploads.get(at).and_then(Option::as_ref);
                last = self.submit(stream, &mut marks, node, upload)?;
                nodes += 1;
            }
        }
        // The turns are released before the order lock.
        drop(turns);
        drop(marks);
        trace::replayed(last, nodes);
        Ok(last)
    }

    fn submit(
        &self,
        stream: &Stream,
        marks: &mut Watermarks,
        node: &Node,
        upload: Option<&UploadSource>,
    ) -> Result<Ticket> {
        let operands: SmallVec<[Operand<'_>; 6]> =
            node.uses.iter().map(|used| self.operand(used)).collect::<Result<_>>()?;
        let keep = upload.map(|it| Keep { until: Until::Accepted, resource: it.lease.clone() });
        let block = upload.map(|it| &it.block);
        stream.submit_ordered(marks, &node.work, &operands, &[], keep, block)
    }

    fn operand(&self, used: &Use) -> Result<Operand<'_>> {
        let found = self.memory.binary_search_by_key(&used.base.0, |it| it.id().0);
        // The recorder keeps all memory that it records a use of.
        let at = found.map_err(|_| Error::AlreadyEnded)?;
        Ok(Operand::new(&self.memory[at], used.range.clone(), used.access))
    }
}

impl std::fmt::Debug for Recording {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Recording({} nodes on {})", self.len(), self.device.info().address)
    }
}
