//! Calls of device functions: frames, arguments, results, and the local memory of `alloca`.
//!
//! In a function with `alloca`, a hidden register holds the end of each lane's local memory. The memory that threads
//! reserve belongs to the frame. A call starts above the highest end of the calling lanes. When a function returns, its
//! memory is free again.

use super::runner::{Faulted, Runner};
use super::warp::{CallRecord, Fragment, Warp};
use crate::fault::FaultKind;
use crate::isa::address::{FUNCTION_STEP, FUNCTION_WINDOW};
use crate::isa::operand::{Call, Callee, Class, Passed, Slot};
use crate::lanes::{LANES, lanes_of};
use crate::machine::budget::{MAX_LOCAL, MAX_REGISTERS};
use crate::machine::code::{Alloca, Control, Op};
use crate::machine::presets;

/// Maximum call depth.
const MAX_DEPTH: u32 = 1024;

impl Runner<'_> {
    /// Returns from a device function.
    pub(crate) fn leave_call(&mut self, warp: &mut Warp, at: Fragment) {
        let record = warp.calls[at.call as usize];
        if let Control::Call(call) = &self.code.controls[record.control as usize] {
            let returns = &self.code.functions[record.function as usize].returns;
            warp.pass(at.mask, (at.call, returns), (record.caller, &call.results));
            let caller = warp.calls[record.caller as usize].local;
            if let Some(shadow) = self.shadow() {
                let lanes = (warp.index, at.mask);
                shadow.pass(lanes, (record.local, returns), (caller, &call.results));
            }
        }
        warp.calls[at.call as usize].lanes &= !at.mask;
        warp.ready.push(Fragment { pc: record.return_pc, mask: at.mask, call: record.caller });
    }

    pub(crate) fn call(
        &mut self,
        warp: &mut Warp,
        at: Fragment,
        op: &Op,
        call: &Call,
    ) -> Result<(), Faulted> {
        match call.callee {
            Callee::Direct(function) => self.enter_call(warp, at, op.extra, call, function),
            Callee::Builtin(builtin) => {
                let ran = super::builtin::run(&mut self.ctx, warp, at, op, call, builtin);
                ran.map_err(|()| Faulted { pc: at.pc })?;
                self.ctx.charge_atomic();
                let frame = warp.calls[at.call as usize].local;
                if let Some(shadow) = self.shadow() {
                    shadow.returned((warp.index, at.mask), frame, &call.results);
                }
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
                    let function = match self.callee(address, call) {
                        Ok(function) => function,
                        Err(kind) => return self.fault(at.pc, lane, *kind),
                    };
                    self.enter_call(warp, Fragment { mask, ..at }, op.extra, call, function)?;
                }
                Ok(())
            }
        }
    }

    /// Returns the index of the function at an address, if its signature fits the call.
    fn callee(&self, address: u64, call: &Call) -> Result<u32, Box<FaultKind>> {
        let index = self
            .code
            .function_at(address)
            .ok_or_else(|| Box::new(FaultKind::BadCall { address }))?;
        let function = &self.code.functions[index as usize];
        if function.is_kernel || function.entry.is_none() {
            return Err(Box::new(FaultKind::BadCall { address }));
        }
        if !function.fits(call) {
            return Err(Box::new(FaultKind::CallMismatch { function: function.name.clone() }));
        }
        Ok(index)
    }

    /// Pushes a new frame above the caller's and moves the calling lanes into it.
    fn enter_call(
        &mut self,
        warp: &mut Warp,
        at: Fragment,
        control: u32,
        call: &Call,
        function: u32,
    ) -> Result<(), Faulted> {
        self.ctx.fuel -= 1;
        let lane = at.mask.trailing_zeros() as usize;
        let caller = warp.calls[at.call as usize];
        let (from, to) = (
            &self.code.functions[caller.function as usize],
            &self.code.functions[function as usize],
        );
        let Some(entry) = to.entry else {
            let address = FUNCTION_WINDOW + u64::from(function) * FUNCTION_STEP;
            return self.fault(at.pc, lane, FaultKind::BadCall { address });
        };
        let mut local = caller.local.saturating_add(from.local_bytes);
        if let Some(register) = from.stack_top {
            local = top(warp, at, register).next_multiple_of(16);
        }
        let frame = warp.free_frame(&caller, function, to.frame_bytes);
        let record = CallRecord {
            function,
            caller: at.call,
            return_pc: at.pc + 1,
            depth: caller.depth + 1,
            lanes: at.mask,
            frame,
            // Saturates, so that sizes that overflow exceed the limits below.
            frame_end: frame.saturating_add(to.frame_bytes),
            local,
            control,
        };
        let local_end = record.local.saturating_add(to.local_bytes);
        if record.depth > MAX_DEPTH || local_end > MAX_LOCAL || record.frame_end > MAX_REGISTERS {
            return self.fault(at.pc, lane, FaultKind::CallDepth { limit: MAX_DEPTH });
        }
        let budget = self.ctx.budget;
        if !warp.grow(record.frame_end, local_end, budget) {
            return self.fault(at.pc, lane, FaultKind::LaunchMemory { limit: budget.limit });
        }
        if let Some(shadow) = self.watch.as_mut().and_then(|watch| watch.shadow()) {
            let (lanes, local) = ((warp.index, at.mask), (record.local, to.local_bytes));
            if !shadow.enter_call(lanes, local, (record.frame, record.frame_end), budget) {
                return self.fault(at.pc, lane, FaultKind::LaunchMemory { limit: budget.limit });
            }
            let (given, taken) = ((caller.local, &*call.arguments), (record.local, &*to.params));
            shadow.pass(lanes, given, taken);
        }
        let inside = Fragment { pc: entry, mask: at.mask, call: warp.new_call(record) };
        warp.pass(at.mask, (at.call, &call.arguments), (inside.call, &to.params));
        self.enter(warp, &inside);
        self.ctx.spaces.local_base = record.local;
        presets::fill(&mut self.ctx, &to.presets, warp.index);
        warp.ready.push(inside);
        Ok(())
    }

    /// Performs `alloca` for these lanes. They continue with the next instruction.
    pub(crate) fn alloca(
        &mut self,
        warp: &mut Warp,
        at: Fragment,
        alloca: &Alloca,
    ) -> Result<(), Faulted> {
        // For each lane, the start and end of its new memory.
        let mut given = [(0, 0); LANES];
        for lane in lanes_of(at.mask) {
            let bytes = match alloca.class {
                Class::W64 => self.ctx.lane::<u64>(alloca.bytes, lane),
                _ => self.ctx.lane::<u32>(alloca.bytes, lane).into(),
            };
            let top = u64::from(self.ctx.lane::<u32>(alloca.top, lane));
            let start = top.next_multiple_of(alloca.align.into());
            let end = start.saturating_add(bytes);
            if end > MAX_LOCAL.into() {
                let kind = FaultKind::StackOverflow { bytes, limit: MAX_LOCAL };
                return self.fault(at.pc, lane, kind);
            }
            given[lane] = (start as u32, end as u32);
        }
        self.make_room(warp, at, &given)?;
        for lane in lanes_of(at.mask) {
            let (start, end) = given[lane];
            self.ctx.set_lane(alloca.top, lane, end);
            match alloca.class {
                Class::W64 => self.ctx.set_lane(alloca.address, lane, u64::from(start)),
                _ => self.ctx.set_lane(alloca.address, lane, start),
            }
        }
        warp.ready.push(Fragment { pc: at.pc + 1, ..at });
        Ok(())
    }

    fn make_room(
        &mut self,
        warp: &mut Warp,
        at: Fragment,
        given: &[(u32, u32); LANES],
    ) -> Result<(), Faulted> {
        let budget = self.ctx.budget;
        let end = given.iter().map(|&(_, end)| end).max().unwrap_or(0);
        let mut room = warp.grow(0, end, budget);
        if let Some(shadow) = self.shadow() {
            room &= lanes_of(at.mask).all(|lane| {
                let (start, end) = given[lane];
                shadow.give_local((warp.index, 1 << lane), (start, end - start), budget)
            });
        }
        let lane = at.mask.trailing_zeros() as usize;
        match room {
            true => Ok(()),
            false => self.fault(at.pc, lane, FaultKind::LaunchMemory { limit: budget.limit }),
        }
    }
}

/// Returns the end of the local memory of these lanes: the maximum of their `alloca` registers.
pub(crate) fn top(warp: &Warp, at: Fragment, register: Slot) -> u32 {
    let register = Passed::Register(register, Class::W32);
    let of = |lane| match warp.passed(at.call, &register, lane)[..] {
        [a, b, c, d] => u32::from_le_bytes([a, b, c, d]),
        _ => 0,
    };
    lanes_of(at.mask).map(of).max().unwrap_or(0)
}
