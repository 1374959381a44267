//! Bindings: the work of the nodes as it is now, with other memory or host values in the place of those that were
//! recorded.
//!
//! A node changes when other memory takes the place of an allocation that it uses (a memory slot), or when a host slot
//! of an upload has new values. Every change has a version. An instance stores the version that its executable has, so
//! a launch passes only the nodes that changed since then.

use std::{collections::BTreeMap, sync::Arc};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::{
    handle::stream::{UploadSlot, UploadSource},
    order::plan::Node,
    protocol::{AllocId, Graph, GraphNode, Region, Use, Work},
};

/// The changes of a recording.
#[derive(Default)]
pub(super) struct Bindings {
    /// The nodes that differ from the recorded ones.
    changed: FxHashMap<u32, Changed>,
    /// The nodes of `changed`, by the version of their last change.
    by_version: BTreeMap<u64, u32>,
    /// The version of the last change.
    version: u64,
    /// The number of changes that need another executable.
    rebuilds: u64,
    /// The memory slots, by the recorded allocation.
    memory: FxHashMap<AllocId, MemorySlot>,
    /// The uploads from host slots, by node.
    slots: Vec<SlotUpload>,
}

struct Changed {
    work: Work<'static>,
    uses: SmallVec<[Use; 4]>,
    version: u64,
}

/// A recorded allocation that other memory may replace.
struct MemorySlot {
    /// The memory that stands in its place now.
    bound: AllocId,
    /// The nodes that use it.
    nodes: Arc<[u32]>,
}

/// An upload from a host slot.
struct SlotUpload {
    node: u32,
    slot: Arc<dyn UploadSlot>,
    /// The version of the slot, and its bytes then.
    seen: u64,
    source: UploadSource,
}

impl Bindings {
    /// The bindings of a new recording.
    pub(super) fn new(uploads: &[Option<UploadSource>]) -> Self {
        let mut bindings = Self::default();
        for (node, source) in uploads.iter().enumerate() {
            let Some(source) = source else { continue };
            let Some(slot) = source.slot.clone() else { continue };
            // The next replay compares the versions.
            let upload = SlotUpload { node: node as u32, slot, seen: 0, source: source.clone() };
            bindings.slots.push(upload);
        }
        bindings
    }

    /// The version of the last change.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// The number of changes so far that need another executable.
    pub(super) fn rebuilds(&self) -> u64 {
        self.rebuilds
    }

    /// Declares that other memory may replace a recorded allocation.
    pub(super) fn declare(&mut self, nodes: &[Node], recorded: AllocId) {
        let uses =
            |node: &&u32| nodes[**node as usize].uses.iter().any(|used| used.base == recorded);
        self.memory.entry(recorded).or_insert_with(|| {
            let all: Vec<_> = (0..nodes.len() as u32).collect();
            MemorySlot { bound: recorded, nodes: all.iter().filter(uses).copied().collect() }
        });
    }

    /// Whether any memory may be replaced.
    pub(super) fn has_memory_slots(&self) -> bool {
        !self.memory.is_empty()
    }

    /// The memory that stands in the place of a recorded allocation now.
    pub(super) fn bound(&self, recorded: AllocId) -> AllocId {
        self.memory.get(&recorded).map_or(recorded, |slot| slot.bound)
    }

