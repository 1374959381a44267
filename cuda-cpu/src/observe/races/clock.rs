//! Vector clocks: for each thread, the past of other threads that is ordered before it.
//!
//! A warp counts the releases of its lanes. The count is the *stamp* of all that its lanes do until the next release. A
//! clock contains, for each thread, the stamp up to which its accesses are ordered before. A lane's own past needs no
//! entry. The knowledge of a warp's lanes about each other is a table. Most lanes know nothing of other warps between
//! two barriers of the block, so that part is allocated only when needed.

use std::sync::Arc;

use crate::lanes::{LANES, lanes_of};

/// For each lane of a warp, the stamp up to which it is known.
type Stamps = [u32; LANES];

/// The stamps up to which threads of any warps are known. Absent warps have stamp 0.
#[derive(Debug, Clone, Default)]
pub(crate) struct Clock(Vec<(u32, Stamps)>);

impl Clock {
    pub(crate) fn of(&self, warp: u32, lane: usize) -> u32 {
        self.0.iter().find(|(own, _)| *own == warp).map_or(0, |(_, stamps)| stamps[lane])
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn join(&mut self, other: &Self) {
        other.0.iter().for_each(|(warp, stamps)| self.join_warp(*warp, stamps));
    }

    fn join_warp(&mut self, warp: u32, stamps: &Stamps) {
        if stamps.iter().all(|&stamp| stamp == 0) {
            return;
        }
        match self.0.iter_mut().find(|(own, _)| *own == warp) {
            Some((_, own)) => join(own, stamps),
            None => self.0.push((warp, *stamps)),
        }
    }
}

fn join(into: &mut Stamps, other: &Stamps) {
    into.iter_mut().zip(other).for_each(|(own, &other)| *own = (*own).max(other));
}

/// The clocks of a warp's lanes since the last barrier of the whole block.
pub(crate) struct WarpClocks {
    warp: u32,
    /// The current stamp.
    now: u32,
    /// For each lane, its knowledge of the warp's lanes. All zero until lanes have met.
    seen: Box<[Stamps; LANES]>,
    met: bool,
    /// For each lane, its knowledge of other warps.
    others: [Option<Arc<Clock>>; LANES],
    /// For each lane, the stamp of its latest fence, up to which a relaxed write releases.
    fenced: Stamps,
    /// For each lane, the clocks that relaxed reads have obtained. The next fence acquires them.
    got: [Option<Arc<Clock>>; LANES],
}

impl WarpClocks {
    pub(crate) fn new(warp: u32) -> Self {
        Self {
            warp,
            now: 1,
            seen: Box::new([[0; LANES]; LANES]),
            met: false,
            others: Default::default(),
            fenced: [0; LANES],
            got: Default::default(),
        }
    }

    /// Resets the clocks. All earlier accesses are ordered before all later ones.
    pub(crate) fn forget(&mut self) {
        if std::mem::take(&mut self.met) {
            *self.seen = [[0; LANES]; LANES];
            self.others = Default::default();
            self.got = Default::default();
        }
        self.now = 1;
        self.fenced = [0; LANES];
    }

    /// Returns the current stamp.
    pub(crate) fn now(&self) -> u32 {
        self.now
    }

    /// Increments the stamp after a release. Returns false if the stamps are exhausted.
    #[must_use]
    pub(crate) fn tick(&mut self) -> bool {
        let next = self.now.checked_add(1);
        self.now = next.unwrap_or(self.now);
        next.is_some()
    }

    /// Returns whether `lane` knows what another thread did at `stamp`.
    pub(crate) fn knows(&self, lane: usize, warp: u32, other: usize, stamp: u32) -> bool {
        let known = if warp == self.warp {
            self.seen[lane][other]
        } else {
            self.others[lane].as_ref().map_or(0, |clock| clock.of(warp, other))
        };
        stamp <= known
    }

    /// Merges the clocks of lanes that have waited for each other.
    pub(crate) fn meet(&mut self, lanes: u32) {
        self.met = true;
        self.fence(lanes);
        let (mut seen, mut others): (Stamps, Option<Arc<Clock>>) = ([0; LANES], None);
        for lane in lanes_of(lanes) {
            join(&mut seen, &self.seen[lane]);
            seen[lane] = self.now;
            others = joined(others, self.others[lane].as_ref());
        }
        for lane in lanes_of(lanes) {
            self.seen[lane] = seen;
            self.others[lane] = others.clone();
        }
    }

