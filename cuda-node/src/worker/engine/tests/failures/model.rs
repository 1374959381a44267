//! The sequential reference: what a submission may report, and what memory then contains.
//!
//! The program orders all uses of the same memory, so they take effect in the order of the program. What streams do at the
//! same time leaves a choice: how much ran before a fault. The model keeps one [`World`] for each choice. The report of
//! every submission removes the worlds that do not agree with it. A report that no world allows is a fault of the device or
//! of the engine.

use std::collections::HashMap;

use cuda_core::protocol::{Fault, FaultKind};

use super::super::super::*;

/// Some units of an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) alloc: usize,
    pub(super) first: u64,
    pub(super) count: u64,
}

impl Span {
    fn units(self) -> std::ops::Range<usize> {
        self.first as usize..(self.first + self.count) as usize
    }
}

/// The units of each allocation.
pub(super) const UNITS: u64 = 8;

/// A step whose effect the model knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Do {
    Join,
    Fill {
        to: Span,
        word: u32,
    },
    Hold {
        to: Span,
    },
    /// One in pieces may be written in part when a fault makes the rest fail.
    Upload {
        to: Span,
        word: u32,
        in_pieces: bool,
    },
    Download {
        from: Span,
    },
    Copy {
        from: Span,
        to: Span,
    },
    /// Kernels. `Outside` writes outside of all memory, far away by `id`. In `Trap` the block `id` traps.
    Store {
        to: Span,
        word: u32,
    },
    Load {
        from: Span,
        to: Span,
    },
    Outside {
        to: Span,
        id: u64,
    },
    Trap {
        to: Span,
        id: u32,
    },
    Below {
        from: Span,
        limit: u32,
    },
}

impl Do {
    pub(super) fn reads(&self) -> Option<Span> {
        match *self {
            Do::Download { from }
            | Do::Copy { from, .. }
            | Do::Load { from, .. }
            | Do::Below { from, .. } => Some(from),
            _ => None,
        }
    }

    pub(super) fn writes(&self) -> Option<Span> {
        match *self {
            Do::Fill { to, .. }
            | Do::Hold { to }
            | Do::Upload { to, .. }
            | Do::Copy { to, .. }
            | Do::Store { to, .. }
            | Do::Load { to, .. }
            | Do::Outside { to, .. }
            | Do::Trap { to, .. } => Some(to),
            _ => None,
        }
    }

    pub(super) fn is_kernel(&self) -> bool {
        matches!(
            self,
            Do::Store { .. }
                | Do::Load { .. }
                | Do::Outside { .. }
                | Do::Trap { .. }
                | Do::Below { .. }
        )
    }

    /// Whether it can be skipped if nothing reads what it writes.
    fn may_be_dead(&self) -> bool {
        match self {
            Do::Join => false,
            Do::Download { .. } => true,
            _ => self.writes().is_some(),
        }
    }

    /// Whether a run of this step can end with this fault.
    fn can_fault(&self, fault: &Fault) -> bool {
        let site = fault.site.as_ref();
        let is_at = |id: u64| site.is_some_and(|site| u64::from(site.block[0]) == id);
        match self {
            Do::Outside { id, .. } => {
                let at = site.and_then(|site| site.address);
                fault.kind == FaultKind::IllegalAddress
                    && at.is_some_and(|at| (at >> 36) - 1 == *id)
            }
            Do::Trap { id, .. } => fault.kind == FaultKind::Trap && is_at(u64::from(*id)),
            Do::Below { .. } => fault.kind == FaultKind::Assert,
            _ => false,
        }
    }
}

/// A submission, as the client knows it.
#[derive(Debug)]
pub(super) struct Sub {
    pub(super) what: What,
    /// The ticket. `None` if it was refused at once.
    pub(super) ticket: Option<Ticket>,
    pub(super) epoch: usize,
    /// The number of submissions before it when everything was last complete.
    pub(super) complete: usize,
    /// The last submission of each stream that comes before this one.
    pub(super) before: HashMap<u64, u64>,
    pub(super) is_cancelled: bool,
    pub(super) may_be_dead: bool,
    pub(super) refused: Option<Error>,
    /// The bytes of a download.
    pub(super) bytes: Option<Vec<u8>>,
}

