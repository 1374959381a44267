//! A warp: its registers and local memory, and where its lanes are.
//!
//! Lanes that are at the same place of the same call form a [`Fragment`]. Divergence splits
//! fragments; the lowest program counter of the deepest call runs first, so that fragments meet
//! again. All of it is plain data: a warp can be left at any time and entered later.

use smallvec::SmallVec;

use super::budget::Budget;
use super::buffer::Buffer;
use super::code::{Code, Passed};
use super::ctx::{LANES, lanes_of};
use super::op::Class;

/// Lanes that run together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fragment {
    pub(crate) pc: u32,
    pub(crate) mask: u32,
    /// Index into [`Warp::calls`].
    pub(crate) call: u32,
}

/// A call that is going on: the lanes that made it together share it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallRecord {
    pub(crate) function: u32,
    pub(crate) caller: u32,
    pub(crate) return_pc: u32,
    pub(crate) depth: u32,
    /// Lanes that have not returned.
    pub(crate) lanes: u32,
    /// Where the frame begins and ends in the register file.
    pub(crate) frame: u32,
    pub(crate) frame_end: u32,
    /// Where its bytes begin in each lane's local memory.
    pub(crate) local: u32,
    /// The instruction's entry in `Code::controls`.
    pub(crate) control: u32,
}

/// What a parked fragment waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The lanes of this member mask.
    Members(u32),
    /// A barrier of the block.
    Barrier(u32),
}

/// See the module.
pub(crate) struct Warp {
    pub(crate) index: u32,
    pub(crate) registers: Buffer,
    pub(crate) local: Buffer,
    /// Bytes of local memory of each lane.
    pub(crate) local_size: u32,
    /// Lanes that have not exited.
    pub(crate) live: u32,
    pub(crate) ready: SmallVec<[Fragment; 4]>,
    pub(crate) parked: SmallVec<[(Fragment, Wait); 4]>,
    pub(crate) calls: Vec<CallRecord>,
    /// Next time, the fragment that has waited longest runs.
    pub(crate) rotate: bool,
}

impl Warp {
    /// `None` when the host has no room.
    pub(crate) fn new(index: u32, code: &Code, function: u32) -> Option<Self> {
        let f = &code.functions[function as usize];
        let local_size = f.local_bytes.next_multiple_of(16);
        Some(Self {
            index,
            registers: Buffer::new(f.frame_bytes as usize)?,
            local: Buffer::new(local_size as usize * LANES)?,
            local_size,
            live: 0,
            ready: SmallVec::new(),
            parked: SmallVec::new(),
            calls: Vec::new(),
            rotate: false,
        })
    }

    /// The bytes that a new warp takes.
    pub(crate) fn needed(code: &Code, function: u32) -> u64 {
        let f = &code.functions[function as usize];
        let local = u64::from(f.local_bytes).next_multiple_of(16) * LANES as u64;
        Buffer::taken(f.frame_bytes.into()) + Buffer::taken(local)
    }

    /// The bytes that it takes.
    pub(crate) fn taken(&self) -> u64 {
        (self.registers.len() + self.local.len()) as u64
    }

    /// Begins again: these lanes stand at the start of the kernel.
    pub(crate) fn restart(&mut self, lanes: u32, function: u32, entry: u32, frame_end: u32) {
        self.live = lanes;
        self.rotate = false;
        self.parked.clear();
        self.ready.clear();
        self.ready.push(Fragment { pc: entry, mask: lanes, call: 0 });
        self.calls.clear();
        self.calls.push(CallRecord {
            function,
            caller: 0,
            return_pc: 0,
            depth: 0,
            lanes,
            frame: 0,
            frame_end,
            local: 0,
            control: 0,
        });
    }

    fn depth(&self, fragment: &Fragment) -> u32 {
        self.calls[fragment.call as usize].depth
    }

    /// Takes the fragment to run next, with all that are at the same place, and gives the lowest
    /// program counter at which it may meet another.
    pub(crate) fn pick(&mut self) -> Option<(Fragment, u32)> {
        let rotate = std::mem::take(&mut self.rotate) && self.ready.len() > 1;
        let chosen = match self.ready.len() {
            0 => return None,
            1 => 0,
            _ if rotate => 0,
            _ => {
                let order = |&i: &usize| (u32::MAX - self.depth(&self.ready[i]), self.ready[i].pc);
                (0..self.ready.len()).min_by_key(order)?
            }
        };
        let mut fragment = self.ready.remove(chosen);
        if self.ready.is_empty() {
            return Some((fragment, u32::MAX));
        }
        self.ready.retain(|other| {
            let same = other.pc == fragment.pc && other.call == fragment.call;
            if same {
                fragment.mask |= other.mask;
            }
            !same
        });
        if rotate {
            return Some((fragment, u32::MAX));
        }
        let depth = self.depth(&fragment);
        let same_depth = self.ready.iter().filter(|f| self.depth(f) == depth);
        Some((fragment, same_depth.map(|f| f.pc).min().unwrap_or(u32::MAX)))
    }

    /// The lanes that wait for such a thing.
    pub(crate) fn waiting_at(&self, which: impl Fn(&Wait) -> bool) -> u32 {
        let waiting = self.parked.iter().filter(|(_, wait)| which(wait));
        waiting.fold(0, |lanes, (fragment, _)| lanes | fragment.mask)
    }

