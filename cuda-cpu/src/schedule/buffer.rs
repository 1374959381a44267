//! Zeroed bytes with the alignment of a cache line: register files, local and shared memory.

const LINE: usize = 64;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; LINE]);

/// A buffer of zeroed bytes.
#[derive(Default)]
pub(crate) struct Buffer(Vec<Line>);

impl Buffer {
    /// Returns `None` if the host has no memory.
    pub(crate) fn new(bytes: usize) -> Option<Self> {
        let mut buffer = Self::default();
        buffer.grow(bytes).then_some(buffer)
    }

    /// Grows the buffer to at least `bytes` and keeps its contents. Returns false if the host has no memory.
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

    /// Returns the number of bytes that a buffer of `bytes` takes.
    pub(crate) fn taken(bytes: u64) -> u64 {
        bytes.next_multiple_of(LINE as u64)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len() * LINE
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: `Line`s are plain bytes without padding and are contiguous.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.len()) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: `Line`s are plain bytes without padding and are contiguous, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), self.len()) }
    }
}
