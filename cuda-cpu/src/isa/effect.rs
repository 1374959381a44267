//! Metadata of ops for observers, as declared by their decoders: the instruction of each op, its registers and its
//! memory effects.

use rustc_hash::FxHashMap;

use super::address::SpaceKind;
use super::index;
use super::operand::{Class, Slot};
use crate::lanes::FULL;

/// An effect of an op that other threads can observe.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Effect {
    Access(Access),
    Bulk(Bulk),
    /// A fence: orders the thread's earlier accesses before its later ones.
    Fence,
    /// The lanes arrive at the block's barrier with the number in this register.
    Barrier(Slot),
    /// A collective of the warp: the lanes of the member mask in this register wait for each other. With `Slot::NONE`,
    /// the executing lanes do.
    Meeting(Slot),
    /// `shfl`: reads registers of other lanes. This register has the mask of the lanes that take part.
    Shuffle(Slot),
    /// Orders the lanes' earlier accesses before those of threads that execute [`Effect::Learn`] later.
    Publish,
    /// The other side of [`Effect::Publish`].
    Learn,
}

/// A weak access of a number of bytes by every executing lane.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bulk {
    pub(crate) kind: AccessKind,
    pub(crate) space: SpaceKind,
    /// The 64-bit address register.
    pub(crate) register: Slot,
    /// The 32-bit register with the number of bytes.
    pub(crate) bytes: Slot,
}

/// An access of every executing lane to `count` elements of `element` bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Access {
    pub(crate) kind: AccessKind,
    pub(crate) space: SpaceKind,
    pub(crate) element: u32,
    pub(crate) count: u32,
    /// The address register, and whether it has 32 bits.
    pub(crate) register: Slot,
    pub(crate) narrow: bool,
    pub(crate) offset: u64,
    pub(crate) order: Order,
    pub(crate) values: Values,
    /// Mask of the loaded bytes that the program uses.
    pub(crate) used: u64,
    /// The lanes that access memory, among those that execute.
    pub(crate) lanes: u32,
}

/// The kind of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AccessKind {
    Read,
    Write,
    /// An atomic read and write.
    Update,
    /// An update whose new value does not depend on the old one.
    Exchange,
}

impl AccessKind {
    pub(crate) fn writes(self) -> bool {
        self != Self::Read
    }

    /// Returns whether the access uses the previous value.
    pub(crate) fn needs_value(self) -> bool {
        matches!(self, Self::Read | Self::Update)
    }
}

/// The ordering of an access in the PTX memory model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Order {
    /// Atomic, volatile, relaxed or stronger. Strong accesses do not race with each other.
    pub(crate) strong: bool,
    pub(crate) acquires: bool,
    pub(crate) releases: bool,
}

impl Order {
    pub(crate) const WEAK: Self = Self { strong: false, acquires: false, releases: false };
    pub(crate) const RELAXED: Self = Self { strong: true, acquires: false, releases: false };

    pub(crate) const ACQUIRE: Self = Self { strong: true, acquires: true, releases: false };
    pub(crate) const RELEASE: Self = Self { strong: true, acquires: false, releases: true };
}

/// The registers with the written values.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Values {
    /// Nothing is written, or the values are not known in advance.
    Unknown,
    One(Slot, Class),
    /// The registers from this index of `Code::extras` on.
    Many(u32, Class),
}

impl Access {
    /// Creates a weak access of one element.
    pub(crate) fn new(kind: AccessKind, space: SpaceKind, element: u32, register: Slot) -> Self {
        Self {
            kind,
            space,
            element,
            count: 1,
            register,
            narrow: false,
            offset: 0,
            order: Order::WEAK,
            values: Values::Unknown,
            used: u64::MAX,
            lanes: FULL,
        }
    }

    /// Returns the size of a lane's access in bytes.
    pub(crate) fn bytes(&self) -> u32 {
        self.element * self.count
    }
}

/// An op that stands for no instruction of its own.
const HELPER: u32 = u32::MAX;

