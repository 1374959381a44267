//! The layout of a function's frame: assigns offsets to registers.

use rustc_hash::FxHashMap;

use crate::isa::preset::{Preset, PresetValue};
use crate::isa::slot::{Class, Slot};
use crate::lanes::LANES;

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
