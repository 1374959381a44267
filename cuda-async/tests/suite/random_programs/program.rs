//! Random programs, and their generation from a seed.

use std::ops::Range;

use super::reference::LEN;

/// The number of buffers that a program keeps from step to step.
pub const REGISTERS: usize = 3;

/// The number of streams that all programs share.
pub const STREAMS: usize = 10;

/// The number of policies that all programs share.
pub const POLICIES: usize = 3;

/// Steps in sequence. The work of a step may still run when the next step begins.
#[derive(Debug, Clone)]
pub struct Program {
    pub steps: Vec<Step>,
}

#[derive(Debug, Clone)]
pub enum Step {
    /// Operations that are built together, share parts, and run concurrently.
    Round(Round),
    /// `register = register * a + b`: in place, unless the buffer has another owner.
    Mutate { register: usize, a: u32, b: u32, stream: usize },
    /// A new buffer, allocated on one stream and written on another. The old one is freed.
    Replace { register: usize, value: u32, allocated: usize, written: usize },
    /// `into = from + from`.
    Double { from: usize, into: usize, stream: usize },
    /// Reads `from` on every stream, changes it, and combines the reads in `into`.
    Fan { from: usize, into: usize, stream: usize },
    /// Reads a register and compares.
    Check { register: usize, stream: usize },
    /// Splits a buffer into owned parts, changes them on several streams, and gathers them in a new buffer, each part
    /// on a stream of its own.
    Parts { register: usize, cut: Cut, changes: Vec<PartChange>, gather: Vec<usize> },
    /// Borrows mutable slices of a buffer and changes them on several streams.
    Borrowed { register: usize, cut: Cut, changes: Vec<PartChange> },
    /// Reads a shared slice of a register and compares.
    CheckSlice { register: usize, range: Range<usize>, stream: usize },
}

/// The boundaries at which a buffer is split.
#[derive(Debug, Clone, Copy)]
pub enum Cut {
    /// Two halves, perhaps empty: `split_at`, `split_at_mut`.
    At(usize),
    /// Chunks of this size: `chunks`, `chunks_mut`.
    Every(usize),
}

impl Cut {
    pub fn ranges(self) -> Vec<Range<usize>> {
        match self {
            Cut::At(mid) => vec![0..mid, mid..LEN],
            Cut::Every(size) => (0..LEN).step_by(size).map(|at| at..(at + size).min(LEN)).collect(),
        }
    }

    fn drawn(r: &mut Random) -> Self {
        if r.below(2) == 0 { Cut::At(r.below(LEN + 1)) } else { Cut::Every(1 + r.below(LEN)) }
    }
}

/// A change to one part of a split buffer. The number of the part counts modulo the number of parts.
#[derive(Debug, Clone, Copy)]
pub struct PartChange {
    pub part: usize,
    pub change: Change,
    pub stream: usize,
    /// Whether the operation is dropped once it is submitted, if the change is made of a borrowed slice and all of its
    /// work is submitted by one poll.
    pub is_dropped: bool,
}

/// A change to some elements of a buffer.
#[derive(Debug, Clone, Copy)]
pub enum Change {
    /// `x * a + b`, by a kernel.
    Mad(u32, u32),
    /// `v`, by a fill.
    Fill(u32),
    /// `v`, `v + 1`, .., by a kernel.
    Count(u32),
    /// `v`, `v + 1`, .., by a kernel that writes other memory, and a copy.
    CountAndCopy(u32),
    /// `v`, `v + 1`, .., by an upload.
    Upload(u32),
    /// Elements of a register, by a copy.
    Copy { from: usize, at: usize },
    /// The sum of elements of two registers, by a kernel.
    Sum { a: usize, b: usize, at: usize },
    /// Adds `v` on the host, between a download and an upload.
    Host(u32),
}

impl Change {
    /// Reads no register but those that `registers` gives.
    fn drawn(r: &mut Random, registers: &dyn Fn(&mut Random) -> usize) -> Self {
        let (from, at) = (registers(r), r.below(LEN + 1));
        match r.below(15) {
            0..4 => Change::Mad(r.word() | 1, r.word()),
            4..6 => Change::Fill(r.word()),
            6 => Change::Count(r.word()),
            7..9 => Change::Upload(r.word()),
            9 | 10 => Change::Copy { from, at },
            11 => Change::Sum { a: from, b: registers(r), at },
            12 | 13 => Change::CountAndCopy(r.word()),
            _ => Change::Host(r.word()),
        }
    }
}

