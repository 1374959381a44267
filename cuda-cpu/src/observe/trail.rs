//! Origins of unwritten values that lanes have stored to shared or local memory.
//!
//! When such a value is loaded again, a fault reports the first load of it. Origins are recorded by word, and for a
//! limited number of words. For other words, the fault reports the last load.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::undefined::Origin;
use crate::fault::FaultSpace;
use crate::isa::call::Passed;
use crate::lanes::LANES;

/// Maximum number of recorded words. Calls and `alloca` visit all of them.
const MAX_WORDS: usize = 1 << 10;

const WORD: u64 = 4;

/// A word of shared memory, or of a lane's local memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Place {
    /// The warp and lane of local memory. `None` for shared memory.
    owner: Option<(u32, u8)>,
    word: u64,
}

impl Place {
    fn new((warp, lane): (u32, usize), (space, at): (FaultSpace, u64)) -> Self {
        let owner = (space == FaultSpace::Local).then_some((warp, lane as u8));
        Self { owner, word: at / WORD }
    }
}

/// The recorded origins of a block.
#[derive(Debug, Default)]
pub(crate) struct Trail(FxHashMap<Place, (Arc<Origin>, u8)>);

impl Trail {
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Records that a lane stores a value of this origin.
    pub(crate) fn leave(
        &mut self,
        (warp, lane): (u32, usize),
        (space, at): (FaultSpace, u64),
        bytes: u64,
        origin: &Arc<Origin>,
    ) {
        let first = Place::new((warp, lane), (space, at));
        for i in 0..bytes.div_ceil(WORD) {
            let place = Place { word: first.word + i, ..first };
            if self.0.len() < MAX_WORDS || self.0.contains_key(&place) {
                self.0.insert(place, (origin.clone(), origin.by[lane]));
            }
        }
    }

    /// Returns the origin of the value at a place, as if every lane held it.
    pub(crate) fn find(&self, owner: (u32, usize), place: (FaultSpace, u64)) -> Option<Origin> {
        if self.0.is_empty() {
            return None;
        }
        let (origin, by) = self.0.get(&Place::new(owner, place))?;
        Some(Origin { by: [*by; LANES], ..(**origin).clone() })
    }

    /// Removes the records of a part of these lanes' local memory.
    pub(crate) fn give(&mut self, warp: u32, lanes: u32, (base, bytes): (u32, u32)) {
        let (from, to) = (u64::from(base) / WORD, u64::from(base + bytes).div_ceil(WORD));
        self.0.retain(|place, _| match place.owner {
            Some((own, lane)) if own == warp && lanes >> lane & 1 != 0 => {
                !(from..to).contains(&place.word)
            }
            _ => true,
        });
    }

    /// Copies the records of arguments or results between frames.
    pub(crate) fn pass(
        &mut self,
        warp: u32,
        lanes: u32,
        from: (u32, &[Passed]),
        to: (u32, &[Passed]),
    ) {
        if self.0.is_empty() {
            return;
        }
        let own = |place: &Place| {
            place.owner.is_some_and(|(own, lane)| own == warp && lanes >> lane & 1 != 0)
        };
        for (source, target) in from.1.iter().zip(to.1) {
            let (&Passed::Local(source, bytes), &Passed::Local(target, _)) = (source, target)
            else {
                continue;
            };
            let first = u64::from(from.0 + source) / WORD;
            let passed = first..first + u64::from(bytes).div_ceil(WORD);
            let target = u64::from(to.0 + target) / WORD;
            let copies: Vec<_> = self
                .0
                .iter()
                .filter(|(place, _)| own(place) && passed.contains(&place.word))
                .map(|(place, held)| {
                    (Place { word: place.word - first + target, ..*place }, held.clone())
                })
                .collect();
            let room = MAX_WORDS - self.0.len().min(MAX_WORDS);
            self.0.extend(copies.into_iter().take(room));
        }
    }
}
