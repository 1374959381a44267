//! Random programs, and their generation from a seed.

use super::model::UNITS;

/// The buffers of a program. The first one is the input of its graphs, and keeps its memory.
pub const REGISTERS: usize = 5;

pub const STREAMS: usize = 3;

/// Some units of a buffer.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    pub register: usize,
    pub first: usize,
    pub count: usize,
}

#[derive(Debug, Clone, Copy)]
pub enum Write {
    Fill(u32),
    Upload(u32, u32),
    /// The same units of another buffer, or of the output of the graph.
    Copy(usize),
    /// A kernel that reads and writes.
    Mad(u32),
    /// Kernels that fault.
    Trap,
    Outside,
}

#[derive(Debug, Clone, Copy)]
pub enum How {
    /// `sync_on`.
    Sync,
    /// `async_on`.
    Async,
    /// The method of the buffer, or `async_on` if it has none.
    Raw,
    /// `schedule`. A later step awaits the result.
    Later,
    /// `schedule`. The future is polled this many times, then dropped.
    Drop { polls: usize },
    /// `schedule` and `.await` in a task of another thread. A later step awaits the task.
    Spawn,
}

#[derive(Debug, Clone, Copy)]
pub enum Step {
    Write {
        to: Place,
        write: Write,
        stream: usize,
        how: How,
    },
    Read {
        from: Place,
        stream: usize,
        how: How,
    },
    /// A download through the handle of the buffer. Others may write the buffer meanwhile.
    Download {
        from: Place,
        stream: usize,
    },
    /// An upload, a kernel and a download of memory that nothing else uses.
    Chain {
        first: u32,
        add: u32,
        is_large: bool,
        stream: usize,
        how: How,
    },
    Launch {
        stream: usize,
        how: How,
    },
    LaunchTrap {
        stream: usize,
        how: How,
    },
    Replace {
        register: usize,
        stream: usize,
        how: How,
    },
    /// Allocates more than the lease has.
    TooMuch {
        stream: usize,
        how: How,
    },
    /// Allocates more than a third of what the lease has, and keeps it.
    Hog {
        stream: usize,
    },
    DropHogs,
    Join {
        back: usize,
    },
    Drop {
        back: usize,
    },
    Synchronize {
        stream: usize,
    },
    SynchronizeAll,
    NewStream {
        stream: usize,
    },
    Load,
    Reset,
    StartReset,
    Rebind,
    /// The network passes no packets for this time.
    Pause {
        ms: u64,
    },
}

#[derive(Debug, Clone)]
pub struct Program {
    pub steps: Vec<Step>,
    /// The lease ends while operations are in flight.
    pub ends_early: bool,
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
        let count = 5 + r.below(45);
        // In some programs nothing faults.
        let is_calm = r.below(4) == 0;
        let steps = (0..count).map(|_| Step::drawn(&mut r, is_calm)).collect();
        Self { steps, ends_early: r.below(6) == 0 }
    }
}

impl Place {
    fn drawn(r: &mut Random) -> Self {
        let register = r.below(REGISTERS);
        if r.below(2) == 0 {
            return Self { register, first: 0, count: UNITS };
        }
        let first = r.below(UNITS);
        Self { register, first, count: 1 + r.below(UNITS - first) }
    }
}

impl How {
    fn drawn(r: &mut Random) -> Self {
        match r.below(12) {
            0..3 => How::Sync,
            3..6 => How::Async,
            6 | 7 => How::Raw,
            8 => How::Later,
            9 => How::Spawn,
            _ => How::Drop { polls: r.below(3) },
        }
    }

    fn awaited(r: &mut Random) -> Self {
        match r.below(8) {
            0..3 => How::Sync,
            3..5 => How::Later,
            5 => How::Spawn,
            _ => How::Drop { polls: r.below(3) },
        }
    }
}

impl Step {
    fn drawn(r: &mut Random, is_calm: bool) -> Self {
        let stream = r.below(STREAMS);
        match r.below(100) {
            0..38 => {
                let write = match r.below(26) {
                    0..4 => Write::Fill(r.word()),
                    4..9 => Write::Upload(r.word(), r.word()),
                    9..15 => Write::Copy(r.below(REGISTERS + 1)),
                    15..24 => Write::Mad(r.word()),
                    _ if is_calm => Write::Mad(r.word()),
                    24 => Write::Trap,
                    _ => Write::Outside,
                };
                Step::Write { to: Place::drawn(r), write, stream, how: How::drawn(r) }
            }
            38..50 => Step::Read { from: Place::drawn(r), stream, how: How::awaited(r) },
            50..58 => Step::Download { from: Place::drawn(r), stream },
            58..63 => {
                let (first, add, is_large) = (r.word(), r.word(), r.below(4) == 0);
                Step::Chain { first, add, is_large, stream, how: How::awaited(r) }
            }
            63..68 => Step::Launch { stream, how: How::drawn(r) },
            68 if !is_calm => Step::LaunchTrap { stream, how: How::drawn(r) },
            69..72 => Step::Replace { register: r.below(REGISTERS), stream, how: How::drawn(r) },
            72 => Step::TooMuch { stream, how: How::drawn(r) },
            73 => Step::Hog { stream },
            74 => Step::DropHogs,
            75..80 => Step::Join { back: r.below(4) },
            80..82 => Step::Drop { back: r.below(4) },
            82..85 => Step::Synchronize { stream },
            85..87 => Step::SynchronizeAll,
            87 => Step::NewStream { stream },
            88 => Step::Load,
            89..93 => Step::Reset,
            93..96 => Step::StartReset,
            96..98 => Step::Rebind,
            98 => Step::Pause { ms: 5 + r.below(60) as u64 },
            _ => Step::SynchronizeAll,
        }
    }
}
