//! Random programs with failures, on the CPU device and behind an engine: faults, refusals, losses of contents, resets,
//! cancellations, and all of them in batches, with graphs, and with bytes that arrive late. A [model](model) says what each
//! submission may report and what a download may read.

mod device;
mod model;

use std::collections::HashMap;

use cuda_core::protocol::{
    Access, FunctionId, GraphId, Launch, LaunchConfig, Pattern, Region, Relocation, Work,
};
use proptest::prelude::*;

use self::{
    device::{Asked, Device, HOLD, Node, QUOTA, STREAMS, Setup},
    model::{Do, Event, Run, Span, Sub, UNITS, What},
};
use super::super::*;

/// The bytes of a unit of small and of large allocations. A download of a large one has two pieces.
const SMALL_UNIT: u64 = 4;
const LARGE_UNIT: u64 = 192 << 10;

/// Some units of some allocation.
#[derive(Debug, Clone, Copy)]
struct Place {
    alloc: u8,
    first: u8,
    count: u8,
}

#[derive(Debug, Clone, Copy)]
enum Act {
    Fill(Place),
    Upload(Place),
    Copy(Place, Place),
    Store(Place),
    Load(Place, Place),
    Outside(Place),
    Trap(Place),
    Below(Place, u32),
}

#[derive(Debug, Clone)]
enum Step {
    Act {
        stream: u8,
        act: Act,
        pieces: Vec<u8>,
    },
    Download {
        stream: u8,
        from: Place,
    },
    Hold {
        stream: u8,
        to: Place,
    },
    Join {
        stream: u8,
        on: u8,
    },
    Allocate {
        stream: u8,
        size: Size,
        pool: u8,
    },
    Free {
        stream: u8,
        alloc: u8,
    },
    CreatePool,
    DropPool {
        stream: u8,
        pool: u8,
    },
    CreateGraph(Vec<Act>),
    DropGraph {
        graph: u8,
        waits: bool,
    },
    /// The stream is retired, and another one takes its place.
    Retire(u8),
    /// The module is unloaded, with all graphs that use it, and loaded again.
    Reload {
        waits: bool,
    },
    /// A request, which must have a reply.
    Ask {
        what: u8,
        graph: u8,
        pool: u8,
    },
    Launch {
        stream: u8,
        graph: u8,
        change: Option<(u8, Place, Place)>,
        is_bulk: bool,
    },
    Cancel {
        stream: u8,
        back: u8,
        count: u8,
    },
    Refuse,
    Reset,
    Open,
    Batch,
    Turn,
    Code,
    Pieces(u8),
    Wait,
}

#[derive(Debug, Clone, Copy)]
enum Size {
    Small,
    Large,
    /// A third of the quota.
    Huge,
    TooLarge,
}