    /// Acquires what relaxed reads have obtained, and lets later relaxed writes release the past.
    pub(crate) fn fence(&mut self, lanes: u32) {
        for lane in lanes_of(lanes) {
            self.fenced[lane] = self.now;
            if let Some(got) = self.got[lane].take() {
                self.acquire(lane, &got);
            }
        }
    }

    /// Adds the whole past of these lanes to a clock.
    pub(crate) fn release_into(&self, lanes: u32, into: &mut Clock) {
        let mut own: Stamps = [0; LANES];
        for lane in lanes_of(lanes) {
            if self.met {
                join(&mut own, &self.seen[lane]);
            }
            own[lane] = self.now;
            if let Some(others) = &self.others[lane] {
                into.join(others);
            }
        }
        into.join_warp(self.warp, &own);
    }

    /// Returns the clock that a lane releases: of its whole past, or of its past before its latest fence.
    pub(crate) fn released(&self, lane: usize, all: bool) -> Clock {
        let mut clock = self.others[lane].as_deref().cloned().unwrap_or_default();
        // The warp's own stamps are in the table. The lane's own stamp is limited by the fence.
        clock.0.retain(|(warp, _)| *warp != self.warp);
        let mut own = self.seen[lane];
        own[lane] = if all { self.now } else { self.fenced[lane] };
        clock.join_warp(self.warp, &own);
        clock
    }

    /// Merges an acquired clock into a lane's knowledge.
    pub(crate) fn acquire(&mut self, lane: usize, released: &Arc<Clock>) {
        if released.is_empty() {
            return;
        }
        self.met = true;
        if let Some((_, stamps)) = released.0.iter().find(|(warp, _)| *warp == self.warp) {
            join(&mut self.seen[lane], stamps);
        }
        self.others[lane] = joined(self.others[lane].take(), Some(released));
    }

    /// Stores the clock that a relaxed read has obtained. The lane's next fence acquires it.
    pub(crate) fn get(&mut self, lane: usize, released: &Arc<Clock>) {
        if !released.is_empty() {
            self.met = true;
            self.got[lane] = joined(self.got[lane].take(), Some(released));
        }
    }
}

/// Merges two optional clocks without copying if possible.
fn joined(one: Option<Arc<Clock>>, other: Option<&Arc<Clock>>) -> Option<Arc<Clock>> {
    match (one, other) {
        (None, other) => other.cloned(),
        (one, None) => one,
        (Some(one), Some(other)) if Arc::ptr_eq(&one, other) => Some(one),
        (Some(mut one), Some(other)) => {
            Arc::make_mut(&mut one).join(other);
            Some(one)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the current stamp of a warp and increments it.
    fn step(warp: &mut WarpClocks) -> u32 {
        let stamp = warp.now();
        assert!(warp.tick());
        stamp
    }

    #[test]
    fn lanes_that_met_know_earlier_accesses_only() {
        let mut warp = WarpClocks::new(3);
        let before = warp.now();
        assert!(!warp.knows(1, 3, 0, before));
        warp.meet(0b11);
        assert!(warp.knows(1, 3, 0, before) && !warp.knows(2, 3, 0, before));
        assert!(warp.tick());
        let after = step(&mut warp);
        assert!(!warp.knows(1, 3, 0, after));
        // Lane 2 knows of lane 0 through lane 1.
        warp.meet(0b110);
        assert!(warp.knows(2, 3, 0, before) && !warp.knows(2, 3, 0, after));
        assert!(warp.knows(2, 3, 1, after));
    }

    #[test]
    fn released_clocks_pass_between_warps() {
        let (mut a, mut b) = (WarpClocks::new(0), WarpClocks::new(1));
        let early = a.now();
        a.fence(1);
        assert!(a.tick());
        let late = a.now();
        b.get(7, &Arc::new(a.released(0, false)));
        assert!(!b.knows(7, 0, 0, early), "a relaxed read orders nothing before a fence");
        b.fence(1 << 7);
        assert!(b.knows(7, 0, 0, early) && !b.knows(7, 0, 0, late));
        b.acquire(7, &Arc::new(a.released(0, true)));
        assert!(b.knows(7, 0, 0, late) && !b.knows(6, 0, 0, early));
        b.forget();
        assert!(!b.knows(7, 0, 0, early));
    }
}
