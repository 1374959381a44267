//! The layout of a function's frame: which register lies where.

use rustc_hash::FxHashMap;

use crate::engine::code::{Preset, PresetValue};
use crate::engine::ctx::LANES;
use crate::engine::op::{Class, Slot};

/// Hands out [`Slot`]s; see the register file's rules.
#[derive(Debug, Default)]
pub(crate) struct Frame {
    bytes: u32,
    /// Where the next predicate goes: several share one register's room.
    pred_next: u32,
    pred_end: u32,
    presets: FxHashMap<(Class, PresetValue), Slot>,
    sinks: FxHashMap<Class, Slot>,
    /// Registers for values that only one instruction needs, and how many the current one uses.
    temporaries: FxHashMap<Class, (Vec<Slot>, usize)>,
}

impl Frame {
    /// A new register.
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
        // Too many are found out when the function is complete.
        self.bytes = self.bytes.saturating_add(bytes);
        Slot(at)
    }

    /// The register that holds a known value.
    pub(crate) fn preset(&mut self, class: Class, value: PresetValue) -> Slot {
        if let Some(&slot) = self.presets.get(&(class, value)) {
            return slot;
        }
        let slot = self.register(class);
        self.presets.insert((class, value), slot);
        slot
    }

    /// A register for results that nobody wants.
    pub(crate) fn sink(&mut self, class: Class) -> Slot {
        if let Some(&slot) = self.sinks.get(&class) {
            return slot;
        }
        let slot = self.register(class);
        self.sinks.insert(class, slot);
        slot
    }

    /// A register that is free again when the next instruction begins.
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

    /// The next instruction begins.
    pub(crate) fn free_temporaries(&mut self) {
        self.temporaries.values_mut().for_each(|(_, used)| *used = 0);
    }

    /// The frame's size in bytes.
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