#[derive(Debug)]
pub(super) enum What {
    Do(Do),
    Allocate { alloc: usize, pool: PoolId },
    Graph { graph: usize, nodes: Vec<Do> },
}

impl What {
    pub(super) fn steps(&self) -> &[Do] {
        match self {
            What::Do(step) => std::slice::from_ref(step),
            What::Allocate { .. } => &[],
            What::Graph { nodes, .. } => nodes,
        }
    }
}

/// A submission or a free, in the order of the program.
#[derive(Debug)]
pub(super) enum Event {
    Sub(usize),
    Free(usize),
}

#[derive(Debug)]
pub(super) struct Alloc {
    pub(super) bytes: u64,
    pub(super) is_freed: bool,
}

#[derive(Debug, Clone, PartialEq)]
enum Cell {
    Any,
    Word(u32),
    Lost(Arc<Error>),
    /// The allocation does not exist, because of this error.
    Refused(Arc<Error>),
}

#[derive(Debug, Clone, PartialEq)]
struct World(Vec<[Cell; UNITS as usize]>);

/// The end of a step that runs.
enum Ran {
    Done,
    /// It depends on lost contents, by one of these errors.
    Lost(Vec<Error>),
    Faults,
    /// The contents that decide are unknown.
    MayFault,
}

impl World {
    fn lost(&self, span: Option<Span>, is_refused: bool) -> Vec<Error> {
        let cells = span.into_iter().flat_map(|span| &self.0[span.alloc][span.units()]);
        let error = |cell: &Cell| match cell {
            Cell::Lost(error) if !is_refused => Some((**error).clone().poison()),
            Cell::Refused(error) => Some((**error).clone().poison()),
            _ => None,
        };
        cells.filter_map(error).collect()
    }

    fn set(&mut self, span: Span, value: &Cell) {
        for cell in &mut self.0[span.alloc][span.units()] {
            if !matches!(cell, Cell::Refused(_)) {
                *cell = value.clone();
            }
        }
    }

    fn lose(&mut self, step: &Do, error: &Error) {
        if let Some(span) = step.writes() {
            self.set(span, &Cell::Lost(Arc::new(error.clone())));
        }
    }

    /// Runs a step. Changes nothing if it fails.
    fn run(&mut self, step: &Do) -> Ran {
        let mut lost = self.lost(step.reads(), false);
        // A kernel may read what it writes.
        lost.extend(self.lost(step.writes(), !step.is_kernel()));
        if !lost.is_empty() {
            return Ran::Lost(lost);
        }
        match *step {
            Do::Join | Do::Download { .. } => {}
            Do::Fill { to, word } | Do::Upload { to, word, .. } => self.set(to, &Cell::Word(word)),
            Do::Hold { to } => {
                self.set(to, &Cell::Word(u32::from_ne_bytes([super::device::HOLD; 4])))
            }
            Do::Copy { from, to } => {
                let source = self.0[from.alloc][from.units()].to_vec();
                self.0[to.alloc][to.units()].clone_from_slice(&source);
            }
            Do::Store { to, word } => {
                self.0[to.alloc][to.first as usize] = Cell::Word(word);
            }
            Do::Load { from, to } => {
                self.0[to.alloc][to.first as usize] =
                    self.0[from.alloc][from.first as usize].clone();
            }
            Do::Outside { .. } | Do::Trap { .. } => return Ran::Faults,
            Do::Below { from, limit } => {
                let cells = &self.0[from.alloc][from.units()];
                if cells.iter().any(|cell| matches!(cell, Cell::Word(word) if *word >= limit)) {
                    return Ran::Faults;
                }
                if cells.contains(&Cell::Any) {
                    return Ran::MayFault;
                }
            }
        }
        Ran::Done
    }
}

