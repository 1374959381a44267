//! Zeroed bytes with the alignment of a cache line: register files, local and shared memory.

const LINE: usize = 64;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; LINE]);

/// See the module.
#[derive(Default)]
pub(crate) struct Buffer(Vec<Line>);

impl Buffer {
    pub(crate) fn new(bytes: usize) -> Self {
        Self(vec![Line([0; LINE]); bytes.div_ceil(LINE)])
    }

    /// Makes it at least this long; what is there stays.
    pub(crate) fn grow(&mut self, bytes: usize) {
        if bytes > self.len() {
            self.0.resize(bytes.div_ceil(LINE), Line([0; LINE]));
        }
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
