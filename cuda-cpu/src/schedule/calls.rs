//! Calls of device functions: frames, arguments and results.

use super::runner::{Faulted, Runner};
use super::stack::top;
use super::warp::{CallRecord, Fragment, Warp};
use crate::fault::FaultKind;
use crate::isa::address::{FUNCTION_STEP, FUNCTION_WINDOW};
use crate::isa::call::{Call, Callee};
use crate::lanes::{LANES, lanes_of};
use crate::machine::budget::{MAX_LOCAL, MAX_REGISTERS};
use crate::machine::code::{Control, Op};
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
}