/// For each op, its instruction and its effects.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// For each op, an index into `instructions`.
    ops: Vec<u32>,
    instructions: Vec<(u32, Registers)>,
    /// For each op, the index of its first effect. The effects end where those of the next op start.
    starts: Vec<u32>,
    effects: Vec<Effect>,
    names: Vec<String>,
    by_name: FxHashMap<String, u32>,
}

/// The registers of an instruction.
#[derive(Debug, Clone)]
pub(crate) struct Registers {
    pub(crate) rule: Rule,
    /// Destination registers. `Slot::NONE` for discarded results.
    pub(crate) dests: Vec<Slot>,
    /// Source registers, and whether they are negated predicates. `Slot::NONE` for constants.
    pub(crate) sources: Vec<(Slot, bool)>,
    pub(crate) addresses: Vec<Slot>,
}

/// The rule by which the results of an instruction depend on its sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// A lane's results depend on all of the lane's sources.
    Data,
    /// As `Data`, for predicates: if one operand decides the result (false for `and`, true for `or`), the other is
    /// ignored.
    And,
    Or,
    /// A comparison whose result is combined with the last source by `and` or `or`.
    CompareAnd,
    CompareOr,
    /// The result depends on the last source and on the source that it selects.
    Select,
    /// The result depends on other lanes.
    Shuffle,
    /// Each bit of the result depends on another lane.
    Ballot,
    /// The results depend on the called function.
    Call,
    /// A load from memory, or a store to memory.
    Load,
    Store,
    /// An action depends on all sources.
    Uses,
}

impl Table {
    /// Adds an op, as a helper without effects.
    pub(crate) fn push(&mut self) {
        self.ops.push(HELPER);
        self.starts.push(index(self.effects.len()));
    }

    /// Declares that the latest op stands for an instruction of this kind.
    pub(crate) fn is_instruction(&mut self, kind: &str, registers: Registers) {
        let name = match self.by_name.get(kind) {
            Some(&index) => index,
            None => {
                let new = index(self.names.len());
                self.names.push(kind.to_owned());
                self.by_name.insert(kind.to_owned(), new);
                new
            }
        };
        if let Some(last) = self.ops.last_mut() {
            *last = index(self.instructions.len());
            self.instructions.push((name, registers));
        }
    }

    /// Adds an effect to the latest op.
    pub(crate) fn has_effect(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// Returns the kind of the op's instruction. `None` for helpers.
    #[inline]
    pub(crate) fn kind(&self, pc: u32) -> Option<u32> {
        self.instruction(pc).map(|(kind, _)| *kind)
    }

    /// Returns the registers of the op's instruction. `None` for helpers.
    #[inline]
    pub(crate) fn registers(&self, pc: u32) -> Option<&Registers> {
        self.instruction(pc).map(|(_, registers)| registers)
    }

    #[inline]
    fn instruction(&self, pc: u32) -> Option<&(u32, Registers)> {
        self.instructions.get(*self.ops.get(pc as usize)? as usize)
    }

    /// Returns the effects of the op.
    #[inline]
    pub(crate) fn effects(&self, pc: u32) -> &[Effect] {
        let end = |at: usize| self.starts.get(at).map_or(self.effects.len(), |&s| s as usize);
        &self.effects[end(pc as usize)..end(pc as usize + 1)]
    }

    /// Returns the names of the kinds.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing() -> Registers {
        let (rule, dests) = (Rule::Data, Vec::new());
        Registers { rule, dests, sources: Vec::new(), addresses: Vec::new() }
    }

    #[test]
    fn each_op_has_its_own_effects() {
        let mut table = Table::default();
        table.push();
        table.push();
        table.is_instruction("membar", nothing());
        table.has_effect(Effect::Fence);
        table.push();
        table.is_instruction("ret", nothing());
        assert_eq!([0, 1, 2].map(|pc| table.effects(pc).len()), [0, 1, 0]);
        assert_eq!([0, 1, 2, 3].map(|pc| table.kind(pc)), [None, Some(0), Some(1), None]);
    }
}
