//! `alloca`: local memory that threads reserve until their function returns.
//!
//! In a function with `alloca`, a hidden register holds the end of each lane's local memory. The reserved memory
//! belongs to the frame. A call starts above the highest end of the calling lanes. When a function returns, its memory
//! is free again.

use super::runner::{Faulted, Runner};
use super::warp::{Fragment, Warp};
use crate::fault::FaultKind;
use crate::isa::call::Passed;
use crate::isa::slot::{Class, Slot};
use crate::lanes::{LANES, lanes_of};
use crate::machine::budget::MAX_LOCAL;
use crate::machine::code::Alloca;

impl Runner<'_> {
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
    let of = |lane| match *warp.passed(at.call, &register, lane).0 {
        [a, b, c, d] => u32::from_le_bytes([a, b, c, d]),
        _ => 0,
    };
    lanes_of(at.mask).map(of).max().unwrap_or(0)
}
