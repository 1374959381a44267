//! Zeroed bytes with the alignment of a cache line: register files, local and shared memory.

const LINE: usize = 64;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; LINE]);

/// See the module.
#[derive(Default)]
pub(crate) struct Buffer(Vec<Line>);

impl Buffer {
    /// `None` when the host has no room.
    pub(crate) fn new(bytes: usize) -> Option<Self> {
        let mut buffer = Self::default();
        buffer.grow(bytes).then_some(buffer)
    }

    /// Makes it at least this long; what is there stays. False when the host has no room.
    #[must_use]
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        let (lines, new) = (self.0.len(), bytes.div_ceil(LINE));
        if new > lines {
            if self.0.try_reserve_exact(new - lines).is_err() {
                return false;
            }
            self.0.resize(new, Line([0; LINE]));
        }
        true
    }

    /// What a buffer of `bytes` takes.
    pub(crate) fn taken(bytes: u64) -> u64 {
        bytes.next_multiple_of(LINE as u64)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len() * LINE
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: lines are plain bytes without padding, one after the other.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.len()) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), self.len()) }
    }
}