fn place() -> impl Strategy<Value = Place> {
    (any::<u8>(), 0..UNITS as u8, 1..=UNITS as u8).prop_map(|(alloc, first, count)| Place {
        alloc,
        first,
        count,
    })
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => place().prop_map(Act::Fill),
        4 => place().prop_map(Act::Upload),
        6 => (place(), place()).prop_map(|(from, to)| Act::Copy(from, to)),
        3 => place().prop_map(Act::Store),
        3 => (place(), place()).prop_map(|(from, to)| Act::Load(from, to)),
        1 => place().prop_map(Act::Outside),
        1 => place().prop_map(Act::Trap),
        1 => (place(), 0..200_u32).prop_map(|(from, limit)| Act::Below(from, limit)),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let stream = || 1..=STREAMS as u8;
    let size = prop_oneof![
        6 => Just(Size::Small), 1 => Just(Size::Large), 2 => Just(Size::Huge), 1 => Just(Size::TooLarge)
    ];
    let change = prop::option::of((any::<u8>(), place(), place()));
    prop_oneof![
        24 => (stream(), act(), prop::collection::vec(1..20_u8, 0..3))
            .prop_map(|(stream, act, pieces)| Step::Act { stream, act, pieces }),
        10 => (stream(), place()).prop_map(|(stream, from)| Step::Download { stream, from }),
        3 => (stream(), place()).prop_map(|(stream, to)| Step::Hold { stream, to }),
        2 => (stream(), stream()).prop_map(|(stream, on)| Step::Join { stream, on }),
        4 => (stream(), size, 0..3_u8)
            .prop_map(|(stream, size, pool)| Step::Allocate { stream, size, pool }),
        3 => (stream(), any::<u8>()).prop_map(|(stream, alloc)| Step::Free { stream, alloc }),
        2 => Just(Step::CreatePool),
        2 => (stream(), any::<u8>()).prop_map(|(stream, pool)| Step::DropPool { stream, pool }),
        3 => prop::collection::vec(act(), 1..5).prop_map(Step::CreateGraph),
        2 => (any::<u8>(), any::<bool>()).prop_map(|(graph, waits)| Step::DropGraph { graph, waits }),
        2 => stream().prop_map(Step::Retire),
        2 => any::<bool>().prop_map(|waits| Step::Reload { waits }),
        2 => (0..5_u8, any::<u8>(), any::<u8>())
            .prop_map(|(what, graph, pool)| Step::Ask { what, graph, pool }),
        6 => (stream(), any::<u8>(), change, any::<bool>())
            .prop_map(|(stream, graph, change, is_bulk)| Step::Launch { stream, graph, change, is_bulk }),
        3 => (stream(), 0..6_u8, 1..4_u8)
            .prop_map(|(stream, back, count)| Step::Cancel { stream, back, count }),
        2 => Just(Step::Refuse),
        3 => Just(Step::Reset),
        2 => Just(Step::Open),
        3 => Just(Step::Batch),
        4 => Just(Step::Turn),
        1 => Just(Step::Code),
        4 => (1..4_u8).prop_map(Step::Pieces),
        1 => Just(Step::Wait),
    ]
}

fn setup() -> impl Strategy<Value = Setup> {
    let graph_memory = prop_oneof![3 => Just(None), 1 => (140_000..270_000_u64).prop_map(Some)];
    let backlog = prop_oneof![Just(2_u64), Just(5), Just(64)];
    let rare = || prop::bool::weighted(0.2);
    let flags = (prop::bool::weighted(0.75), rare(), rare(), any::<bool>());
    (flags, 1..3_usize, backlog, graph_memory).prop_map(
        |(
            (behind_engine, is_adversarial, is_code_late, takes_turns),
            workers,
            backlog,
            graph_memory,
        )| Setup {
            behind_engine,
            is_adversarial,
            workers,
            backlog,
            graph_memory,
            is_code_late,
            takes_turns,
        },
    )
}

/// An allocation that exists, or that the client takes for one that exists.
struct Live {
    index: usize,
    unit: u64,
    /// The last write, and the reads since then: indices of submissions.
    written: Vec<usize>,
    read: Vec<usize>,
    pool: PoolId,
}

/// A graph that was not dropped.
struct Known {
    /// Its place among all graphs.
    index: usize,
    nodes: Vec<Do>,
    /// All that its nodes have named: the client keeps it.
    named: Vec<Do>,
}

/// Runs the steps, and keeps what the model needs.
struct Program {
    device: Device,
    run: Run,
    live: Vec<Live>,
    graphs: Vec<Known>,
    pools: Vec<PoolId>,
    pool_ids: u64,
    /// The stream in each place.
    streams: Vec<u64>,
    module: ModuleId,
    last: HashMap<u64, u64>,
    /// The tickets that the next submission of each stream comes after.
    before: HashMap<u64, HashMap<u64, u64>>,
    complete: usize,
    resets: Vec<u64>,
    words: u32,
    faults: u64,
}

impl Program {
    fn new(setup: &Setup) -> Self {
        let is_behind_engine = setup.behind_engine;
        let (subs, order, allocs, units, faults, refusals, lost_by_graph) = Default::default();
        let is_graph_memory_small = is_behind_engine && setup.graph_memory.is_some();
        let limit = if is_behind_engine { QUOTA } else { 1 << 30 };
        let failed = HashMap::new();
        let run = Run {
            is_behind_engine,
            subs,
            order,
            allocs,
            graphs: Vec::new(),
            failed,
            faults,
            refusals,
            limit,
            is_graph_memory_small,
            lost_by_graph,
            units,
        };
        let (live, graphs, last, before, resets) = Default::default();
        let (device, module) = (Device::new(setup), ModuleId(1));
        Self {
            device,
            run,
            live,
            graphs,
            pools: vec![PoolId::DEFAULT],
            pool_ids: PoolId::DEFAULT.0,
            streams: (1..=STREAMS).collect(),
            module,
            last,
            before,
            complete: 0,
            resets,
            words: 100,
            faults: 0,
        }
    }