    /// Lanes exit: they leave all their calls.
    pub(crate) fn exit(&mut self, fragment: &Fragment, lanes: u32) {
        self.live &= !lanes;
        let mut call = fragment.call;
        loop {
            let record = &mut self.calls[call as usize];
            record.lanes &= !lanes;
            if call == 0 {
                return;
            }
            call = record.caller;
        }
    }

    /// A place for a new call: one whose lanes have all returned, or a new one.
    pub(crate) fn new_call(&mut self, record: CallRecord) -> u32 {
        let free = self.calls.iter().skip(1).position(|r| r.lanes == 0);
        match free {
            Some(i) => {
                self.calls[i + 1] = record;
                i as u32 + 1
            }
            None => {
                self.calls.push(record);
                self.calls.len() as u32 - 1
            }
        }
    }

    /// Where a frame of this function can begin, above its caller's: clear of the frames of calls
    /// that other lanes are in, unless they are of the same function and begin at the same place,
    /// where lanes do not get in each other's way.
    pub(crate) fn free_frame(&self, caller: &CallRecord, function: u32, bytes: u32) -> u32 {
        let mut at = caller.frame_end;
        let live = || self.calls.iter().filter(|r| r.lanes != 0);
        let overlaps = |r: &&CallRecord, at: u32| {
            let shared = r.function == function && r.frame == at;
            r.frame < at.saturating_add(bytes) && at < r.frame_end && !shared
        };
        while let Some(other) = live().find(|r| overlaps(r, at)) {
            at = other.frame_end;
        }
        at
    }

    /// Makes room for `registers` bytes of frames, and for `local` bytes of local memory of every lane.
    /// False when the budget or the host has no room.
    #[must_use]
    pub(crate) fn grow(&mut self, registers: u32, local: u32, budget: &Budget) -> bool {
        let file = Buffer::taken(registers.into()).saturating_sub(self.registers.len() as u64);
        let locals = if local > self.local_size {
            let grown = Buffer::taken(u64::from(local_room(local)) * LANES as u64);
            grown.saturating_sub(self.local.len() as u64)
        } else {
            0
        };
        if file + locals == 0 {
            return true;
        }
        budget.take(file + locals)
            && self.registers.grow(registers as usize)
            && self.grow_local(local).is_some()
    }

    fn grow_local(&mut self, bytes: u32) -> Option<()> {
        if bytes <= self.local_size {
            return Some(());
        }
        let size = local_room(bytes);
        let mut grown = Buffer::new(size as usize * LANES)?;
        let old = self.local_size as usize;
        for lane in 0..LANES {
            let to = lane * size as usize;
            let from = &self.local.bytes()[lane * old..][..old];
            grown.bytes_mut()[to..to + old].copy_from_slice(from);
        }
        self.local = grown;
        self.local_size = size;
        Some(())
    }

    /// Copies arguments to parameters (or results back) for these lanes, from one call's frame to
    /// another's. Pairs that do not match in size copy what both have.
    pub(crate) fn pass(&mut self, lanes: u32, from: (u32, &[Passed]), to: (u32, &[Passed])) {
        for (source, target) in from.1.iter().zip(to.1) {
            for lane in lanes_of(lanes) {
                let (value, _) = self.passed(from.0, source, lane);
                let bytes: SmallVec<[u8; 64]> = SmallVec::from_slice(value);
                let (place, size) = self.place(to.0, target, lane);
                let n = size.min(bytes.len());
                let file = match target {
                    Passed::Local(..) => self.local.bytes_mut(),
                    Passed::Register(..) => self.registers.bytes_mut(),
                };
                file[place..place + n].copy_from_slice(&bytes[..n]);
            }
        }
    }

    /// The bytes of an argument of one lane.
    pub(crate) fn passed(&self, call: u32, passed: &Passed, lane: usize) -> (&[u8], usize) {
        let (place, size) = self.place(call, passed, lane);
        let file = match passed {
            Passed::Local(..) => self.local.bytes(),
            Passed::Register(..) => self.registers.bytes(),
        };
        (&file[place..place + size], size)
    }

    /// Writes an argument or result of one lane.
    pub(crate) fn set_passed(&mut self, call: u32, passed: &Passed, lane: usize, value: u64) {
        let (place, size) = self.place(call, passed, lane);
        let n = size.min(8);
        let file = match passed {
            Passed::Local(..) => self.local.bytes_mut(),
            Passed::Register(..) => self.registers.bytes_mut(),
        };
        file[place..place + n].copy_from_slice(&value.to_le_bytes()[..n]);
    }

    fn place(&self, call: u32, passed: &Passed, lane: usize) -> (usize, usize) {
        let record = &self.calls[call as usize];
        match *passed {
            Passed::Local(at, size) => {
                let start = lane * self.local_size as usize + (record.local + at) as usize;
                (start, size as usize)
            }
            Passed::Register(slot, class) => {
                let size = if class == Class::W64 { 8 } else { 4 };
                ((record.frame + slot.0) as usize + lane * size, size)
            }
        }
    }
}

/// How much local memory a lane is given when `bytes` are not there.
fn local_room(bytes: u32) -> u32 {
    bytes.next_power_of_two().max(256)
}
