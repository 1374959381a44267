//! The representation of an mbarrier: 64 bits in shared memory.
//!
//! It is opaque to programs. The tokens that `mbarrier.arrive` returns are copies of the previous word.

use crate::fault::MbarrierMisuse;

/// Maximum number of arrivals.
pub(crate) const MOST: u32 = (1 << 20) - 1;

const ARRIVALS: u64 = MOST as u64;
const BYTES: u64 = (1 << 21) - 1;

/// Positions of the fields: expected arrivals of a phase, pending bytes (signed), pending arrivals, and the phase's
/// parity.
const EXPECTED: u32 = 1;
const PENDING_BYTES: u32 = 21;
const MARK: u32 = 42;
const PENDING: u32 = 43;
const PARITY: u32 = 63;

/// A decoded mbarrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mbarrier {
    pub(crate) parity: bool,
    pub(crate) pending: u32,
    pub(crate) bytes: i32,
    pub(crate) expected: u32,
}

impl Mbarrier {
    pub(crate) fn new(count: u32) -> Result<Self, MbarrierMisuse> {
        check(count)?;
        Ok(Self { parity: false, pending: count, bytes: 0, expected: count })
    }

    pub(crate) fn from_word(word: u64) -> Result<Self, MbarrierMisuse> {
        // The initial contents of shared memory and the word that `inval` writes are not valid mbarriers.
        if word >> MARK & 1 != 0 || word & 1 != 0 {
            return Err(MbarrierMisuse::NotInitialized);
        }
        let field = |at: u32, mask: u64| word >> at & mask;
        let negated = |at: u32| (field(at, ARRIVALS) as u32).wrapping_neg() & MOST;
        let bytes = (field(PENDING_BYTES, BYTES) as i32) << 11 >> 11;
        Ok(Self {
            parity: field(PARITY, 1) != 0,
            pending: negated(PENDING),
            bytes: -bytes,
            expected: negated(EXPECTED),
        })
    }

    pub(crate) fn to_word(self) -> u64 {
        let negated = |count: u32| u64::from(count.wrapping_neg() & MOST);
        let bytes = i64::from(-self.bytes) as u64 & BYTES;
        u64::from(self.parity) << PARITY
            | negated(self.pending) << PENDING
            | bytes << PENDING_BYTES
            | negated(self.expected) << EXPECTED
    }

    /// The word that `inval` writes.
    pub(crate) const INVALID: u64 = 1 << MARK;

    /// Returns the number of pending arrivals when the token was created.
    pub(crate) fn pending_of(token: u64) -> u32 {
        ((token >> PENDING & ARRIVALS) as u32).wrapping_neg() & MOST
    }

    /// Returns the parity of the phase in which the token was created.
    pub(crate) fn parity_of(token: u64) -> bool {
        token >> PARITY != 0
    }

    /// Counts arrivals. The last one completes the phase.
    pub(crate) fn arrive(&mut self, count: u32) -> Result<(), MbarrierMisuse> {
        check(count)?;
        let pending = self.pending;
        let left = pending.checked_sub(count);
        self.pending = left.ok_or(MbarrierMisuse::TooManyArrivals { pending, count })?;
        self.complete();
        Ok(())
    }

    /// As [`arrive`](Self::arrive), but fails if the phase completes.
    pub(crate) fn arrive_within(&mut self, count: u32) -> Result<(), MbarrierMisuse> {
        let parity = self.parity;
        self.arrive(count)?;
        if self.parity == parity { Ok(()) } else { Err(MbarrierMisuse::Completes) }
    }

    /// Reduces the number of expected arrivals of the following phases.
    pub(crate) fn drop_expected(&mut self, count: u32) -> Result<(), MbarrierMisuse> {
        check(count)?;
        let pending = self.expected;
        let left = pending.checked_sub(count);
        self.expected = left.ok_or(MbarrierMisuse::TooManyArrivals { pending, count })?;
        Ok(())
    }

    /// Adds a pending arrival, for an asynchronous copy.
    pub(crate) fn add_pending(&mut self) -> Result<(), MbarrierMisuse> {
        check(self.pending + 1)?;
        self.pending += 1;
        Ok(())
    }

    /// Adds pending bytes that must arrive before the phase completes.
    pub(crate) fn expect_bytes(&mut self, bytes: u32) -> Result<(), MbarrierMisuse> {
        self.add_bytes(i64::from(bytes))
    }

    /// Counts arrived bytes.
    pub(crate) fn complete_bytes(&mut self, bytes: u32) -> Result<(), MbarrierMisuse> {
        self.add_bytes(-i64::from(bytes))?;
        self.complete();
        Ok(())
    }

    fn add_bytes(&mut self, bytes: i64) -> Result<(), MbarrierMisuse> {
        let sum = i64::from(self.bytes) + bytes;
        if sum.unsigned_abs() > u64::from(MOST) {
            return Err(MbarrierMisuse::Bytes(sum));
        }
        self.bytes = sum as i32;
        Ok(())
    }

    fn complete(&mut self) {
        if self.pending == 0 && self.bytes == 0 {
            self.parity = !self.parity;
            self.pending = self.expected;
        }
    }
}

fn check(count: u32) -> Result<(), MbarrierMisuse> {
    if count == 0 || count > MOST { Err(MbarrierMisuse::Count(count)) } else { Ok(()) }
}

impl std::fmt::Display for MbarrierMisuse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotInitialized => f.write_str("not initialized, or invalidated"),
            Self::Count(count) => write!(f, "a count of {count}: it must be 1 to {MOST}"),
            Self::TooManyArrivals { pending, count } => {
                write!(f, "{count} arrivals, but only {pending} are pending")
            }
            Self::Completes => {
                f.write_str("`.noComplete` is given, but the arrival would complete the phase")
            }
            Self::Bytes(bytes) => write!(f, "{bytes} bytes pending: at most {MOST}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_hold_every_field() {
        for (parity, pending, bytes, expected) in [
            (false, 1, 0, 1),
            (true, MOST, -1048575, MOST),
            (false, 7, 1048575, 9),
            (true, 3, -5, 0),
        ] {
            let barrier = Mbarrier { parity, pending, bytes, expected };
            assert_eq!(Mbarrier::from_word(barrier.to_word()), Ok(barrier));
            assert_eq!(Mbarrier::pending_of(barrier.to_word()), pending);
            assert_eq!(Mbarrier::parity_of(barrier.to_word()), parity);
        }
        for word in [u64::MAX, Mbarrier::INVALID] {
            assert_eq!(Mbarrier::from_word(word), Err(MbarrierMisuse::NotInitialized));
        }
    }

    #[test]
    fn bytes_may_arrive_before_they_are_expected() {
        let mut barrier = Mbarrier::new(1).unwrap();
        barrier.complete_bytes(64).unwrap();
        barrier.expect_bytes(64).unwrap();
        assert!(!barrier.parity);
        barrier.arrive(1).unwrap();
        assert!(barrier.parity && barrier.pending == 1);
    }
}