    /// The stream in a place, from 1 on.
    fn stream(&self, place: u8) -> u64 {
        self.streams[usize::from(place) - 1]
    }

    fn word(&mut self) -> u32 {
        self.words += 1;
        self.words
    }

    fn fault(&mut self) -> u64 {
        self.faults += 1;
        self.faults
    }

    fn span(&self, place: Place) -> Option<(Span, u64)> {
        let live = self.live.get(place.alloc as usize % self.live.len().max(1))?;
        let first = u64::from(place.first);
        let count = u64::from(place.count).min(UNITS - first);
        Some((Span { alloc: live.index, first, count }, live.unit))
    }

    /// A span of a small allocation, for kernels.
    fn small(&self, place: Place) -> Option<Span> {
        let (span, unit) = self.span(place)?;
        (unit == SMALL_UNIT).then_some(span)
    }

    /// Two spans of the same length that have no unit in common.
    fn pair(&self, from: Place, to: Place) -> Option<(Span, Span)> {
        let ((mut from, one), (mut to, other)) = (self.span(from)?, self.span(to)?);
        let count = from.count.min(to.count);
        (from.count, to.count) = (count, count);
        let overlap = from.alloc == to.alloc
            && from.first.max(to.first) < (from.first + count).min(to.first + count);
        (one == other && !overlap).then_some((from, to))
    }

    fn resolve(&mut self, act: Act) -> Option<Do> {
        Some(match act {
            Act::Fill(to) => Do::Fill { to: self.span(to)?.0, word: self.word() },
            Act::Upload(to) => {
                Do::Upload { to: self.span(to)?.0, word: self.word(), in_pieces: false }
            }
            Act::Copy(from, to) => {
                let (from, to) = self.pair(from, to)?;
                Do::Copy { from, to }
            }
            Act::Store(to) => Do::Store { to: self.small(to)?, word: self.word() },
            Act::Load(from, to) => {
                let (from, to) = self.pair(from, to)?;
                let is_small =
                    self.live.iter().any(|live| live.index == to.alloc && live.unit == SMALL_UNIT);
                is_small.then_some(Do::Load { from, to })?
            }
            Act::Outside(to) => Do::Outside { to: self.small(to)?, id: self.fault() },
            Act::Trap(to) => Do::Trap { to: self.small(to)?, id: self.fault() as u32 },
            Act::Below(from, limit) => Do::Below { from: self.small(from)?, limit },
        })
    }

    fn region(&self, span: Span) -> (Region, u64) {
        let unit = self.run.units[span.alloc];
        let alloc = AllocId(span.alloc as u64 + 1);
        (Region { alloc, offset: span.first * unit }, span.count * unit)
    }

    fn node(&self, step: &Do) -> Node {
        let kernel = |entry, blocks, operands: &[(Span, Access)], rest: &[u8]| {
            let mut params = vec![0; 8 * operands.len()];
            params.extend_from_slice(rest);
            let relocation = |(at, (span, access)): (usize, &(Span, Access))| {
                let (region, bytes) = self.region(*span);
                Relocation { at: 8 * at as u32, region, bytes, access: *access }
            };
            let relocations: Vec<_> = operands.iter().enumerate().map(relocation).collect();
            Node::Work(Work::Launch(Launch {
                function: FunctionId { module: self.module, entry },
                config: LaunchConfig::new(blocks, 1),
                params: params.into(),
                relocations: relocations.into(),
                variables: Default::default(),
            }))
        };
        let (read, write) = (Access::Read, Access::Write);
        let words = |words: [u32; 2]| [words[0].to_ne_bytes(), words[1].to_ne_bytes()].concat();
        match *step {
            Do::Join | Do::Download { .. } => Node::Work(Work::Join),
            Do::Fill { to, word } => {
                let (to, bytes) = self.region(to);
                Node::Work(Work::Fill { to, pattern: Pattern::Word(word), count: bytes / 4 })
            }
            Do::Hold { to } => {
                let (to, bytes) = self.region(to);
                Node::Work(Work::Fill { to, pattern: Pattern::Byte(HOLD), count: bytes })
            }
            Do::Upload { to, word, .. } => {
                let (to, bytes) = self.region(to);
                Node::Upload { to, bytes: word.to_ne_bytes().repeat(bytes as usize / 4) }
            }
            Do::Copy { from, to } => {
                let ((from, bytes), (to, _)) = (self.region(from), self.region(to));
                Node::Work(Work::Copy { from, to, bytes })
            }
            Do::Store { to, word } => {
                let rest = [&0_u64.to_ne_bytes()[..], &word.to_ne_bytes()].concat();
                kernel(0, 1, &[(to, write)], &rest)
            }
            Do::Load { from, to } => {
                kernel(1, 1, &[(from, read), (to, write)], &0_u64.to_ne_bytes())
            }
            Do::Outside { to, id } => {
                let rest = [&(id << 34).to_ne_bytes()[..], &[1; 4]].concat();
                kernel(0, 1, &[(to, write)], &rest)
            }
            Do::Trap { to, id } => kernel(6, id + 1, &[(to, write)], &words([id, to.count as u32])),
            Do::Below { from, limit } => {
                kernel(7, from.count as u32, &[(from, read)], &words([limit, from.count as u32]))
            }
        }
    }

