//! Memory effects of ops, as declared by their decoders.

use super::address::SpaceKind;
use super::slot::{Class, Slot};
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
