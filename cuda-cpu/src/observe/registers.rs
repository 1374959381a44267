//! Reads the registers that an effect names.

use crate::isa::effect::{Access, Bulk, Values};
use crate::isa::sizes::MAX_SHARED_BYTES;
use crate::isa::slot::{Class, Slot};
use crate::lanes::{LANES, lanes_of};
use crate::machine::ctx::Ctx;

impl Bulk {
    /// Splits the access into pieces of 16 bytes per lane. One side of a transfer is shared memory, so the size of
    /// shared memory limits the number of pieces of a valid transfer.
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

/// Size of a piece in bytes.
const PIECE: u32 = 16;

impl Access {
    /// Returns the addresses of all lanes. Those of lanes that do not execute are not meaningful.
    pub(super) fn addresses(&self, ctx: &Ctx<'_>) -> [u64; LANES] {
        if self.narrow {
            let add = |at: u32| u64::from(at.wrapping_add(self.offset as u32));
            ctx.read::<u32>(self.register).map(add)
        } else {
            ctx.read::<u64>(self.register).map(|at| at.wrapping_add(self.offset))
        }
    }

    /// Returns the source register of a written element, if known.
    pub(crate) fn source(&self, ctx: &Ctx<'_>, index: u32) -> Option<(Slot, Class)> {
        match self.values {
            Values::Unknown => None,
            Values::One(slot, class) => Some((slot, class)),
            Values::Many(first, class) => Some((ctx.code.extras[(first + index) as usize], class)),
        }
    }

    /// Returns byte `at` of the value that a lane writes, if known.
    pub(crate) fn value(&self, ctx: &Ctx<'_>, lane: usize, at: u32) -> Option<u8> {
        let (slot, class) = self.source(ctx, at / self.element)?;
        let word = match class {
            Class::W64 => ctx.lane::<u64>(slot, lane),
            _ => u64::from(ctx.lane::<u32>(slot, lane)),
        };
        Some((word >> (8 * (at % self.element))) as u8)
    }
}