    /// Submits something that uses this memory.
    fn submit(&mut self, stream: u64, on: &[usize], what: What, asked: Option<Asked>) -> usize {
        let at = self.run.subs.len();
        let uses: Vec<(Span, bool)> = match &what {
            What::Do(step) => uses(std::slice::from_ref(step)),
            What::Graph { nodes, .. } => uses(nodes),
            What::Allocate { .. } => Vec::new(),
        };
        let mut after: Vec<usize> = on.to_vec();
        if let What::Graph { graph, .. } = &what {
            let is_launch =
                |sub: &Sub| matches!(&sub.what, What::Graph { graph: of, .. } if of == graph);
            after.extend(self.run.subs.iter().rposition(is_launch));
        }
        for (span, writes) in &uses {
            if let Some(live) = self.live.iter().find(|live| live.index == span.alloc) {
                after.extend(&live.written);
                after.extend(live.read.iter().filter(|_| *writes));
            }
        }
        let mut before = self.before.get(&stream).cloned().unwrap_or_default();
        let mut tickets = Vec::<Ticket>::new();
        for of in after {
            let Some(ticket) = self.run.subs[of].ticket else { continue };
            let mut join = |stream: u64, number: u64| {
                let known = before.entry(stream).or_default();
                *known = number.max(*known);
            };
            join(ticket.stream.0, ticket.number);
            self.run.subs[of].before.iter().for_each(|(stream, number)| join(*stream, *number));
            if ticket.stream.0 != stream && !tickets.contains(&ticket) {
                tickets.push(ticket);
            }
        }
        let number = self.last.get(&stream).copied().unwrap_or(0) + 1;
        let ticket = Ticket { stream: StreamId(stream), number };
        let taken = match (&what, asked) {
            (What::Allocate { alloc, pool }, _) => {
                let bytes = self.run.allocs[*alloc].bytes;
                let (id, at) = (AllocId(*alloc as u64 + 1), ticket);
                self.device.control(match *pool {
                    PoolId::DEFAULT => Control::Allocate { id, bytes, at },
                    pool => Control::AllocateIn { pool, id, bytes, at },
                })
            }
            (_, Some(asked)) => self.device.submit(ticket, &tickets, asked),
            (_, None) => unreachable!(),
        };
        let refused = taken.err();
        let ticket = Some(ticket).filter(|_| refused.is_none());
        let sub = Sub {
            what,
            ticket,
            epoch: self.resets.len(),
            complete: self.complete,
            before: before.clone(),
            is_cancelled: false,
            may_be_dead: false,
            refused,
            bytes: None,
        };
        if ticket.is_some() {
            self.last.insert(stream, number);
            before.insert(stream, number);
            self.before.insert(stream, before);
            for (span, writes) in uses {
                let Some(live) = self.live.iter_mut().find(|live| live.index == span.alloc) else {
                    continue;
                };
                match writes {
                    true => (live.written, live.read) = (vec![at], Vec::new()),
                    false => live.read.push(at),
                }
            }
        }
        self.run.order.push(Event::Sub(at));
        self.run.subs.push(sub);
        at
    }