    /// The work of a node.
    pub(super) fn work<'a>(&'a self, nodes: &'a [Node], at: u32) -> &'a Work<'static> {
        match self.changed.get(&at) {
            Some(changed) => &changed.work,
            None => &nodes[at as usize].work,
        }
    }

    /// The operands of a node.
    pub(super) fn uses<'a>(&'a self, nodes: &'a [Node], at: u32) -> &'a [Use] {
        match self.changed.get(&at) {
            Some(changed) => &changed.uses,
            None => &nodes[at as usize].uses,
        }
    }

    /// The source of an upload from a host slot.
    pub(super) fn slot_source(&self, at: u32) -> Option<&UploadSource> {
        let found = self.slots.binary_search_by_key(&at, |slot| slot.node).ok()?;
        Some(&self.slots[found].source)
    }

    /// The host blocks of the uploads from host slots.
    pub(super) fn slot_sources(&self) -> impl Iterator<Item = &UploadSource> {
        self.slots.iter().map(|slot| &slot.source)
    }

    /// The nodes that changed after a version.
    pub(super) fn changed_since(&self, version: u64) -> impl Iterator<Item = u32> + '_ {
        self.by_version.range(version + 1..).map(|(_, node)| *node)
    }

    /// Puts `to` in the place of a recorded allocation, which was [declared](Self::declare).
    pub(super) fn replace(&mut self, nodes: &[Node], recorded: AllocId, to: AllocId) {
        let Some(slot) = self.memory.get_mut(&recorded) else { return };
        let (from, users) = (std::mem::replace(&mut slot.bound, to), slot.nodes.clone());
        let to = |id| if id == from { to } else { id };
        for at in users.iter().copied() {
            self.change(nodes, at, |changed| {
                rebase(&mut changed.work, &to);
                changed.uses.iter_mut().for_each(|used| *used = rebased_use(used, &to));
            });
            self.rebuilds += u64::from(is_loop(&nodes[at as usize].work));
        }
    }

    /// Takes the new values of host slots. Returns whether there were any.
    pub(super) fn refresh(&mut self, nodes: &[Node]) -> bool {
        let mut any = false;
        for at in 0..self.slots.len() {
            let SlotUpload { node, slot, seen, .. } = &self.slots[at];
            let (node, version) = (*node, slot.version());
            if *seen == version {
                continue;
            }
            let (seen, source) = slot.current();
            let block = source.block.id();
            (self.slots[at].seen, self.slots[at].source) = (seen, source);
            self.change(nodes, node, |changed| {
                if let Work::Upload { from, .. } = &mut changed.work {
                    from.block = block;
                }
            });
            any = true;
        }
        any
    }

    fn change(&mut self, nodes: &[Node], at: u32, change: impl FnOnce(&mut Changed)) {
        let node = &nodes[at as usize];
        let recorded = || Changed { work: node.work.clone(), uses: node.uses.clone(), version: 0 };
        let changed = self.changed.entry(at).or_insert_with(recorded);
        self.by_version.remove(&changed.version);
        change(changed);
        self.version += 1;
        changed.version = self.version;
        self.by_version.insert(self.version, at);
    }
}

/// Puts the allocation `to(id)` in the place of each allocation that the work names.
pub(super) fn rebase(work: &mut Work<'_>, to: &impl Fn(AllocId) -> AllocId) {
    let region = |region: &mut Region| region.alloc = to(region.alloc);
    match work {
        Work::Join | Work::Graph(_) | Work::Foreign(_) => {}
        Work::Upload { to, .. } | Work::Fill { to, .. } | Work::Timestamp { to } => region(to),
        Work::Download { from, .. } | Work::Send { from, .. } => region(from),
        Work::Copy { from, to, .. } => {
            region(from);
            region(to);
        }
        // Variables of modules are never replaced.
        Work::Launch(launch) => {
            if launch
                .relocations
                .iter()
                .any(|relocation| to(relocation.region.alloc) != relocation.region.alloc)
            {
                launch
                    .relocations
                    .to_mut()
                    .iter_mut()
                    .for_each(|relocation| region(&mut relocation.region));
            }
        }
        Work::Repeat(repeat) => {
            region(&mut repeat.condition);
            repeat.body = Arc::new(rebased_graph(&repeat.body, to));
            repeat.uses = repeat.uses.iter().map(|used| rebased_use(used, to)).collect();
        }
    }
}

/// Returns the use with the memory that takes the place of its own.
pub(super) fn rebased_use(used: &Use, to: &impl Fn(AllocId) -> AllocId) -> Use {
    Use { base: to(used.base), ..used.clone() }
}

fn rebased_graph(graph: &Graph, to: &impl Fn(AllocId) -> AllocId) -> Graph {
    let node = |original: &GraphNode| {
        let mut node = original.clone();
        rebase(&mut node.work, to);
        node
    };
    Graph { nodes: graph.nodes.iter().map(node).collect(), host: graph.host.clone() }
}

/// Whether a change of the work needs another executable.
pub(super) fn is_loop(work: &Work<'_>) -> bool {
    matches!(work, Work::Repeat(_))
}
