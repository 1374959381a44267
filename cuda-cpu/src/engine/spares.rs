//! Blocks of earlier launches of a program: small launches would spend most of their time making them.

use parking_lot::Mutex;

use super::block::{Block, BlockSize};

/// What is kept, in bytes, of one program.
const MOST: u64 = 16 << 20;

/// See the module.
#[allow(clippy::vec_box)] // They come and go as boxes.
#[derive(Default)]
pub(crate) struct Spares(Mutex<Vec<Box<Block>>>);

impl Spares {
    /// A block for such a launch, if one is kept.
    pub(crate) fn take(&self, size: BlockSize) -> Option<Box<Block>> {
        let mut kept = self.0.lock();
        let at = kept.iter().rposition(|block| block.fits(size))?;
        Some(kept.swap_remove(at))
    }

    /// Keeps a block; the oldest make room for it.
    pub(crate) fn give(&self, block: Box<Block>) {
        let mut kept = self.0.lock();
        kept.push(block);
        let mut taken: u64 = kept.iter().map(|block| block.taken()).sum();
        let mut old = 0;
        while taken > MOST {
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