    fn act(&mut self, stream: u64, mut step: Do, pieces: &[u8]) -> usize {
        let asked = match self.node(&step) {
            Node::Work(_) if matches!(step, Do::Download { .. }) => {
                let (from, bytes) = self.region(step.reads().unwrap());
                Asked::Download { from, bytes }
            }
            Node::Work(work) => Asked::Work(work),
            Node::Upload { to, bytes } => {
                let scale = bytes.len().div_ceil(32);
                let mut pieces: Vec<_> =
                    pieces.iter().map(|piece| scale * usize::from(*piece)).collect();
                // The command has at most a few bytes.
                if bytes.len() > 1 << 10 && pieces.is_empty() {
                    pieces.push(bytes.len() / 2);
                }
                let pieces: Vec<_> = pieces.into_iter().map(|piece| piece.min(1 << 20)).collect();
                if let Do::Upload { in_pieces, .. } = &mut step {
                    *in_pieces = !pieces.is_empty();
                }
                Asked::Upload { to, bytes, pieces }
            }
        };
        self.submit(stream, &[], What::Do(step), Some(asked))
    }

    fn allocate(&mut self, stream: u64, size: Size, pool: PoolId) -> Option<usize> {
        let unit = match size {
            Size::Small => SMALL_UNIT,
            Size::Large => LARGE_UNIT,
            Size::Huge => QUOTA / 3 / UNITS / 4 * 4,
            Size::TooLarge => 1 << 40,
        };
        let index = self.run.allocs.len();
        self.run.allocs.push(model::Alloc { bytes: unit * UNITS, is_freed: false });
        self.run.units.push(unit);
        let at = self.submit(stream, &[], What::Allocate { alloc: index, pool }, None);
        let is_there = self.run.subs[at].ticket.is_some();
        if is_there {
            // Work on a refused allocation does not need its size.
            let unit = if matches!(size, Size::TooLarge) { SMALL_UNIT } else { unit };
            self.run.units[index] = unit;
            self.live.push(Live { index, unit, written: vec![at], read: Vec::new(), pool });
        }
        is_there.then_some(index)
    }

    fn free(&mut self, stream: u64, at: usize) {
        let live = self.live.remove(at);
        let uses = live.written.iter().chain(&live.read);
        let tickets = uses.filter_map(|of| self.run.subs[*of].ticket);
        let mut after: Vec<_> = tickets.filter(|of| of.stream.0 != stream).collect();
        after.dedup();
        let (id, stream) = (AllocId(live.index as u64 + 1), StreamId(stream));
        self.device.control(Control::Free { id, stream, after }).unwrap();
        self.run.allocs[live.index].is_freed = true;
        self.run.order.push(Event::Free(live.index));
    }

    /// Whether a graph names an allocation.
    fn is_named(&self, alloc: usize) -> bool {
        let spans = |step: &Do| [step.reads(), step.writes()];
        let mut named = self.graphs.iter().flat_map(|graph| graph.named.iter().flat_map(spans));
        named.any(|span| span.is_some_and(|span| span.alloc == alloc))
    }

    /// Whether nothing that is not known to be complete uses this.
    fn is_idle(&self, uses: impl Fn(&What) -> bool) -> bool {
        !self.run.subs[self.complete..].iter().any(|sub| uses(&sub.what))
    }

    fn drop_graph(&mut self, at: usize) {
        let id = GraphId(self.graphs.remove(at).index as u64 + 1);
        self.device.control(Control::DropGraph { id }).unwrap();
    }

    fn retire(&mut self, place: u8) {
        let place = usize::from(place) - 1;
        let id = StreamId(self.streams[place]);
        if let Some(number) = self.last.get(&id.0).copied() {
            self.device.control(Control::Want { ticket: Ticket { stream: id, number } }).unwrap();
        }
        self.device.control(Control::RetireStream { id }).unwrap();
        let id = StreamId(1 + *self.streams.iter().max().unwrap());
        self.device.control(Control::CreateStream { id, priority: 0 }).unwrap();
        self.streams[place] = id.0;
    }