/// A program that has run.
pub(super) struct Run {
    pub(super) is_behind_engine: bool,
    pub(super) subs: Vec<Sub>,
    pub(super) order: Vec<Event>,
    pub(super) allocs: Vec<Alloc>,
    /// The nodes that each graph was created with.
    pub(super) graphs: Vec<Vec<Do>>,
    pub(super) failed: HashMap<Ticket, Error>,
    /// The fault of each epoch, as its reset reported it.
    pub(super) faults: Vec<Option<Error>>,
    /// The number of submissions before each refusal.
    pub(super) refusals: Vec<usize>,
    pub(super) limit: u64,
    pub(super) is_graph_memory_small: bool,
    /// The losses that graphs may have spread over all memory.
    pub(super) lost_by_graph: Vec<Error>,
    /// The bytes of a unit of each allocation.
    pub(super) units: Vec<u64>,
}

impl Run {
    /// Marks the submissions that may be skipped because nothing sees their results.
    fn mark_dead(&mut self) {
        let mut unread = vec![false; self.allocs.len()];
        for event in self.order.iter().rev() {
            let at = match event {
                Event::Free(alloc) => {
                    unread[*alloc] = true;
                    continue;
                }
                Event::Sub(at) => *at,
            };
            let sub = &mut self.subs[at];
            if let What::Do(step) = &sub.what
                && sub.is_cancelled
                && step.may_be_dead()
                && step.writes().is_none_or(|to| unread[to.alloc])
            {
                sub.may_be_dead = true;
                continue;
            }
            // The device takes no refused work, and the engine passes on only what it does not skip.
            if sub.ticket.is_none() || self.is_behind_engine && self.error(at).is_some() {
                continue;
            }
            for step in self.subs[at].what.steps() {
                let sub = &self.subs[at];
                let reads_what_it_writes =
                    step.is_kernel() || matches!(sub.what, What::Graph { .. });
                let of =
                    step.reads().into_iter().chain(step.writes().filter(|_| reads_what_it_writes));
                of.for_each(|span| unread[span.alloc] = false);
            }
        }
    }

    fn error(&self, at: usize) -> Option<&Error> {
        self.failed.get(&self.subs[at].ticket?)
    }

    /// Whether a submission is ordered before another one.
    fn is_before(&self, one: usize, other: usize) -> bool {
        let other = &self.subs[other];
        self.subs[one].ticket.is_some_and(|ticket| {
            one < other.complete
                || other.before.get(&ticket.stream.0).is_some_and(|number| *number >= ticket.number)
        })
    }

    /// Whether a submission has failed with a fault of its own.
    fn has_faulted(&self, at: usize) -> bool {
        let Some(Error::Fault(fault)) = self.error(at) else { return false };
        self.subs[at].what.steps().iter().any(|step| step.can_fault(fault))
    }

    /// The program with its reports, for a failure of the test.
    pub(super) fn history(&self) -> String {
        let line = |event: &Event| match event {
            Event::Free(alloc) => format!("free {alloc}\n"),
            Event::Sub(at) => {
                let Sub { what, ticket, epoch, is_cancelled, bytes, before, .. } = &self.subs[*at];
                let error = self.error(*at).or(self.subs[*at].refused.as_ref());
                let error = error.map_or("ok".into(), |error| format!("{error:?}"));
                let error: String = error.chars().take(400).collect();
                let at_stream = ticket.map(|ticket| (ticket.stream.0, ticket.number));
                let bytes = bytes.as_ref().map(|bytes| &bytes[..bytes.len().min(32)]);
                format!(
                    "{at}: {at_stream:?} epoch {epoch} {what:?} {bytes:?} cancelled: {is_cancelled} {before:?}: {error}\n"
                )
            }
        };
        self.order.iter().map(line).collect()
    }

