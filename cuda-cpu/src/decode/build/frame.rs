//! The layout of a function's frame: offsets of registers, and of variables, parameters and call arguments in each
//! lane's local memory.

use cuda_ptx::{Body, Function, Space};
use rustc_hash::FxHashMap;

use crate::isa::operand::{Class, Preset, PresetValue, Slot};
use crate::lanes::LANES;
use crate::machine::budget::MAX_LOCAL;

/// Allocates [`Slot`]s. For the invariants see [`Ctx`](crate::machine::ctx).
#[derive(Debug, Default)]
pub(crate) struct Frame {
    bytes: u32,
    /// Next free predicate slot. Several predicates share the space of one 32-bit register.
    pred_next: u32,
    pred_end: u32,
    presets: FxHashMap<(Class, PresetValue), Slot>,
    sinks: FxHashMap<Class, Slot>,
    /// Registers for values inside one instruction, and the number that the current instruction uses.
    temporaries: FxHashMap<Class, (Vec<Slot>, usize)>,
}

impl Frame {
    /// Allocates a register.
    pub(crate) fn register(&mut self, class: Class) -> Slot {
        let lanes = LANES as u32;
        match class {
            Class::W32 => self.bytes(4 * lanes),
            Class::W64 => self.bytes(8 * lanes),
            Class::Pred => {
                if self.pred_next == self.pred_end {
                    self.pred_next = self.bytes(4 * lanes).0;
                    self.pred_end = self.pred_next.saturating_add(4 * lanes);
                }
                self.pred_next = self.pred_next.saturating_add(4);
                Slot(self.pred_next.saturating_sub(4))
            }
        }
    }

    fn bytes(&mut self, bytes: u32) -> Slot {
        let at = self.bytes;
        // Saturates. The size is checked when the function is complete.
        self.bytes = self.bytes.saturating_add(bytes);
        Slot(at)
    }

    /// Returns the register that holds a known value.
    pub(crate) fn preset(&mut self, class: Class, value: PresetValue) -> Slot {
        if let Some(&slot) = self.presets.get(&(class, value)) {
            return slot;
        }
        let slot = self.register(class);
        self.presets.insert((class, value), slot);
        slot
    }

    /// Returns the register for discarded results.
    pub(crate) fn sink(&mut self, class: Class) -> Slot {
        if let Some(&slot) = self.sinks.get(&class) {
            return slot;
        }
        let slot = self.register(class);
        self.sinks.insert(class, slot);
        slot
    }

    /// Allocates a register that is free again at the next instruction.
    pub(crate) fn temporary(&mut self, class: Class) -> Slot {
        let (slots, used) = self.temporaries.entry(class).or_default();
        let known = slots.get(*used).copied();
        *used += 1;
        known.unwrap_or_else(|| {
            let slot = self.register(class);
            self.temporaries.entry(class).or_default().0.push(slot);
            slot
        })
    }

    /// Frees the temporary registers before the next instruction.
    pub(crate) fn free_temporaries(&mut self) {
        self.temporaries.values_mut().for_each(|(_, used)| *used = 0);
    }

    /// Returns the size of the frame in bytes.
    pub(crate) fn size(&self) -> u32 {
        self.bytes
    }

    pub(crate) fn presets(&self) -> Vec<Preset> {
        let preset = |(&(class, value), &slot): (&(Class, PresetValue), &Slot)| Preset {
            slot,
            class,
            value,
        };
        let mut presets: Vec<_> = self.presets.iter().map(preset).collect();
        presets.sort_by_key(|p| p.slot.0);
        presets
    }
}

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