    fn reload(&mut self, waits: bool) {
        if waits {
            self.wait();
        }
        let has_kernels = |steps: &[Do]| steps.iter().any(Do::is_kernel);
        if !self.is_idle(|what| has_kernels(what.steps())) {
            return;
        }
        while let Some(at) = self.graphs.iter().position(|graph| has_kernels(&graph.named)) {
            self.drop_graph(at);
        }
        self.device.control(Control::UnloadModule { id: self.module }).unwrap();
        self.module = ModuleId(self.module.0 + 1);
        self.device.load(self.module);
    }

    fn launch(
        &mut self,
        stream: u64,
        at: usize,
        change: Option<(u8, Place, Place)>,
        is_bulk: bool,
    ) {
        let graph = self.graphs[at].index;
        let mut nodes = self.graphs[at].nodes.clone();
        let mut changes = Vec::new();
        if let Some((node, one, other)) = change {
            let node = usize::from(node) % nodes.len();
            let act = match nodes[node] {
                Do::Fill { .. } => Act::Fill(one),
                Do::Upload { .. } => Act::Upload(one),
                Do::Copy { .. } => Act::Copy(one, other),
                Do::Store { .. } => Act::Store(one),
                Do::Load { .. } => Act::Load(one, other),
                Do::Outside { .. } => Act::Outside(one),
                Do::Trap { .. } => Act::Trap(one),
                Do::Below { limit, .. } => Act::Below(one, limit),
                _ => unreachable!(),
            };
            if let Some(step) = self.resolve(act) {
                self.graphs[at].named.push(step);
                nodes[node] = step;
                changes.push((node as u32, self.node(&step)));
            }
        }
        let uses = uses(&nodes).into_iter().map(|(span, writes)| {
            let (region, bytes) = self.region(span);
            region.used(bytes, if writes { Access::Write } else { Access::Read })
        });
        let (uses, id) = (uses.collect(), GraphId(graph as u64 + 1));
        let asked = Asked::Graph { id, uses, changes, is_bulk };
        let what = What::Graph { graph, nodes: nodes.clone() };
        let sub = self.submit(stream, &[], what, Some(asked));
        if self.run.subs[sub].ticket.is_some() {
            self.graphs[at].nodes = nodes;
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Act { stream, act, pieces } => {
                if let Some(step) = self.resolve(*act) {
                    let stream = self.stream(*stream);
                    self.act(stream, step, pieces);
                }
            }
            Step::Download { stream, from } => {
                if let Some((from, _)) = self.span(*from) {
                    let stream = self.stream(*stream);
                    self.act(stream, Do::Download { from }, &[]);
                }
            }
            Step::Hold { stream, to } => {
                if let Some(to) = self.small(*to) {
                    let stream = self.stream(*stream);
                    self.act(stream, Do::Hold { to }, &[]);
                }
            }
            Step::Join { stream, on } => {
                let on = self.stream(*on);
                let is_last = |sub: &Sub| sub.ticket.is_some_and(|ticket| ticket.stream.0 == on);
                let on: Vec<_> = self.run.subs.iter().rposition(is_last).into_iter().collect();
                let (what, asked) = (What::Do(Do::Join), Asked::Work(Work::Join));
                let stream = self.stream(*stream);
                self.submit(stream, &on, what, Some(asked));
            }
            Step::Allocate { stream, size, pool } => {
                let pool = self.pools[usize::from(*pool) % self.pools.len()];
                let stream = self.stream(*stream);
                self.allocate(stream, *size, pool);
            }
            Step::Free { stream, alloc } => {
                let at = usize::from(*alloc) % self.live.len().max(1);
                if self.live.get(at).is_some_and(|live| !self.is_named(live.index)) {
                    let stream = self.stream(*stream);
                    self.free(stream, at);
                }
            }
            Step::CreateGraph(acts) => {
                let nodes: Vec<_> = acts.iter().filter_map(|act| self.resolve(*act)).collect();
                if !nodes.is_empty() {
                    let works: Vec<_> = nodes.iter().map(|step| self.node(step)).collect();
                    let index = self.run.graphs.len();
                    self.device.create_graph(GraphId(index as u64 + 1), &works);
                    self.run.graphs.push(nodes.clone());
                    self.graphs.push(Known { index, named: nodes.clone(), nodes });
                }
            }
            Step::DropGraph { graph, waits } => {
                if !self.graphs.is_empty() {
                    let at = usize::from(*graph) % self.graphs.len();
                    let index = self.graphs[at].index;
                    if *waits {
                        self.wait();
                    }
                    if self.is_idle(
                        |what| matches!(what, What::Graph { graph, .. } if *graph == index),
                    ) {
                        self.drop_graph(at);
                    }
                }
            }
            Step::CreatePool => {
                if self.pools.len() < 4 {
                    self.pool_ids += 1;
                    let (id, spec) = (PoolId(self.pool_ids), PoolSpec::new(u64::MAX));
                    self.device.control(Control::CreatePool { id, spec }).unwrap();
                    self.pools.push(id);
                }
            }
            Step::DropPool { stream, pool } => {
                let at = usize::from(*pool) % self.pools.len();
                let id = self.pools[at];
                let is_free = |live: &Live| live.pool == id && !self.is_named(live.index);
                let free: Vec<_> =
                    (0..self.live.len()).filter(|at| is_free(&self.live[*at])).collect();
                if id != PoolId::DEFAULT {
                    let stream = self.stream(*stream);
                    free.into_iter().rev().for_each(|at| self.free(stream, at));
                    if self.live.iter().all(|live| live.pool != id) {
                        self.pools.remove(at);
                        self.device.control(Control::DropPool { id }).unwrap();
                    }
                }
            }
            Step::Retire(stream) => self.retire(*stream),
            Step::Reload { waits } => self.reload(*waits),
            Step::Ask { what, graph, pool } => {
                let pool = self.pools[usize::from(*pool) % self.pools.len()];
                let graph = self.graphs.get(usize::from(*graph) % self.graphs.len().max(1));
                let ask = match (*what, graph) {
                    (0, Some(graph)) => {
                        Request::GraphReady { graph: GraphId(graph.index as u64 + 1) }
                    }
                    (1, _) => Request::Loaded { module: self.module },
                    (2, _) => Request::PoolMemory { pool },
                    (3, _) => Request::TrimPool { pool, keep: 0 },
                    _ => Request::Memory,
                };
                self.device.request(ask);
            }
            Step::Launch { stream, graph, change, is_bulk } => {
                if !self.graphs.is_empty() {
                    let graph = usize::from(*graph) % self.graphs.len();
                    let stream = self.stream(*stream);
                    self.launch(stream, graph, *change, *is_bulk);
                }
            }
            Step::Cancel { stream, back, count } => {
                let stream = self.stream(*stream);
                let last =
                    self.last.get(&stream).copied().unwrap_or(0).saturating_sub((*back).into());
                let first = last.saturating_sub(u64::from(*count) - 1).max(1);
                if first <= last {
                    let id = StreamId(stream);
                    let cancel = Control::Cancel { stream: id, first, last, downloads: true };
                    self.device.control(cancel).unwrap();
                    let is_one = |ticket: Ticket| {
                        ticket.stream == id && (first..=last).contains(&ticket.number)
                    };
                    let subs =
                        self.run.subs.iter_mut().filter(|sub| sub.ticket.is_some_and(is_one));
                    subs.for_each(|sub| sub.is_cancelled = true);
                }
            }
            Step::Refuse => {
                if self.device.refuse(self.run.refusals.len() as u64) {
                    self.run.refusals.push(self.refusable());
                }
            }
            Step::Reset => self.reset(),
            Step::Open => self.device.open_gates(),
            Step::Batch => self.device.batch(),
            Step::Turn => self.device.give_turn_back(),
            Step::Code => self.device.code(),
            Step::Pieces(count) => (0..*count).for_each(|_| _ = self.device.piece()),
            Step::Wait => self.wait(),
        }
    }

