//! Registers as operands of decoded instructions.

/// A register, as a byte offset into the frame of its function. Only the frame layout creates slots, so each one is in
/// bounds and aligned for its class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Slot(pub(crate) u32);

impl Slot {
    /// The absence of a register.
    pub(crate) const NONE: Self = Self(u32::MAX);
}

/// Width of a register's lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Class {
    /// One bit per lane, in one `u32`.
    Pred,
    /// `[u32; 32]`: for values of up to 32 bits.
    W32,
    /// `[u64; 32]`.
    W64,
}