impl PartChange {
    fn drawn(r: &mut Random, register: usize) -> Self {
        let other = |r: &mut Random| (register + 1 + r.below(REGISTERS - 1)) % REGISTERS;
        let (part, stream) = (r.below(LEN), r.below(STREAMS));
        Self { part, change: Change::drawn(r, &other), stream, is_dropped: r.below(2) == 0 }
    }
}

/// A graph and the nodes of it that are run. A node that is used more than once is one shared operation.
#[derive(Debug, Clone)]
pub struct Round {
    pub nodes: Vec<Node>,
    pub runs: Vec<Run>,
}

/// Numbers refer to earlier nodes of the same graph.
#[derive(Debug, Clone)]
pub enum Node {
    Upload(u32),
    /// Allocated and not initialized, then written.
    Uninitialized(u32),
    Register(usize),
    Mad(usize, u32, u32),
    /// Runs two nodes concurrently and adds them.
    Add(usize, usize),
    /// Runs any number of nodes concurrently and adds them in sequence.
    Sum(Vec<usize>),
    /// Downloads, changes on the host, and uploads.
    Host(usize),
    /// Writes to the tape, then reads it in three branches, two of them nested in another one.
    Fork(usize, u32),
    /// Writes to the tape in a nested branch, and reads it after the joins.
    Join(usize, u32),
    /// Writes to the tape.
    Mark(usize, u32),
    /// Reads the place that a mark has written.
    Told(usize),
    /// Changes mutable slices of a buffer at the same time. The changes count modulo their number.
    Pieces(usize, Cut, Vec<Change>),
    /// Fills the elements before an offset, and copies the others from a shared slice.
    Tail(usize, usize, u32),
    /// Splits a buffer into two owned parts and joins them in the other order.
    Swap(usize, usize),
    Fail(usize, Failure),
}

#[derive(Debug, Clone, Copy)]
pub enum Failure {
    /// A closure returns an error.
    Error,
    /// A closure panics.
    Panic,
    /// A launch has too few arguments.
    Arguments,
}

#[derive(Debug, Clone)]
pub struct Run {
    pub root: usize,
    pub how: How,
    /// The register for the output. Without one, the output is read and compared.
    pub into: Option<usize>,
}

#[derive(Debug, Clone, Copy)]
pub enum How {
    /// `sync_on`.
    Block { stream: usize },
    /// `async_on`; the output is used at once, on another stream.
    Detach { stream: usize, reader: usize },
    /// `schedule` now, wait for it when everything has begun.
    Schedule { policy: usize },
    /// A task.
    Spawn { policy: usize },
    /// `schedule`, poll this often, drop.
    Drop { policy: usize, polls: usize },
    /// A task that is aborted after this thread has yielded this many times.
    Abort { policy: usize, yields: usize },
}

impl Node {
    pub fn inputs(&self) -> Vec<usize> {
        match self {
            Node::Upload(_) | Node::Uninitialized(_) | Node::Register(_) => Vec::new(),
            Node::Add(a, b) => vec![*a, *b],
            Node::Sum(parts) => parts.clone(),
            Node::Mad(of, ..)
            | Node::Host(of)
            | Node::Fork(of, _)
            | Node::Join(of, _)
            | Node::Mark(of, _)
            | Node::Told(of)
            | Node::Pieces(of, ..)
            | Node::Tail(of, ..)
            | Node::Swap(of, _)
            | Node::Fail(of, _) => vec![*of],
        }
    }
}

impl Round {
    /// Counts the uses of each node by the nodes that the runs reach.
    pub fn uses(&self) -> Vec<usize> {
        let mut uses = vec![0; self.nodes.len()];
        self.runs.iter().for_each(|run| uses[run.root] += 1);
        for node in (0..self.nodes.len()).rev() {
            if uses[node] > 0 {
                self.nodes[node].inputs().iter().for_each(|input| uses[*input] += 1);
            }
        }
        uses
    }
}

/// Steele, Lea and Flood's `splitmix64`.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn word(&mut self) -> u32 {
        self.next() as u32
    }
}

impl Program {
    pub fn drawn(seed: u64) -> Self {
        let mut r = Random(seed);
        let steps = 3 + r.below(8);
        Self { steps: (0..steps).map(|_| Step::drawn(&mut r)).collect() }
    }
}