    /// Compares everything that was reported with the model.
    pub(super) fn check(&mut self) -> Result<(), String> {
        self.mark_dead();
        if self.is_graph_memory_small {
            let graphs =
                (0..self.subs.len()).filter(|at| matches!(self.subs[*at].what, What::Graph { .. }));
            let lost = graphs.filter_map(|at| self.error(at)).map(|error| error.clone().poison());
            self.lost_by_graph = lost.collect();
        }
        let faulted: Vec<_> = (0..self.subs.len()).filter(|at| self.has_faulted(*at)).collect();
        for (epoch, fault) in self.faults.iter().enumerate() {
            let of: Vec<_> = faulted.iter().filter(|at| self.subs[**at].epoch == epoch).collect();
            let is_known = |fault: &Error| of.iter().any(|at| self.error(**at) == Some(fault));
            if fault.as_ref().map_or(!of.is_empty(), |fault| !is_known(fault)) {
                return Err(format!("epoch {epoch} ended with {fault:?}, faulted: {of:?}"));
            }
        }
        let mut worlds = vec![World(Vec::new())];
        let empty = [const { Cell::Any }; UNITS as usize];
        worlds[0].0 = vec![empty; self.allocs.len()];
        let mut tags = HashMap::<u64, Owner>::new();
        let mut refused_graphs = HashMap::<usize, Error>::new();
        let (mut used, mut uncertain) = (0_u64, vec![false; self.allocs.len()]);
        for event in &self.order {
            let at = match event {
                Event::Free(alloc) => {
                    if !std::mem::take(&mut uncertain[*alloc])
                        && !matches!(worlds[0].0[*alloc][0], Cell::Refused(_))
                    {
                        used -= self.allocs[*alloc].bytes;
                    }
                    continue;
                }
                Event::Sub(at) => *at,
            };
            let sub = &self.subs[at];
            let error = self.error(at).or(sub.refused.as_ref());
            let same_epoch = |of: &&usize| self.subs[**of].epoch == sub.epoch && **of != at;
            let fault = self.faults[sub.epoch].as_ref();
            let must_be_lost = faulted.iter().filter(same_epoch).any(|of| self.is_before(*of, at));
            let is_known_lost = faulted.iter().filter(same_epoch).any(|of| *of < sub.complete);
            let may_be_lost = faulted
                .iter()
                .filter(same_epoch)
                .any(|of| self.error(*of) == fault && !self.is_before(at, *of));
            let wrong = |what: &str| {
                Err(format!(
                    "submission {at}: {error:?}; {what}; fault: {fault:?}, worlds: {worlds:?}"
                ))
            };
            if let Some(Error::DeviceLost { cause, .. }) = error {
                let text = fault.map(ToString::to_string);
                if self.is_behind_engine || !may_be_lost || Some(cause) != text.as_ref() {
                    return wrong("the device is not lost by this");
                }
                continue;
            }
            let is_lost = may_be_lost && error == fault;
            if let Some(Error::OutOfHostMemory { requested }) = error {
                let index = *requested as usize;
                let owner = match sub.what {
                    What::Graph { graph, .. } => Owner::Graph(graph),
                    _ => Owner::Sub(at),
                };
                if self.refusals.get(index).is_none_or(|before| *before > at)
                    || *tags.entry(*requested).or_insert(owner) != owner
                {
                    return wrong("refused for another submission");
                }
            }
            // The write set of a graph that has no memory is not known, so all contents may be lost.
            let is_refusal = matches!(error, Some(Error::OutOfHostMemory { .. }))
                || error.is_some_and(|error| self.lost_by_graph.contains(error));
            let mut next = Vec::new();
            match &sub.what {
                What::Allocate { alloc, .. } => {
                    let bytes = self.allocs[*alloc].bytes;
                    let more: u64 = (0..self.allocs.len())
                        .filter(|of| uncertain[*of])
                        .map(|of| self.allocs[of].bytes)
                        .sum();
                    let fits = used + bytes <= self.limit;
                    let must_fit = used + more + bytes <= self.limit;
                    let is_shortage = |error: &Error| {
                        matches!(error, Error::Remote { detail, .. } if detail.contains("requested"))
                            || matches!(error, Error::OutOfMemory { .. })
                    };
                    let is_allowed = match error {
                        None => fits && !is_known_lost,
                        Some(error) if is_shortage(error) => !must_fit,
                        Some(_) => fits && (is_lost || is_refusal),
                    };
                    if !is_allowed {
                        return wrong("wrong for an allocation");
                    }
                    let value =
                        error.map_or(Cell::Any, |error| Cell::Refused(Arc::new(error.clone())));
                    match error {
                        None => used += bytes,
                        Some(error) if is_shortage(error) => {}
                        // The bytes count until the engine knows of the failure.
                        Some(_) => uncertain[*alloc] = true,
                    }
                    for mut world in worlds.clone() {
                        world.0[*alloc].fill(value.clone());
                        next.push(world);
                    }
                }
                What::Do(step) => {
                    for world in &worlds {
                        let mut lost = world.clone();
                        error.iter().for_each(|error| lost.lose(step, error));
                        let mut ran = world.clone();
                        let result = ran.run(step);
                        match error {
                            None => {
                                if sub.may_be_dead {
                                    let mut dead = world.clone();
                                    step.writes()
                                        .iter()
                                        .for_each(|span| dead.set(*span, &Cell::Any));
                                    next.push(dead);
                                } else if !must_be_lost
                                    && matches!(result, Ran::Done | Ran::MayFault)
                                    && self.is_read(&ran, sub, step)
                                {
                                    next.push(ran);
                                }
                            }
                            Some(error) => {
                                let may_run = self.is_behind_engine || !must_be_lost;
                                let is_allowed = is_lost
                                    || is_refusal
                                    || match (&result, error) {
                                        (Ran::Lost(causes), error) => {
                                            may_run && causes.contains(error)
                                        }
                                        (Ran::Faults | Ran::MayFault, Error::Fault(fault)) => {
                                            !must_be_lost && step.can_fault(fault)
                                        }
                                        _ => false,
                                    };
                                if is_allowed {
                                    if let Do::Upload { to, word, in_pieces: true } = *step
                                        && self.is_behind_engine
                                        && is_lost
                                        && !must_be_lost
                                    {
                                        for count in 1..=to.count {
                                            let mut written = lost.clone();
                                            written.set(Span { count, ..to }, &Cell::Word(word));
                                            next.push(written);
                                        }
                                    }
                                    // The report is that of its first piece that failed. A later one may be refused, and
                                    // all memory of the upload is then lost by the refusal.
                                    if let Do::Upload { in_pieces: true, .. } = step
                                        && is_lost
                                    {
                                        let tags = 0_u64..self.refusals.len() as u64;
                                        for requested in tags {
                                            let refusal = Error::OutOfHostMemory { requested };
                                            let mut refused = world.clone();
                                            refused.lose(step, &refusal);
                                            next.push(refused);
                                        }
                                    }
                                    next.push(lost);
                                }
                            }
                        }
                    }
                }
                What::Graph { graph, nodes } => {
                    let is_shortage = error.is_some_and(is_graph_shortage);
                    if let Some(known) = refused_graphs.get(graph)
                        && Some(known) != error
                        && self.is_behind_engine
                    {
                        return wrong("the graph was refused");
                    }
                    if is_shortage {
                        refused_graphs.extend(error.map(|error| (*graph, error.clone())));
                    }
                    let created = &self.graphs[*graph];
                    let refused: Vec<_> = created
                        .iter()
                        .flat_map(|node| {
                            [node.reads(), node.writes()]
                                .into_iter()
                                .flat_map(|span| worlds[0].lost(span, true))
                        })
                        .collect();
                    let is_refused =
                        self.is_behind_engine && error.is_some_and(|error| refused.contains(error));
                    if !refused.is_empty() && !is_refused && !is_lost && !is_refusal && !is_shortage
                    {
                        return wrong("the graph uses a refused allocation");
                    }
                    for world in &worlds {
                        // As the device runs it: all nodes before a fault run.
                        let cuts = if must_be_lost { 0..=0 } else { 0..=nodes.len() };
                        for cut in cuts {
                            if cut < nodes.len() && !may_be_lost {
                                continue;
                            }
                            let (mut after, mut found) =
                                (world.clone(), Vec::<Option<Error>>::new());
                            let mut outcomes = vec![None];
                            let mut own_fault = None;
                            for (index, node) in nodes.iter().enumerate() {
                                if let Some(fault) = &own_fault {
                                    after.lose(node, fault);
                                    continue;
                                }
                                if index >= cut {
                                    let fault = fault.expect("the device may be lost");
                                    after.lose(node, fault);
                                    if outcomes == [None] {
                                        outcomes = vec![Some(fault.clone())];
                                    }
                                    continue;
                                }
                                match after.run(node) {
                                    Ran::Done => {}
                                    Ran::Lost(causes) => {
                                        after.lose(node, &causes[0]);
                                        if outcomes == [None] {
                                            outcomes = causes.iter().cloned().map(Some).collect();
                                        }
                                    }
                                    Ran::Faults | Ran::MayFault => {
                                        let own = match error {
                                            Some(Error::Fault(fault)) if node.can_fault(fault) => {
                                                error.cloned()
                                            }
                                            _ => None,
                                        };
                                        match own {
                                            Some(own) => {
                                                after.lose(node, &own);
                                                outcomes = vec![Some(own.clone())];
                                                own_fault = Some(own);
                                            }
                                            None if matches!(node, Do::Below { .. }) => {}
                                            None => outcomes = Vec::new(),
                                        }
                                    }
                                }
                            }
                            found.extend(outcomes);
                            if found.contains(&error.cloned()) && !next.contains(&after) {
                                next.push(after);
                            }
                        }
                        // As the engine skips it: nothing runs. It may know of the loss of some contents only.
                        let (mut all, mut causes) = (world.clone(), Vec::new());
                        for node in nodes {
                            if let Ran::Lost(by) = all.run(node) {
                                all.lose(node, &by[0]);
                                causes.extend(by);
                            }
                        }
                        let is_skipped = is_lost || is_shortage || is_refusal || is_refused;
                        if self.is_behind_engine
                            && let Some(error) = error
                            && (is_skipped || causes.contains(error))
                        {
                            let mut skipped = world.clone();
                            for span in merged(nodes) {
                                skipped.set(span, &Cell::Lost(Arc::new(error.clone())));
                            }
                            if !next.contains(&skipped) {
                                next.push(skipped);
                            }
                        }
                    }
                }
            }
            if next.is_empty() {
                return wrong("no world allows this");
            }
            worlds = next;
        }
        Ok(())
    }

