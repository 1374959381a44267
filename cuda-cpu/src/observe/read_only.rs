//! The check for writes through arguments that a launch only reads.

use std::ops::Range;

use super::places::Places;
use crate::fault::{FaultKind, FaultSpace};
use crate::isa::effect::{Access, Effect};
use crate::machine::code::Flow;
use crate::machine::ctx::Ctx;

/// Device memory that a launch names, and the access to it that the launch states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operand {
    /// The addresses.
    pub range: Range<u64>,
    /// Whether the kernel may write the memory.
    pub writes: bool,
    /// The offset of the address in the parameter block. `None` for a variable of the module.
    pub at: Option<u32>,
}

/// The memory that the kernel of a launch must not write.
pub(crate) struct ReadOnly {
    inputs: Vec<Input>,
    /// Memory that the kernel may write. It may overlap the inputs.
    outputs: Vec<Range<u64>>,
}

/// A parameter that the launch only reads.
pub(crate) struct Input {
    pub(crate) range: Range<u64>,
    /// The index of the parameter, and its name in the PTX.
    pub(crate) parameter: u32,
    pub(crate) name: Box<str>,
}

impl ReadOnly {
    pub(crate) fn new(inputs: Vec<Input>, outputs: Vec<Range<u64>>) -> Self {
        Self { inputs, outputs }
    }

    /// Checks the writes of an op to global memory.
    pub(crate) fn before(&self, ctx: &mut Ctx<'_>, pc: u32) -> Option<Flow> {
        let effects = ctx.code.table.effects(pc);
        if effects.is_empty() {
            return None;
        }
        let active = ctx.guarded(&ctx.code.ops[pc as usize]);
        effects.iter().find_map(|effect| match effect {
            Effect::Access(access) => self.access(ctx, active, access),
            Effect::Bulk(bulk) if bulk.kind.writes() => {
                bulk.pieces(ctx, active).iter().find_map(|piece| self.access(ctx, active, piece))
            }
            _ => None,
        })
    }

    fn access(&self, ctx: &mut Ctx<'_>, active: u32, access: &Access) -> Option<Flow> {
        if !access.kind.writes() {
            return None;
        }
        let bytes = access.bytes();
        let places = Places::new(ctx, access, active);
        let mut written = places.of(FaultSpace::Global);
        let (lane, address, input) =
            written.find_map(|(lane, at)| Some((lane, at, self.input(at, bytes)?)))?;
        let (parameter, name) = (input.parameter, input.name.clone());
        Some(ctx.fail(lane, FaultKind::ReadOnlyArgument { address, bytes, parameter, name }))
    }

    /// Returns the input that contains a byte of the access which is not also memory that may be written.
    fn input(&self, address: u64, bytes: u32) -> Option<&Input> {
        let end = address.saturating_add(bytes.into());
        let overlaps = |range: &Range<u64>| range.start < end && address < range.end;
        let input = self.inputs.iter().find(|input| overlaps(&input.range))?;
        let is_output = |at| self.outputs.iter().any(|range| range.contains(&at));
        let mut shared = address.max(input.range.start)..end.min(input.range.end);
        (!shared.all(is_output)).then_some(input)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(read_only: &ReadOnly, address: u64, bytes: u32) -> Option<u32> {
        read_only.input(address, bytes).map(|input| input.parameter)
    }

    #[test]
    fn memory_that_is_also_an_output_may_be_written() {
        let input = |range, parameter| Input { range, parameter, name: "x".into() };
        let inputs = vec![input(100..120, 0), input(200..208, 2)];
        let read_only = ReadOnly::new(inputs, std::iter::once(108..150).collect());
        assert_eq!(found(&read_only, 100, 4), Some(0));
        assert_eq!(found(&read_only, 96, 8), Some(0), "the last half is input");
        assert_eq!(found(&read_only, 92, 8), None, "it ends in front of the input");
        assert_eq!(found(&read_only, 104, 8), Some(0), "the first half is input only");
        assert_eq!(found(&read_only, 108, 4), None);
        assert_eq!(found(&read_only, 119, 1), None);
        assert_eq!(found(&read_only, 204, 4), Some(2));
        assert_eq!(found(&read_only, 208, 4), None);
    }
}