    /// The first submission that the device can refuse from now on. Those before it may be held.
    fn refusable(&self) -> usize {
        self.complete
    }

    fn reset(&mut self) {
        let id = self.device.request(Request::Reset);
        self.resets.push(id);
    }

    fn wait(&mut self) {
        let ticket =
            |(stream, number): (&u64, &u64)| Ticket { stream: StreamId(*stream), number: *number };
        let last: Vec<_> = self.last.iter().map(ticket).collect();
        self.device.wait(&last);
        self.complete = self.run.subs.len();
    }

    /// Everything works after a reset. Then compares all that was reported with the model.
    fn finish(mut self) -> Result<(), String> {
        self.wait();
        self.reset();
        self.wait();
        self.device.clear_refusals();
        while !self.graphs.is_empty() {
            self.drop_graph(0);
        }
        while !self.live.is_empty() {
            self.free(self.streams[0], 0);
        }
        self.wait();
        for stream in self.streams.clone() {
            let alloc = self.allocate(stream, Size::Small, PoolId::DEFAULT);
            let alloc = alloc.ok_or("no memory after a reset")?;
            let half = |first| Span { alloc, first, count: UNITS / 2 };
            let word = self.word();
            self.act(stream, Do::Fill { to: half(0), word }, &[]);
            self.act(stream, Do::Copy { from: half(0), to: half(UNITS / 2) }, &[]);
            self.act(stream, Do::Store { to: half(0), word: word + 1 }, &[]);
            self.act(stream, Do::Download { from: Span { alloc, first: 0, count: UNITS } }, &[]);
        }
        self.wait();
        let works = self.run.subs.len() - 5 * STREAMS as usize;
        self.reset();
        self.wait();
        let heard = std::mem::take(&mut *self.device.log.heard.lock());
        if !heard.violations.is_empty() {
            return Err(format!("{:?}", heard.violations));
        }
        for id in &self.resets {
            match heard.replies.get(id) {
                Some(Ok(Reply::Reset { lost })) => self.run.faults.push(lost.clone()),
                other => return Err(format!("a reset has the reply {other:?}")),
            }
        }
        let mut known = self.run.faults.clone();
        for faulted in &heard.faulted {
            let at = known.iter().position(|fault| fault.as_ref() == Some(faulted));
            known.swap_remove(at.ok_or_else(|| format!("the device is lost by {faulted}"))?);
        }
        self.run.failed = heard.failed;
        let tickets: Vec<_> = self.run.subs.iter().map(|sub| sub.ticket).collect();
        *self.device.log.heard.lock() =
            device::Heard { chunks: heard.chunks, ..Default::default() };
        for (sub, ticket) in self.run.subs.iter_mut().zip(tickets) {
            if let (What::Do(Do::Download { .. }), Some(ticket)) = (&sub.what, ticket) {
                sub.bytes = Some(self.device.downloaded(ticket));
            }
        }
        self.device.close();
        let is_failed =
            |sub: &Sub| sub.ticket.is_none_or(|ticket| self.run.failed.contains_key(&ticket));
        if let Some(failed) = self.run.subs[works..].iter().find(|sub| is_failed(sub)) {
            return Err(format!("failed after a reset: {failed:?}"));
        }
        self.run.check().map_err(|wrong| format!("{wrong}\n{}", self.run.history()))
    }
}

