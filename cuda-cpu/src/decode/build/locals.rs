//! Offsets of a function's local variables, parameters and call arguments in each lane's local memory.

use cuda_ptx::{Body, Function, Space};

use crate::machine::budget::MAX_LOCAL;

/// Offsets in the local memory of a frame.
#[derive(Debug, Default)]
pub(crate) struct Locals {
    pub(crate) variables: Vec<u32>,
    pub(crate) params: Vec<u32>,
    pub(crate) returns: Vec<u32>,
    /// Size in bytes. At most [`MAX_LOCAL`], unless `too_many` is set.
    pub(crate) bytes: u32,
    /// Whether the function exceeds [`MAX_LOCAL`] and cannot run. The offsets are then meaningless.
    pub(crate) too_many: bool,
}

impl Locals {
    pub(crate) fn new(function: &Function, body: &Body) -> Self {
        let mut locals = Self::default();
        let mut place = |size: u64, align: u32| {
            let at = u64::from(locals.bytes).next_multiple_of(u64::from(align.max(1)));
            let end = u32::try_from(at.saturating_add(size)).ok().filter(|end| *end <= MAX_LOCAL);
            let (Some(end), Ok(at)) = (end, u32::try_from(at)) else {
                locals.too_many = true;
                return 0;
            };
            locals.bytes = end;
            at
        };
        let param = |p: &cuda_ptx::Param| (u64::from(p.size), p.align);
        let params = if function.is_entry { &[][..] } else { &function.params };
        let params: Vec<u32> = params.iter().map(param).map(|(s, a)| place(s, a)).collect();
        let returns = function.returns.iter().map(param).map(|(s, a)| place(s, a)).collect();
        let variables = body.variables.iter().map(|v| match v.space {
            Space::Local | Space::Param => place(v.size.unwrap_or(0), v.align),
            _ => 0,
        });
        let variables = variables.collect();
        locals.bytes = locals.bytes.next_multiple_of(16);
        Self { variables, params, returns, ..locals }
    }
}
