//! Device functions without a PTX body: `vprintf`, `__assertfail`, `malloc` and `free`.

use super::printf;
use super::printf::Argument;
use super::warp::{Fragment, Warp};
use crate::exec::memory::locate::read_byte;
use crate::fault::FaultKind;
use crate::isa::operand::{Builtin, Call};
use crate::lanes::lanes_of;
use crate::machine::code::{Flow, Op};
use crate::machine::ctx::{Ctx, LaneFault};
use crate::memory::FreeError;

/// Maximum length of a string that is read from device memory, in bytes.
const MAX_TEXT: usize = 64 << 10;

/// Runs a builtin for the lanes of `at`. On an error, the context holds the fault.
pub(crate) fn run(
    ctx: &mut Ctx<'_>,
    warp: &mut Warp,
    at: Fragment,
    op: &Op,
    call: &Call,
    builtin: Builtin,
) -> Result<(), ()> {
    for lane in lanes_of(at.mask) {
        let arguments: Vec<u64> =
            call.arguments.iter().map(|a| word(warp, at.call, a, lane)).collect();
        let argument = |i: usize| arguments.get(i).copied().unwrap_or(0);
        let result = match builtin {
            Builtin::Vprintf => print(ctx, op, lane, argument(0), argument(1))?,
            Builtin::Assertfail => {
                let message = text(ctx, op, lane, argument(0))?;
                let file = text(ctx, op, lane, argument(1))?;
                let function = text(ctx, op, lane, argument(3))?;
                let line = argument(2) as u32;
                ctx.fail(lane, FaultKind::Assert { message, file, line, function });
                return Err(());
            }
            // As on a GPU, null means that the memory is exhausted.
            Builtin::Malloc => ctx.view.memory().alloc_by_kernel(argument(0), 16).unwrap_or(0),
            Builtin::Free => free(ctx, lane, argument(0))?,
        };
        if let Some(target) = call.results.first() {
            warp.set_passed(at.call, target, lane, &result.to_le_bytes());
        }
    }
    Ok(())
}

fn word(warp: &Warp, call: u32, passed: &crate::isa::operand::Passed, lane: usize) -> u64 {
    let bytes = warp.passed(call, passed, lane);
    bytes.iter().take(8).rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

fn free(ctx: &mut Ctx<'_>, lane: usize, address: u64) -> Result<u64, ()> {
    if address == 0 {
        return Ok(0);
    }
    if let Err(FreeError { freed, .. }) = ctx.view.memory().free_by_kernel(address) {
        let nearest = ctx.view.memory().explain(address, 1).nearest;
        let kind = FaultKind::BadFree { address, freed };
        ctx.fault = Some(LaneFault { nearest, ..LaneFault::new(lane, kind) });
        return Err(());
    }
    ctx.forget_allocation(address);
    Ok(0)
}

/// Reads a NUL-terminated string from device memory.
fn text(ctx: &mut Ctx<'_>, op: &Op, lane: usize, address: u64) -> Result<String, ()> {
    let mut bytes = Vec::new();
    while bytes.len() < MAX_TEXT {
        match byte(ctx, op, lane, address.wrapping_add(bytes.len() as u64))? {
            0 => break,
            byte => bytes.push(byte),
        }
    }
    ctx.charge_bytes(bytes.len());
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn byte(ctx: &mut Ctx<'_>, op: &Op, lane: usize, address: u64) -> Result<u8, ()> {
    read_byte(ctx, op, lane, address).map_err(|_: Flow| ())
}

/// Runs `vprintf(format, arguments)` and returns the number of arguments.
fn print(ctx: &mut Ctx<'_>, op: &Op, lane: usize, format: u64, arguments: u64) -> Result<u64, ()> {
    let format = text(ctx, op, lane, format)?;
    let (mut at, mut count) = (arguments, 0);
    let mut failed = false;
    let printed = printf::format(&format, |kind| {
        let size = match kind {
            Argument::Word => 4,
            Argument::Long | Argument::Float | Argument::Text => 8,
        };
        // Aligning can overflow at the end of the address space. No bytes can be read there in either case.
        at = at.checked_next_multiple_of(size).unwrap_or(at);
        let mut bits = 0u64;
        for i in 0..size {
            if failed {
                break;
            }
            match byte(ctx, op, lane, at.wrapping_add(i)) {
                Ok(byte) => bits |= u64::from(byte) << (8 * i),
                Err(()) => failed = true,
            }
        }
        at = at.wrapping_add(size);
        count += 1;
        let text = match kind {
            _ if failed => String::new(),
            Argument::Text if bits == 0 => "(null)".into(),
            Argument::Text => text(ctx, op, lane, bits).unwrap_or_else(|()| {
                failed = true;
                String::new()
            }),
            _ => String::new(),
        };
        (bits, text)
    });
    if failed {
        return Err(());
    }
    ctx.charge_bytes(printed.len());
    (ctx.print)(&printed);
    Ok(count)
}
