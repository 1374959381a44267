//! Runs a warp until it waits, ends, or uses up its time slice.

use super::barriers::Barriers;
use super::warp::{Fragment, Warp};
use crate::fault::FaultKind;
use crate::lanes::lanes_of;
use crate::machine::code::{Code, Control, Flow};
use crate::machine::ctx::{Ctx, Segment};
use crate::observe::{Observer, Off, Shadow, Watch};

/// Fuel of a time slice: the number of back-edges and calls.
pub(crate) const SLICE: i32 = 1 << 14;

/// The reason why a warp stopped running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// All lanes have exited.
    Done,
    /// No lane can run until an event outside the warp.
    Blocked,
    /// The warp could continue, but others should run first.
    Yielded,
    /// A barrier is complete. Its waiting threads must be released before the warp continues.
    Released,
}

/// Program counter of a fault. The context holds the fault itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Faulted {
    pub(crate) pc: u32,
}

/// The execution state of one worker.
pub(crate) struct Runner<'a> {
    pub(crate) ctx: Ctx<'a>,
    pub(crate) code: &'a Code,
    /// The observers, if any are enabled.
    pub(crate) watch: Option<Box<Watch<'a>>>,
}

impl Runner<'_> {
    /// Runs `warp` for at most one time slice.
    pub(crate) fn run(
        &mut self,
        warp: &mut Warp,
        barriers: &mut Barriers,
    ) -> Result<Stop, Faulted> {
        self.ctx.fuel = SLICE;
        self.ctx.live = warp.live;
        loop {
            self.meet(warp);
            let Some((fragment, merge_pc)) = warp.pick() else {
                return Ok(if warp.live == 0 { Stop::Done } else { Stop::Blocked });
            };
            self.enter(warp, &fragment);
            self.ctx.merge_pc = merge_pc;
            let (pc, flow) = self.dispatch(warp, &fragment);
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
                    if let Some(stop) = self.control(warp, barriers, at)? {
                        return Ok(stop);
                    }
                }
                // The observer ended the time slice.
                Flow::Next => {
                    warp.ready.push(at);
                    warp.rotate = true;
                    return Ok(Stop::Yielded);
                }
                Flow::Fault => return Err(Faulted { pc }),
            }
        }
    }

    /// Returns the fuel that the last time slice used.
    pub(crate) fn used(&self) -> u64 {
        SLICE.saturating_sub(self.ctx.fuel).clamp(0, SLICE) as u64
    }

    /// Ends the time slice if a call or jump outside the dispatch loop has used up the fuel.
    fn spent(&mut self, warp: &mut Warp) -> Option<Stop> {
        let spent = self.ctx.fuel < 0;
        warp.rotate |= spent;
        spent.then_some(Stop::Yielded)
    }

    /// Makes a fragment's frame and lanes current.
    pub(crate) fn enter(&mut self, warp: &mut Warp, fragment: &Fragment) {
        let record = &warp.calls[fragment.call as usize];
        self.ctx.mask = fragment.mask;
        let size = u64::from(warp.local_size);
        self.ctx.spaces.local = Segment { start: warp.local.bytes_mut().as_mut_ptr(), size };
        self.ctx.enter(&mut warp.registers.bytes_mut()[record.frame as usize..]);
    }

    /// Starts a time slice. Returns the index of the warp that runs next. Without an observer this is `index`.
    pub(crate) fn begin_slice(&mut self, index: usize, count: usize) -> usize {
        let shuffle = self.watch.as_mut().and_then(|watch| watch.shuffle());
        shuffle.map_or(index, |shuffle| shuffle.begin_slice(index, count))
    }

    /// Exchanges the observers' shadow with a block's, when the block starts or ends its turn.
    pub(crate) fn swap_shadow(&mut self, shadow: &mut Option<Box<Shadow>>) {
        if let Some(watch) = &mut self.watch {
            watch.swap_shadow(shadow);
        }
    }

    /// Returns the shadow of the running block, if any check is enabled.
    pub(crate) fn shadow(&mut self) -> Option<&mut Shadow> {
        self.watch.as_mut()?.shadow()
    }

    fn dispatch(&mut self, warp: &Warp, fragment: &Fragment) -> (u32, Flow) {
        match &mut self.watch {
            None => dispatch(&mut self.ctx, self.code, &mut Off, fragment.pc),
            Some(watch) => {
                watch.enter(warp.index, warp.calls[fragment.call as usize].frame);
                dispatch(&mut self.ctx, self.code, &mut **watch, fragment.pc)
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

    /// Performs the control action of the instruction at `at.pc`. Returns a stop reason if the time slice ends.
    fn control(
        &mut self,
        warp: &mut Warp,
        barriers: &mut Barriers,
        at: Fragment,
    ) -> Result<Option<Stop>, Faulted> {
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
            return Ok(None);
        }
        match &code.controls[op.extra as usize] {
            Control::Exit => {
                warp.exit(&here, active);
                self.ctx.live = warp.live;
                barriers.live.exit(warp.index, active);
            }
            Control::Return => self.leave_call(warp, here),
            Control::Call(call) => {
                self.call(warp, here, op, call)?;
                return Ok(self.spent(warp));
            }
            Control::Alloca(alloca) => self.alloca(warp, here, alloca)?,
            Control::Indexed { index, table } => {
                let targets = code.jump_tables[*table as usize].as_slice();
                let mut back = false;
                for lane in lanes_of(active) {
                    let index = self.ctx.lane::<u32>(*index, lane);
                    let Some(&pc) = targets.get(index as usize) else {
                        let targets = targets.len() as u32;
                        return self.fault(at.pc, lane, FaultKind::BadBranch { index, targets });
                    };
                    back |= pc <= at.pc;
                    warp.ready.push(Fragment { pc, mask: 1 << lane, ..at });
                }
                self.ctx.fuel -= i32::from(back);
                return Ok(self.spent(warp));
            }
            Control::Barrier(barrier) => {
                let arrived = barriers.arrive(&mut self.ctx, warp, here, barrier);
                let complete = arrived.map_err(|()| Faulted { pc: at.pc })?;
                return Ok(complete.then_some(Stop::Released));
            }
            Control::Collective(c) => self.park(warp, here, c),
            Control::Pause => {
                push(warp, active);
                warp.rotate = true;
                return Ok(Some(Stop::Yielded));
            }
        }
        Ok(None)
    }

    pub(crate) fn fault<T>(&mut self, pc: u32, lane: usize, kind: FaultKind) -> Result<T, Faulted> {
        self.ctx.fail(lane, kind);
        Err(Faulted { pc })
    }
}

/// The dispatch loop: runs until a handler requests something other than the next instruction or a jump, or until the
/// observer stops it.
fn dispatch<O: Observer>(
    ctx: &mut Ctx<'_>,
    code: &Code,
    observer: &mut O,
    start: u32,
) -> (u32, Flow) {
    let ops = code.ops.as_ptr();
    let mut pc = start as usize;
    loop {
        if let Some(flow) = observer.before(ctx, code, pc as u32) {
            return (pc as u32, flow);
        }
        // SAFETY: `enter` has set the frame of the function that contains this op, because jumps stay within a
        // function, and calls and returns go through `control`. The last op of a function is a `control`, so the next
        // op always exists.
        let flow = unsafe {
            let op = &*ops.add(pc);
            (op.run)(ctx, op)
        };
        if flow == Flow::Next {
            pc += 1;
            continue;
        }
        if flow != Flow::Jump {
            return (pc as u32, flow);
        }
        let target = ctx.target as usize;
        if target <= pc {
            ctx.fuel -= 1;
            if ctx.fuel < 0 {
                return (ctx.target, Flow::Jump);
            }
        }
        pc = target;
        if ctx.target >= ctx.merge_pc {
            return (ctx.target, Flow::Jump);
        }
    }
}
