//! Runs a warp until it waits, ends, or has used its time slice.

use super::address::Segment;
use super::block::BlockState;
use super::code::{Call, Callee, Code, Control};
use super::ctx::{Ctx, LANES, lanes_of};
use super::fault::FaultKind;
use super::op::{Flow, Op};
use super::presets;
use super::warp::{CallRecord, Fragment, Wait, Warp};

/// Back-edges in a time slice.
pub(crate) const SLICE: i32 = 1 << 14;

/// Nested calls.
const MAX_DEPTH: u32 = 1024;

/// Local memory of a lane, in bytes.
const MAX_LOCAL: u32 = 512 << 10;

/// Why a warp stopped running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// All lanes have exited.
    Done,
    /// Nobody can run until something outside the warp happens.
    Blocked,
    /// It could go on, but others should have the core.
    Yielded,
}

/// The program counter of a fault; what it was is in the context.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Faulted {
    pub(crate) pc: u32,
}

/// One worker's engine.
pub(crate) struct Runner<'a> {
    pub(crate) ctx: Ctx<'a>,
    pub(crate) code: &'a Code,
}

impl Runner<'_> {
    /// Runs `warp` for at most a time slice.
    pub(crate) fn run(&mut self, warp: &mut Warp, block: &mut BlockState) -> Result<Stop, Faulted> {
        self.ctx.fuel = SLICE;
        self.ctx.live = warp.live;
        loop {
            self.meet(warp);
            let Some((fragment, merge_pc)) = warp.pick() else {
                return Ok(if warp.live == 0 { Stop::Done } else { Stop::Blocked });
            };
            self.enter(warp, &fragment);
            self.ctx.merge_pc = merge_pc;
            let (pc, flow) = self.dispatch(fragment.pc);
            let at = Fragment { pc, ..fragment };
            match flow {
                Flow::Jump => {
                    warp.ready.push(at);
                    if self.ctx.fuel < 0 {
                        warp.rotate = true;
                        return Ok(Stop::Yielded);
                    }
                }
                Flow::Diverge => self.diverge(warp, at),
                Flow::Control => {
                    if self.control(warp, block, at)? {
                        return Ok(Stop::Yielded);
                    }
                }
                Flow::Fault | Flow::Next => return Err(Faulted { pc }),
            }
        }
    }

    /// Makes a fragment's frame and lanes the current ones.
    pub(crate) fn enter(&mut self, warp: &mut Warp, fragment: &Fragment) {
        let record = &warp.calls[fragment.call as usize];
        self.ctx.mask = fragment.mask;
        let size = u64::from(warp.local_size);
        self.ctx.spaces.local = Segment { start: warp.local.bytes_mut().as_mut_ptr(), size };
        self.ctx.enter(&mut warp.registers.bytes_mut()[record.frame as usize..]);
    }

    /// The dispatch loop: runs until a handler wants more than the next instruction or a jump.
    fn dispatch(&mut self, start: u32) -> (u32, Flow) {
        let (ctx, code) = (&mut self.ctx, self.code);
        let mut pc = start;
        loop {
            let op = &code.ops[pc as usize];
            // SAFETY: `enter` has set the frame of the function that this op belongs to: jumps stay
            // within a function, and calls and returns come through `control`.
            match unsafe { (op.run)(ctx, op) } {
                Flow::Next => pc += 1,
                Flow::Jump => {
                    let target = ctx.target;
                    if target <= pc {
                        ctx.fuel -= 1;
                        if ctx.fuel < 0 {
                            return (target, Flow::Jump);
                        }
                    }
                    pc = target;
                    if pc >= ctx.merge_pc {
                        return (pc, Flow::Jump);
                    }
                }
                flow => return (pc, flow),
            }
        }
    }

    fn diverge(&mut self, warp: &mut Warp, at: Fragment) {
        let (target, taken) = (self.ctx.target, self.ctx.taken);
        if target <= at.pc {
            self.ctx.fuel -= 1;
        }
        warp.ready.push(Fragment { pc: at.pc + 1, mask: at.mask & !taken, ..at });
        warp.ready.push(Fragment { pc: target, mask: taken, ..at });
    }

    /// Does what the instruction at `at.pc` asks of the scheduler; true: end the time slice.
    fn control(
        &mut self,
        warp: &mut Warp,
        block: &mut BlockState,
        at: Fragment,
    ) -> Result<bool, Faulted> {
        let code = self.code;
        let op = &code.ops[at.pc as usize];
        let active = self.ctx.guarded(op);
        let next = Fragment { pc: at.pc + 1, ..at };
        let push = |warp: &mut Warp, mask: u32| {
            if mask != 0 {
                warp.ready.push(Fragment { mask, ..next });
            }
        };
        push(warp, at.mask & !active);
        let here = Fragment { mask: active, ..at };
        if active == 0 {
            return Ok(false);
        }
        match &code.controls[op.extra as usize] {
            Control::Exit => {
                warp.exit(&here, active);
                self.ctx.live = warp.live;
                block.live_threads -= active.count_ones();
            }
            Control::Return => self.leave_call(warp, here),
            Control::Call(call) => self.call(warp, here, op, call)?,
            Control::Indexed { index, targets } => {
                for lane in lanes_of(active) {
                    let index = self.ctx.lane::<u32>(*index, lane);
                    let Some(&pc) = targets.get(index as usize) else {
                        let targets = targets.len() as u32;
                        return self.fault(at.pc, lane, FaultKind::BadBranch { index, targets });
                    };
                    warp.ready.push(Fragment { pc, mask: 1 << lane, ..at });
                }
            }
            Control::Barrier(barrier) => {
                block
                    .arrive(&mut self.ctx, warp, here, barrier)
                    .map_err(|()| Faulted { pc: at.pc })?;
            }
            Control::Collective(c) => {
                for lane in lanes_of(active) {
                    let members = self.ctx.lane::<u32>(c.members, lane);
                    let one = Fragment { mask: 1 << lane, ..here };
                    let same = |(f, w): &&mut (Fragment, Wait)| {
                        f.pc == here.pc && f.call == here.call && *w == Wait::Members(members)
                    };
                    match warp.parked.iter_mut().find(same) {
                        Some((f, _)) => f.mask |= one.mask,
                        None => warp.parked.push((one, Wait::Members(members))),
                    }
                }
            }
            Control::Pause => {
                push(warp, active);
                warp.rotate = true;
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn fault<T>(&mut self, pc: u32, lane: usize, kind: FaultKind) -> Result<T, Faulted> {
        self.ctx.fail(lane, kind);
        Err(Faulted { pc })
    }

    /// Completes every collective whose members have all arrived or exited.
    fn meet(&mut self, warp: &mut Warp) {
        let mut i = 0;
        while i < warp.parked.len() {
            let Wait::Members(members) = warp.parked[i].1 else {
                i += 1;
                continue;
            };
            let together = |w: &Wait| *w == Wait::Members(members);
            let present =
                warp.parked.iter().filter(|(_, w)| together(w)).fold(0, |m, (f, _)| m | f.mask);
            if members & warp.live & !present != 0 {
                i += 1;
                continue;
            }
            let group: Vec<Fragment> =
                warp.parked.iter().filter(|(_, w)| together(w)).map(|&(f, _)| f).collect();
            warp.parked.retain(|(_, w)| !together(w));
            self.complete(warp, &group, present);
            i = 0;
        }
    }

    fn complete(&mut self, warp: &mut Warp, group: &[Fragment], present: u32) {
        let code = self.code;
        let op_of = |f: &Fragment| &code.ops[f.pc as usize];
        for fragment in group {
            let op = op_of(fragment);
            if let Control::Collective(c) = &code.controls[op.extra as usize] {
                self.enter(warp, fragment);
                (c.deposit)(&mut self.ctx, op);
            }
        }
        for fragment in group {
            let op = op_of(fragment);
            if let Control::Collective(c) = &code.controls[op.extra as usize] {
                self.enter(warp, fragment);
                (c.complete)(&mut self.ctx, op, present);
            }
            warp.ready.push(Fragment { pc: fragment.pc + 1, ..*fragment });
        }
    }

    /// `ret` of a device function.
    fn leave_call(&mut self, warp: &mut Warp, at: Fragment) {
        let record = warp.calls[at.call as usize];
        if let Control::Call(call) = &self.code.controls[record.control as usize] {
            let returns = &self.code.functions[record.function as usize].returns;
            warp.pass(at.mask, (at.call, returns), (record.caller, &call.results));
        }
        warp.calls[at.call as usize].lanes &= !at.mask;
        warp.ready.push(Fragment { pc: record.return_pc, mask: at.mask, call: record.caller });
    }

    fn call(&mut self, warp: &mut Warp, at: Fragment, op: &Op, call: &Call) -> Result<(), Faulted> {
        match call.callee {
            Callee::Direct(function) => self.enter_call(warp, at, op.extra, call, function),
            Callee::Builtin(builtin) => {
                let ran = super::builtin::run(&mut self.ctx, warp, at, op, call, builtin);
                ran.map_err(|()| Faulted { pc: at.pc })?;
                warp.ready.push(Fragment { pc: at.pc + 1, ..at });
                Ok(())
            }
            Callee::Indirect(slot) => {
                let addresses: [u64; LANES] = self.ctx.read(slot);
                let mut left = at.mask;
                while left != 0 {
                    let lane = left.trailing_zeros() as usize;
                    let address = addresses[lane];
                    let same = lanes_of(left).filter(|&l| addresses[l] == address);
                    let mask = same.fold(0, |m, l| m | 1 << l);
                    left &= !mask;
                    let Some(function) = self.code.function_at(address) else {
                        return self.fault(at.pc, lane, FaultKind::BadCall { address });
                    };
                    self.enter_call(warp, Fragment { mask, ..at }, op.extra, call, function)?;
                }
                Ok(())
            }
        }
    }

    /// A new frame above the caller's, in the columns of the calling lanes.
    fn enter_call(
        &mut self,
        warp: &mut Warp,
        at: Fragment,
        control: u32,
        call: &Call,
        function: u32,
    ) -> Result<(), Faulted> {
        let lane = at.mask.trailing_zeros() as usize;
        let caller = warp.calls[at.call as usize];
        let (from, to) = (
            &self.code.functions[caller.function as usize],
            &self.code.functions[function as usize],
        );
        let Some(entry) = to.entry else {
            return self.fault(at.pc, lane, FaultKind::BadCall { address: 0 });
        };
        let frame = warp.free_frame(&caller, function, to.frame_bytes);
        let record = CallRecord {
            function,
            caller: at.call,
            return_pc: at.pc + 1,
            depth: caller.depth + 1,
            lanes: at.mask,
            frame,
            frame_end: frame + to.frame_bytes,
            local: caller.local + from.local_bytes,
            control,
        };
        if record.depth > MAX_DEPTH || record.local.saturating_add(to.local_bytes) > MAX_LOCAL {
            return self.fault(at.pc, lane, FaultKind::CallDepth { limit: MAX_DEPTH });
        }
        warp.registers.grow((record.frame + to.frame_bytes) as usize);
        warp.grow_local(record.local + to.local_bytes);
        let inside = Fragment { pc: entry, mask: at.mask, call: warp.new_call(record) };
        warp.pass(at.mask, (at.call, &call.arguments), (inside.call, &to.params));
        self.enter(warp, &inside);
        self.ctx.spaces.local_base = record.local;
        presets::fill(&mut self.ctx, &to.presets, warp.index);
        warp.ready.push(inside);
        Ok(())
    }
}
