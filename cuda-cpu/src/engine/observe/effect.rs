//! What an op does to memory, as its decoder states it.

use crate::engine::code::Collective;
use crate::engine::ctx::{Ctx, FULL, LANES, lanes_of};
use crate::engine::exec::locate::SpaceKind;
use crate::engine::launch::MAX_SHARED_BYTES;
use crate::engine::op::{Class, Slot};

/// What an op does that others can see.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Effect {
    Access(Access),
    Bulk(Bulk),
    /// A fence: what a thread did before it is ordered before what it does after it.
    Fence,
    /// The lanes arrive at the barrier of the block that has the number in this register.
    Barrier(Slot),
    /// A collective of the warp: the lanes of the member mask in this register wait for each other; without one,
    /// those that execute it.
    Meeting(Slot),
    /// `shfl`: registers of other lanes are read, where they take part.
    Shuffle(Collective),
    /// What the lanes did before is known to whoever learns later.
    Publish,
    /// See [`Effect::Publish`].
    Learn,
}

/// A weak access of every executing lane to as many bytes as it says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bulk {
    pub(crate) kind: AccessKind,
    pub(crate) space: SpaceKind,
    /// The address, in a 64-bit register.
    pub(crate) register: Slot,
    /// How many bytes, in a 32-bit register.
    pub(crate) bytes: Slot,
}

impl Bulk {
    /// What it is made of: pieces of 16 bytes of each lane. As one side of such a transfer is shared memory, there are
    /// not many in one that is not refused.
    pub(crate) fn pieces(self, ctx: &Ctx<'_>, active: u32) -> Vec<Access> {
        let most = MAX_SHARED_BYTES / PIECE;
        let of = |lane: usize| {
            let count = (ctx.lane::<u32>(self.bytes, lane) / PIECE).min(most);
            (0..count).map(move |i| Access {
                offset: (i * PIECE).into(),
                lanes: 1 << lane,
                ..Access::new(self.kind, self.space, PIECE, self.register)
            })
        };
        lanes_of(active).flat_map(of).collect()
    }
}

/// Bytes of a piece.
const PIECE: u32 = 16;

/// An access of every executing lane: `count` elements of `element` bytes from an address on.
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
    /// Of what is read, the bytes that matter, by bit.
    pub(crate) used: u64,
    /// The lanes whose address counts, of those that execute.
    pub(crate) lanes: u32,
}

/// What an access does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AccessKind {
    Read,
    Write,
    /// Reads and writes in one step.
    Update,
    /// An update whose new value does not depend on the old one.
    Exchange,
}

impl AccessKind {
    pub(crate) fn writes(self) -> bool {
        self != Self::Read
    }

    /// Whether it is of consequence what was there.
    pub(crate) fn needs_value(self) -> bool {
        matches!(self, Self::Read | Self::Update)
    }
}

/// How an access takes part in the order of threads, as the PTX memory model has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Order {
    /// Atomic, volatile, relaxed or stronger: such accesses do not race with each other.
    pub(crate) strong: bool,
    pub(crate) acquires: bool,
    pub(crate) releases: bool,
}

impl Order {
    pub(crate) const WEAK: Self = Self { strong: false, acquires: false, releases: false };
    pub(crate) const RELAXED: Self = Self { strong: true, acquires: false, releases: false };

    /// By the modifier: `volatile` and `relaxed` order nothing by themselves.
    pub(crate) fn from_modifier(modifier: &str) -> Self {
        Self {
            strong: true,
            acquires: matches!(modifier, "acquire" | "acq_rel"),
            releases: matches!(modifier, "release" | "acq_rel"),
        }
    }
}

/// Where the values that are written come from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Values {
    /// Nothing is written, or nobody knows beforehand what.
    Unknown,
    One(Slot, Class),
    /// Registers from this index on in `Code::extras`.
    Many(u32, Class),
}

impl Access {
    /// A weak access of one element.
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

    /// Bytes of a lane's access.
    pub(crate) fn bytes(&self) -> u32 {
        self.element * self.count
    }

    /// The addresses of all lanes; of those that do not execute they mean nothing.
    pub(super) fn addresses(&self, ctx: &Ctx<'_>) -> [u64; LANES] {
        if self.narrow {
            let add = |at: u32| u64::from(at.wrapping_add(self.offset as u32));
            ctx.read::<u32>(self.register).map(add)
        } else {
            ctx.read::<u64>(self.register).map(|at| at.wrapping_add(self.offset))
        }
    }

    /// The register that an element is written from, where that is known.
    pub(crate) fn source(&self, ctx: &Ctx<'_>, index: u32) -> Option<(Slot, Class)> {
        match self.values {
            Values::Unknown => None,
            Values::One(slot, class) => Some((slot, class)),
            Values::Many(first, class) => Some((ctx.code.extras[(first + index) as usize], class)),
        }
    }

    /// Byte `at` of what a lane writes, where that is known.
    pub(crate) fn value(&self, ctx: &Ctx<'_>, lane: usize, at: u32) -> Option<u8> {
        let (slot, class) = self.source(ctx, at / self.element)?;
        let word = match class {
            Class::W64 => ctx.lane::<u64>(slot, lane),
            _ => u64::from(ctx.lane::<u32>(slot, lane)),
        };
        Some((word >> (8 * (at % self.element))) as u8)
    }
}
