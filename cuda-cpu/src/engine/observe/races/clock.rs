//! What threads know of each other: vector clocks.
//!
//! A warp counts the times that any of its lanes tells others of its past; the count is the *stamp* of what its lanes
//! do until the next time. A clock says of each thread up to which stamp all that it did is ordered before. A lane's
//! own past needs no entry. Within a warp, what lanes know of each other is a table; of other warps most lanes know nothing
//! between two barriers of the block, so that part is there only when there is something in it.

use std::sync::Arc;

use crate::engine::ctx::{LANES, lanes_of};

/// By lane of one warp, the stamp up to which it is known.
type Stamps = [u32; LANES];

/// Of threads of any warps, the stamps up to which they are known: 0 of those that are not named.
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

/// The lanes of a warp since the last barrier of the whole block.
pub(crate) struct WarpClocks {
    warp: u32,
    /// The stamp of what is done now.
    now: u32,
    /// By lane, what it knows of the warp's lanes: nothing, as long as none has `met` anybody.
    seen: Box<[Stamps; LANES]>,
    met: bool,
    /// By lane, what it knows of other warps.
    others: [Option<Arc<Clock>>; LANES],
    /// By lane, the stamp of its latest fence: what a relaxed write may publish.
    fenced: Stamps,
    /// By lane, what relaxed reads have got, which the next fence makes known.
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

    /// All threads know all that was before.
    pub(crate) fn forget(&mut self) {
        if std::mem::take(&mut self.met) {
            *self.seen = [[0; LANES]; LANES];
            self.others = Default::default();
            self.got = Default::default();
        }
        self.now = 1;
        self.fenced = [0; LANES];
    }

    /// The stamp of what is done now.
    pub(crate) fn now(&self) -> u32 {
        self.now
    }

    /// What was done up to now has been told: what comes has the next stamp. False when there are no more.
    #[must_use]
    pub(crate) fn tick(&mut self) -> bool {
        let next = self.now.checked_add(1);
        self.now = next.unwrap_or(self.now);
        next.is_some()
    }

    /// Whether `lane` knows what another thread did at `stamp`.
    pub(crate) fn knows(&self, lane: usize, warp: u32, other: usize, stamp: u32) -> bool {
        let known = if warp == self.warp {
            self.seen[lane][other]
        } else {
            self.others[lane].as_ref().map_or(0, |clock| clock.of(warp, other))
        };
        stamp <= known
    }

    /// These lanes have waited for each other.
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

    /// What relaxed reads have got is known from now on, and relaxed writes may publish what was before.
    pub(crate) fn fence(&mut self, lanes: u32) {
        for lane in lanes_of(lanes) {
            self.fenced[lane] = self.now;
            if let Some(got) = self.got[lane].take() {
                self.acquire(lane, &got);
            }
        }
    }

    /// What these lanes tell others together: all they have done.
    pub(crate) fn tell(&self, lanes: u32, into: &mut Clock) {
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

    /// What a lane tells others: all it has done, or what it had done before its latest fence.
    pub(crate) fn released(&self, lane: usize, all: bool) -> Clock {
        let mut clock = self.others[lane].as_deref().cloned().unwrap_or_default();
        // What came back of the warp's own is in the table, and of the lane's own it is not to be told.
        clock.0.retain(|(warp, _)| *warp != self.warp);
        let mut own = self.seen[lane];
        own[lane] = if all { self.now } else { self.fenced[lane] };
        clock.join_warp(self.warp, &own);
        clock
    }

    /// A lane learns what others told.
    pub(crate) fn acquire(&mut self, lane: usize, told: &Arc<Clock>) {
        if told.is_empty() {
            return;
        }
        self.met = true;
        if let Some((_, stamps)) = told.0.iter().find(|(warp, _)| *warp == self.warp) {
            join(&mut self.seen[lane], stamps);
        }
        self.others[lane] = joined(self.others[lane].take(), Some(told));
    }

    /// A lane has read what others told; it counts from its next fence on.
    pub(crate) fn get(&mut self, lane: usize, told: &Arc<Clock>) {
        if !told.is_empty() {
            self.met = true;
            self.got[lane] = joined(self.got[lane].take(), Some(told));
        }
    }
}

/// Both together; one of them, if that is all.
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

    /// The stamp of what a warp does, and a new one for what it does later.
    fn step(warp: &mut WarpClocks) -> u32 {
        let stamp = warp.now();
        assert!(warp.tick());
        stamp
    }

    #[test]
    fn lanes_that_met_know_what_was_before_and_nothing_later() {
        let mut warp = WarpClocks::new(3);
        let before = warp.now();
        assert!(!warp.knows(1, 3, 0, before));
        warp.meet(0b11);
        assert!(warp.knows(1, 3, 0, before) && !warp.knows(2, 3, 0, before));
        assert!(warp.tick());
        let after = step(&mut warp);
        assert!(!warp.knows(1, 3, 0, after));
        // Through lane 1, lane 2 knows of lane 0.
        warp.meet(0b110);
        assert!(warp.knows(2, 3, 0, before) && !warp.knows(2, 3, 0, after));
        assert!(warp.knows(2, 3, 1, after));
    }

    #[test]
    fn what_is_told_goes_from_warp_to_warp() {
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