    /// Whether the bytes of a download are those of the world.
    fn is_read(&self, world: &World, sub: &Sub, step: &Do) -> bool {
        let (Do::Download { from }, false) = (step, sub.is_cancelled) else { return true };
        let unit = self.units[from.alloc] as usize;
        let Some(bytes) = &sub.bytes else { return false };
        if bytes.len() != unit * from.count as usize {
            return false;
        }
        world.0[from.alloc][from.units()].iter().zip(bytes.chunks_exact(unit)).all(
            |(cell, bytes)| match cell {
                Cell::Word(word) => {
                    bytes[..4] == word.to_ne_bytes() && bytes[4..] == bytes[..unit - 4]
                }
                _ => true,
            },
        )
    }
}

fn is_graph_shortage(error: &Error) -> bool {
    matches!(error, Error::Remote { detail, .. } if detail.contains("for graphs"))
}

/// A submission or a graph that was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Sub(usize),
    Graph(usize),
}

/// The write set of a graph that does not run: for each allocation that it writes, the range of all uses.
fn merged(nodes: &[Do]) -> Vec<Span> {
    let mut merged = Vec::<(Span, bool)>::new();
    for node in nodes {
        let uses = [(node.reads(), false), (node.writes(), true)];
        for (span, writes) in uses.into_iter().filter_map(|(span, writes)| Some((span?, writes))) {
            match merged.iter_mut().find(|(known, _)| known.alloc == span.alloc) {
                Some((known, is_written)) => {
                    let end = (known.first + known.count).max(span.first + span.count);
                    known.first = known.first.min(span.first);
                    known.count = end - known.first;
                    *is_written |= writes;
                }
                None => merged.push((span, writes)),
            }
        }
    }
    merged.into_iter().filter(|(_, is_written)| *is_written).map(|(span, _)| span).collect()
}
