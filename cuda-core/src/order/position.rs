//! Positions: the place of an access in an order. A live access has the ticket of its submission, a recorded one the
//! index of its node.

use smallvec::SmallVec;

use crate::{protocol::Ticket, sync::limit};

/// The maximum number of readers in an access history. A reader is a stream, with its last read. One more reader is
/// ordered after the oldest of them and replaces it. This may add an unnecessary edge, but omits none.
pub const MAX_READERS: usize = limit(8, 2);

/// The place of an access, as a [history](super::history) stores it.
pub(crate) trait Position: Copy + Eq {
    /// The number of readers that a history stores.
    const MAX_READERS: usize;

    /// Whether the two are in one queue, so that the later one follows the earlier one without an edge.
    fn is_same_queue(self, other: Self) -> bool;

    /// The later one of two in one queue.
    fn later(self, other: Self) -> Self;

    /// Removes the reader that is in the queue of `self`, if there is one. Readers were entered in their order.
    fn remove_from(self, readers: &mut SmallVec<[Self; 2]>);
}

/// Submissions of one stream are in one queue.
impl Position for Ticket {
    const MAX_READERS: usize = MAX_READERS;

    #[inline]
    fn is_same_queue(self, other: Self) -> bool {
        self.stream == other.stream
    }

    #[inline]
    fn later(self, other: Self) -> Self {
        Ticket { number: self.number.max(other.number), ..self }
    }

    #[inline]
    fn remove_from(self, readers: &mut SmallVec<[Self; 2]>) {
        readers.retain(|other| other.stream != self.stream);
    }
}

/// Nodes of a recording have no queue: only edges order them. A node that uses the same memory twice needs no edge to
/// itself.
impl Position for u32 {
    /// No limit: an unnecessary edge would make one branch wait for another.
    const MAX_READERS: usize = usize::MAX;

    fn is_same_queue(self, other: Self) -> bool {
        self == other
    }

    fn later(self, _: Self) -> Self {
        self
    }

    /// Checks the last reader only, because no other one can be this node. A search of all readers would make a
    /// recording with many readers slow.
    fn remove_from(self, readers: &mut SmallVec<[Self; 2]>) {
        if readers.last() == Some(&self) {
            readers.pop();
        }
    }
}
