//! Reuses blocks of earlier launches of a program. Small launches would otherwise spend most of their time on creating
//! blocks.

use parking_lot::Mutex;

use crate::schedule::block::{Block, BlockSize};

/// Maximum size of the blocks that are kept for one program, in bytes.
const MAX_KEPT_BYTES: u64 = 16 << 20;

/// Blocks kept for reuse.
#[allow(clippy::vec_box)] // Blocks are passed around in boxes.
#[derive(Default)]
pub(crate) struct Spares(Mutex<Vec<Box<Block>>>);

impl Spares {
    /// Returns a kept block of this size, if any.
    pub(crate) fn take(&self, size: BlockSize) -> Option<Box<Block>> {
        let mut kept = self.0.lock();
        let at = kept.iter().rposition(|block| block.fits(size))?;
        Some(kept.swap_remove(at))
    }

    /// Keeps a block. Evicts the oldest blocks beyond the limit.
    pub(crate) fn give(&self, block: Box<Block>) {
        let mut kept = self.0.lock();
        kept.push(block);
        let mut taken: u64 = kept.iter().map(|block| block.taken()).sum();
        let mut old = 0;
        while taken > MAX_KEPT_BYTES {
            taken -= kept[old].taken();
            old += 1;
        }
        drop(kept.drain(..old));
    }
}

impl std::fmt::Debug for Spares {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Spares").field(&self.0.lock().len()).finish()
    }
}