impl Step {
    fn drawn(r: &mut Random) -> Self {
        let (register, stream) = (r.below(REGISTERS), r.below(STREAMS));
        match r.below(17) {
            0..3 => Step::Round(Round::drawn(r)),
            3..5 => Step::Mutate { register, a: r.word() | 1, b: r.word(), stream },
            5 => {
                let (allocated, written) = (stream, r.below(STREAMS));
                Step::Replace { register, value: r.word(), allocated, written }
            }
            6..9 => Step::Double { from: register, into: r.below(REGISTERS), stream },
            9 => Step::Fan { from: register, into: r.below(REGISTERS), stream },
            10 => Step::Check { register, stream },
            11 | 12 => {
                let (cut, changes) = (Cut::drawn(r), changes(r, register));
                let gather = (0..1 + r.below(3)).map(|_| r.below(STREAMS)).collect();
                Step::Parts { register, cut, changes, gather }
            }
            13..16 => {
                Step::Borrowed { register, cut: Cut::drawn(r), changes: changes(r, register) }
            }
            _ => {
                let (a, b) = (r.below(LEN + 1), r.below(LEN + 1));
                Step::CheckSlice { register, range: a.min(b)..a.max(b), stream }
            }
        }
    }
}

fn changes(r: &mut Random, register: usize) -> Vec<PartChange> {
    (0..1 + r.below(6)).map(|_| PartChange::drawn(r, register)).collect()
}

impl Round {
    fn drawn(r: &mut Random) -> Self {
        let mut nodes = vec![Node::leaf(r)];
        for _ in 0..r.below(8) {
            let node = Node::drawn(r, &nodes);
            nodes.push(node);
        }
        let runs = (0..1 + r.below(3)).map(|_| Run::drawn(r, nodes.len())).collect();
        Self { nodes, runs }
    }
}

impl Node {
    fn leaf(r: &mut Random) -> Self {
        match r.below(4) {
            0 => Node::Upload(r.word()),
            1 => Node::Uninitialized(r.word()),
            _ => Node::Register(r.below(REGISTERS)),
        }
    }

    fn drawn(r: &mut Random, earlier: &[Node]) -> Self {
        // Mostly recent nodes, so that graphs are deep as well as wide.
        let any = |r: &mut Random| {
            let back = r.below(earlier.len()).min(r.below(earlier.len()));
            earlier.len() - 1 - back
        };
        let of = any(r);
        let told = earlier.iter().rposition(|node| matches!(node, Node::Mark(..)));
        match r.below(46) {
            0..4 => Node::leaf(r),
            4..9 => Node::Mad(of, r.word(), r.word()),
            9..15 => Node::Add(of, any(r)),
            15..19 => Node::Sum((0..r.below(5)).map(|_| any(r)).collect()),
            19..23 => Node::Host(of),
            23..27 => Node::Fork(of, r.word()),
            27..31 => Node::Join(of, r.word()),
            31..34 => Node::Mark(of, r.word()),
            34..39 => told.map_or(Node::Mark(of, r.word()), Node::Told),
            39..42 => {
                let any = |r: &mut Random| r.below(REGISTERS);
                let changes = (0..1 + r.below(3)).map(|_| Change::drawn(r, &any)).collect();
                Node::Pieces(of, Cut::drawn(r), changes)
            }
            42 | 43 => Node::Tail(of, r.below(LEN + 1), r.word()),
            44 => Node::Swap(of, r.below(LEN + 1)),
            _ => Node::Fail(of, [Failure::Error, Failure::Panic, Failure::Arguments][r.below(3)]),
        }
    }
}

impl Run {
    fn drawn(r: &mut Random, nodes: usize) -> Self {
        let root = nodes - 1 - r.below(nodes).min(r.below(nodes));
        let (stream, policy) = (r.below(STREAMS), r.below(POLICIES));
        let how = match r.below(12) {
            0..2 => How::Block { stream },
            2..6 => How::Detach { stream, reader: r.below(STREAMS) },
            6..8 => How::Schedule { policy },
            8..10 => How::Spawn { policy },
            10 => How::Drop { policy, polls: r.below(4) },
            _ => How::Abort { policy, yields: r.below(6) },
        };
        let into = (r.below(2) == 0).then(|| r.below(REGISTERS));
        Self { root, how, into }
    }
}
