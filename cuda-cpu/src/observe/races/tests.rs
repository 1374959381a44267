//! Random traces, compared with a reference that keeps the full history of every thread.

use super::*;
use crate::isa::address::SpaceKind;
use crate::isa::effect::{AccessKind, Order};
use crate::isa::operand::Slot;
use crate::random::Random;

const WARPS: u32 = 3;
/// Number of lanes of each warp that take part.
const LANES_USED: u32 = 3;
const THREADS: usize = (WARPS * LANES_USED) as usize;
const WORDS: u64 = 16;

type Known = [u64; THREADS];

/// The full knowledge of each thread.
#[derive(Default)]
struct Reference {
    /// Number of events so far. Each event has its own number.
    now: u64,
    known: [Known; THREADS],
    fenced: Known,
    got: [Known; THREADS],
    released: [Known; WORDS as usize],
    barrier: Known,
    /// Thread, number, word, bytes, writes, strong.
    accesses: Vec<(usize, u64, u64, u8, bool, bool)>,
}

fn join(into: &mut Known, other: &Known) {
    into.iter_mut().zip(other).for_each(|(own, other)| *own = (*own).max(*other));
}

impl Reference {
    fn fence(&mut self, t: usize) {
        self.fenced[t] = self.now;
        let got = std::mem::take(&mut self.got[t]);
        join(&mut self.known[t], &got);
    }

    fn released(&self, t: usize, all: bool) -> Known {
        let mut released = self.known[t];
        released[t] = if all { self.now } else { self.fenced[t] };
        released
    }

    fn meet(&mut self, threads: &[usize]) {
        threads.iter().for_each(|&t| self.fence(t));
        let mut all = Known::default();
        threads.iter().for_each(|&t| join(&mut all, &self.released(t, true)));
        threads.iter().for_each(|&t| join(&mut self.known[t], &all));
    }

    /// Records an access and returns whether it races with an earlier one.
    fn access(&mut self, t: usize, word: u64, bytes: u8, writes: bool, strong: bool) -> bool {
        let known = &self.known[t];
        let races = self.accesses.iter().any(|&(u, at, w, b, wrote, was_strong)| {
            let conflict = u != t && w == word && b & bytes != 0 && (writes || wrote);
            conflict && !(strong && was_strong) && known[u] < at
        });
        self.accesses.push((t, self.now, word, bytes, writes, strong));
        races
    }
}

fn warp(t: usize) -> u32 {
    t as u32 / LANES_USED
}

fn lane(t: usize) -> usize {
    t % LANES_USED as usize
}

/// Checks an access by lanes of the thread's warp, as `Races::access` does.
fn access(races: &mut Races, t: usize, lanes: u32, word: u64, bytes: u8, access: &Access) -> bool {
    let stamp = races.warps[warp(t) as usize].clocks.now();
    let new = Record {
        stamp,
        pc: 0,
        lanes,
        warp: warp(t) as u8,
        bytes,
        writes: access.kind.writes(),
        strong: access.order.strong,
    };
    let clocks = &races.warps[warp(t) as usize].clocks;
    let found = touch(clocks, &mut races.cells, (word as u32, new), |_| false).is_some();
    if access.order.strong && !found {
        let clocks = &mut races.warps[warp(t) as usize].clocks;
        races.orders.access(clocks, lane(t), Some(word), access);
        if access.order.releases {
            races.tick(warp(t));
        }
    }
    found
}

