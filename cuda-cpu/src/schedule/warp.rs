//! A warp: its registers, its local memory and the positions of its lanes.
//!
//! Lanes at the same place of the same call form a [`Fragment`]. Divergence splits fragments. The fragment with the
//! lowest program counter of the deepest call runs first, so that fragments converge again. All state is plain data: a
//! warp can be left at any time and entered later.

use smallvec::SmallVec;

use super::buffer::Buffer;
use crate::isa::operand::{Class, Passed};
use crate::lanes::{LANES, lanes_of};
use crate::machine::budget::Budget;
use crate::machine::code::Code;

/// Lanes that execute together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fragment {
    pub(crate) pc: u32,
    pub(crate) mask: u32,
    /// Index into [`Warp::calls`].
    pub(crate) call: u32,
}

/// An active call. The lanes that made it together share it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallRecord {
    pub(crate) function: u32,
    pub(crate) caller: u32,
    pub(crate) return_pc: u32,
    pub(crate) depth: u32,
    /// The lanes that have not returned.
    pub(crate) lanes: u32,
    /// Start and end of the frame in the register file.
    pub(crate) frame: u32,
    pub(crate) frame_end: u32,
    /// Start of the frame in each lane's local memory.
    pub(crate) local: u32,
    /// Index of the call instruction's entry in `Code::controls`.
    pub(crate) control: u32,
}

/// The event for which a parked fragment waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The arrival of the lanes in this member mask.
    Members(u32),
    /// The completion of this barrier of the block.
    Barrier(u32),
}

/// A warp and its execution state.
pub(crate) struct Warp {
    pub(crate) index: u32,
    pub(crate) registers: Buffer,
    pub(crate) local: Buffer,
    /// Local memory of each lane, in bytes.
    pub(crate) local_size: u32,
    /// The lanes that have not exited.
    pub(crate) live: u32,
    pub(crate) ready: SmallVec<[Fragment; 4]>,
    pub(crate) parked: SmallVec<[(Fragment, Wait); 4]>,
    pub(crate) calls: Vec<CallRecord>,
    /// Whether the fragment that has waited longest runs next.
    pub(crate) rotate: bool,
}

impl Warp {
    /// Returns `None` if the host has no memory.
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

    /// Returns the number of bytes that a new warp takes.
    pub(crate) fn needed(code: &Code, function: u32) -> u64 {
        let f = &code.functions[function as usize];
        let local = u64::from(f.local_bytes).next_multiple_of(16) * LANES as u64;
        Buffer::taken(f.frame_bytes.into()) + Buffer::taken(local)
    }

    /// Returns the number of bytes that the warp takes.
    pub(crate) fn taken(&self) -> u64 {
        (self.registers.len() + self.local.len()) as u64
    }

    /// Resets the warp: these lanes are at the start of the kernel.
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

    /// Removes the next fragment to run, merged with all fragments at the same place. Also returns the lowest program
    /// counter at which it may meet another fragment.
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

    /// Returns the lanes that wait for an event selected by `which`.
    pub(crate) fn waiting_at(&self, which: impl Fn(&Wait) -> bool) -> u32 {
        let waiting = self.parked.iter().filter(|(_, wait)| which(wait));
        waiting.fold(0, |lanes, (fragment, _)| lanes | fragment.mask)
    }

    /// Removes exiting lanes from the warp and from all their calls.
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

    /// Stores a new call in a record whose lanes have all returned, or in a new record. Returns its index.
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

    /// Returns the start of a new frame above its caller's. It does not overlap the frames of other lanes' active
    /// calls, except a frame of the same function at the same place, because each lane has its own column there.
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

    /// Grows the register file to `registers` bytes, and the local memory of every lane to `local` bytes. Returns false
    /// if the budget or the host has no room.
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

    /// Copies arguments to parameters, or results back, for these lanes, from one call's frame to another's. If the
    /// sizes of a pair differ, copies the smaller one.
    pub(crate) fn pass(&mut self, lanes: u32, from: (u32, &[Passed]), to: (u32, &[Passed])) {
        for (source, target) in from.1.iter().zip(to.1) {
            for lane in lanes_of(lanes) {
                let value = self.passed(from.0, source, lane);
                self.set_passed(to.0, target, lane, &value);
            }
        }
    }

    /// Returns the bytes of one lane's argument or result. A predicate has the bytes of 0 or 1.
    pub(crate) fn passed(&self, call: u32, passed: &Passed, lane: usize) -> SmallVec<[u8; 64]> {
        let (place, size) = self.place(call, passed, lane);
        let bytes = match passed {
            Passed::Local(..) => &self.local.bytes()[place..place + size],
            Passed::Register(..) => &self.registers.bytes()[place..place + size],
        };
        match passed {
            Passed::Register(_, Class::Pred) => {
                SmallVec::from_slice(&[bytes[lane / 8] >> (lane % 8) & 1, 0, 0, 0])
            }
            _ => SmallVec::from_slice(bytes),
        }
    }

    /// Writes the bytes of one lane's argument or result. If its size is another one, writes the smaller number.
    pub(crate) fn set_passed(&mut self, call: u32, passed: &Passed, lane: usize, value: &[u8]) {
        let (place, size) = self.place(call, passed, lane);
        let bytes = match passed {
            Passed::Local(..) => &mut self.local.bytes_mut()[place..place + size],
            Passed::Register(..) => &mut self.registers.bytes_mut()[place..place + size],
        };
        if let Passed::Register(_, Class::Pred) = passed {
            let holds = value.iter().any(|byte| *byte != 0);
            let others = bytes[lane / 8] & !(1 << (lane % 8));
            bytes[lane / 8] = others | u8::from(holds) << (lane % 8);
            return;
        }
        let n = size.min(value.len());
        bytes[..n].copy_from_slice(&value[..n]);
    }

    fn place(&self, call: u32, passed: &Passed, lane: usize) -> (usize, usize) {
        let record = &self.calls[call as usize];
        match *passed {
            Passed::Local(at, size) => {
                let start = lane * self.local_size as usize + (record.local + at) as usize;
                (start, size as usize)
            }
            // One word has the bits of all lanes.
            Passed::Register(slot, Class::Pred) => ((record.frame + slot.0) as usize, 4),
            Passed::Register(slot, class) => {
                let size = if class == Class::W64 { 8 } else { 4 };
                ((record.frame + slot.0) as usize + lane * size, size)
            }
        }
    }
}

/// Returns the size to which a lane's local memory of `bytes` bytes grows.
fn local_room(bytes: u32) -> u32 {
    bytes.next_power_of_two().max(256)
}