/// The spans that steps use, one for each allocation that the steps use, with whether one of them writes it.
fn uses(steps: &[Do]) -> Vec<(Span, bool)> {
    let mut uses = Vec::<(Span, bool)>::new();
    for step in steps {
        let of = [(step.reads(), false), (step.writes(), true)];
        for (span, writes) in of.into_iter().filter_map(|(span, writes)| Some((span?, writes))) {
            match uses.iter_mut().find(|(known, _)| known.alloc == span.alloc) {
                Some((known, is_written)) => {
                    let end = (known.first + known.count).max(span.first + span.count);
                    known.first = known.first.min(span.first);
                    known.count = end - known.first;
                    *is_written |= writes;
                }
                None => uses.push((span, writes)),
            }
        }
    }
    uses
}

fn run_program(setup: &Setup, steps: &[Step]) -> Result<(), TestCaseError> {
    let mut program = Program::new(setup);
    program.allocate(1, Size::Small, PoolId::DEFAULT);
    program.allocate(2, Size::Small, PoolId::DEFAULT);
    steps.iter().for_each(|step| program.step(step));
    program.finish().map_err(TestCaseError::fail)
}

/// The number of programs. `RANDOM_PROGRAMS_COUNT=100000` runs more of them.
fn count() -> u32 {
    std::env::var("RANDOM_PROGRAMS_COUNT")
        .map_or(400, |count| count.parse().expect("RANDOM_PROGRAMS_COUNT is a number"))
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: count(),
        failure_persistence: None,
        max_shrink_iters: 1000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_programs_with_failures_agree_with_a_model(
        setup in setup(),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        run_program(&setup, &steps)?;
    }
}