/// Runs a trace up to its first race. Returns whether there was one.
fn trace(seed: u64) -> bool {
    let mut random = Random::new(seed);
    let mut races = Races::new(WARPS, WORDS * WORD).unwrap();
    races.restart();
    let mut reference = Reference::default();
    for step in 0..60 {
        reference.now += 1;
        let t = random.below(THREADS as u64) as usize;
        let some = |random: &mut Random| random.next() as u32 & ((1 << LANES_USED) - 1);
        match random.below(10) {
            0 => {
                let lanes = some(&mut random) | 1 << lane(t);
                races.wait(warp(t), lanes, |_| lanes);
                races.run(warp(t), 1 << lane(t));
                let threads: Vec<_> =
                    lanes_of(lanes).map(|l| warp(t) as usize * LANES_USED as usize + l).collect();
                reference.meet(&threads);
            }
            1 => {
                races.fence(warp(t), 1 << lane(t));
                reference.fence(t);
            }
            2 => barrier(&mut races, &mut reference, &mut random),
            3..=7 => {
                let kinds = [AccessKind::Read, AccessKind::Write, AccessKind::Update];
                let kind = kinds[random.below(3) as usize];
                let mut order = [Order::RELAXED, Order::ACQUIRE][random.below(2) as usize];
                order.releases = random.below(2) == 0;
                // Words that are mainly used for synchronization.
                let word = random.below(2);
                let own = Access { order, ..Access::new(kind, SpaceKind::Shared, 4, Slot::NONE) };
                let found = access(&mut races, t, 1 << lane(t), word, 15, &own);
                let expected = reference.access(t, word, 15, kind.writes(), true);
                assert_eq!(found, expected, "seed {seed}, step {step}");
                if found {
                    return true;
                }
                strong(&mut reference, t, word, kind, order);
            }
            _ => {
                let kind = if random.below(8) == 0 { AccessKind::Write } else { AccessKind::Read };
                let mixed = random.below(16) == 0;
                let word = if mixed { random.below(2) } else { 2 + random.below(WORDS - 2) };
                let bytes = [15, 3, 12, 1][random.below(4) as usize];
                let own = Access::new(kind, SpaceKind::Shared, 4, Slot::NONE);
                // Several lanes read together.
                let beside = if kind == AccessKind::Read { some(&mut random) } else { 0 };
                let lanes = 1 << lane(t) | beside;
                let found = access(&mut races, t, lanes, word, bytes, &own);
                let first = (warp(t) * LANES_USED) as usize;
                let each = lanes_of(lanes)
                    .map(|l| reference.access(first + l, word, bytes, kind.writes(), false));
                let expected = each.fold(false, |any, races| any | races);
                assert_eq!(found, expected, "seed {seed}, step {step}");
                if found {
                    return true;
                }
            }
        }
    }
    false
}

fn strong(reference: &mut Reference, t: usize, word: u64, kind: AccessKind, order: Order) {
    let released = reference.released[word as usize];
    if kind != AccessKind::Write {
        let into = if order.acquires { &mut reference.known[t] } else { &mut reference.got[t] };
        join(into, &released);
    }
    if kind.writes() {
        let own = reference.released(t, order.releases);
        let released = &mut reference.released[word as usize];
        if kind == AccessKind::Write {
            *released = Known::default();
        }
        join(released, &own);
    }
}

/// Some threads arrive at a barrier and some of them wait, or all wait.
fn barrier(races: &mut Races, reference: &mut Reference, random: &mut Random) {
    let whole_block = random.below(2) == 0;
    let mut waiting = Vec::new();
    for w in 0..WARPS {
        let all = (1 << LANES_USED) - 1;
        let (arrive, wait) = match whole_block {
            true => (all, all),
            false => (random.next() as u32 & all, random.next() as u32 & all),
        };
        reference.now += 1;
        races.arrive(w, arrive, |_| 1);
        for l in lanes_of(arrive) {
            let released = reference.released((w * LANES_USED) as usize + l, true);
            join(&mut reference.barrier, &released);
        }
        waiting.push((w, arrive & wait));
    }
    let all = std::mem::take(&mut reference.barrier);
    for &(w, lanes) in &waiting {
        for l in lanes_of(lanes) {
            let t = (w * LANES_USED) as usize + l;
            reference.fence(t);
            join(&mut reference.known[t], &all);
        }
    }
    races.release(1, whole_block, waiting.into_iter());
}

#[test]
fn agrees_with_the_reference() {
    let found = (0..20_000).filter(|&seed| trace(seed)).count();
    // The traces must include enough of both kinds.
    assert!((3_000..15_000).contains(&found), "{found}");
}
