//! An access to a word, held against those that were before.

use super::cells::Cells;
use super::clock::WarpClocks;
use super::record::Record;
use crate::engine::ctx::lanes_of;

/// Holds an access of lanes to a word against the others, and remembers it if it races with none; gives a lane and
/// the one that it races with. `same` says whether it writes what another write has written. Several lanes
/// that write have written the same.
pub(crate) fn touch(
    clocks: &WarpClocks,
    cells: &mut Cells,
    (word, new): (u32, Record),
    same: impl FnMut(&Record) -> bool,
) -> Option<(usize, Record)> {
    if cells.add_harmless(word, new) || is_known(cells, word, &new) {
        return None;
    }
    let races = race(clocks, cells, (word, new), same);
    if races.is_none() {
        remember(clocks, cells, word, new);
    }
    races
}

fn overlaps(r: &Record, new: &Record) -> bool {
    r.bytes & new.bytes != 0
}

/// The lanes that both name.
fn mine(r: &Record, new: &Record) -> u32 {
    if r.warp == new.warp { r.lanes & new.lanes } else { 0 }
}

/// Whether the same lanes have done as much to the word since others could last learn of them. Nobody can be
/// ordered behind that and not behind this; and what is not has raced with it.
#[inline]
fn is_known(cells: &Cells, word: u32, new: &Record) -> bool {
    let as_much = |r: &Record| {
        (r.writes || !new.writes)
            && (r.warp, r.stamp, r.strong) == (new.warp, new.stamp, new.strong)
            && new.lanes & !r.lanes == 0
            && new.bytes & !r.bytes == 0
    };
    // Of what several have written alike, one of them may now write something else.
    let alone = |r: &Record| !overlaps(r, new) || mine(r, new) == r.lanes;
    cells.records(word).any(as_much) && (!new.writes || cells.records(word).all(alone))
}

fn race(
    clocks: &WarpClocks,
    cells: &Cells,
    (word, new): (u32, Record),
    mut same: impl FnMut(&Record) -> bool,
) -> Option<(usize, Record)> {
    let conflicts =
        |r: &&Record| overlaps(r, &new) && (new.writes || r.writes) && !(new.strong && r.strong);
    // Who has written the same as others may read it.
    let wrote = |lane: usize, bytes: u8| {
        cells.records(word).any(|r| {
            let own = r.warp == new.warp && r.lanes >> lane & 1 != 0;
            own && r.writes && !r.strong && bytes & !r.bytes == 0
        })
    };
    for r in cells.records(word).filter(conflicts) {
        for lane in lanes_of(new.lanes) {
            let lanes = unknown(clocks, lane, r, &new);
            let harmless = match new.writes {
                true => r.writes && same(r),
                false => !r.strong && wrote(lane, r.bytes & new.bytes),
            };
            if lanes != 0 && !harmless {
                return Some((lane, Record { lanes, ..*r }));
            }
        }
    }
    None
}

/// The other lanes of an access that a lane knows nothing of.
fn unknown(clocks: &WarpClocks, lane: usize, r: &Record, new: &Record) -> u32 {
    let own = if r.warp == new.warp { 1 << lane } else { 0 };
    let others = lanes_of(r.lanes & !own);
    let unknown = others.filter(|&other| !clocks.knows(lane, r.warp.into(), other, r.stamp));
    unknown.fold(0, |lanes, lane| lanes | 1 << lane)
}

fn remember(clocks: &WarpClocks, cells: &mut Cells, word: u32, new: Record) {
    if !new.writes && cells.join(word, new) {
        return;
    }
    cells.replace(word, new, |r| {
        let within = r.bytes & !new.bytes == 0;
        let left = match new.writes {
            // Who is ordered behind this access is ordered behind what this one is ordered behind. But strong
            // accesses of others, which do not race with this one, may race with that one.
            true if overlaps(&r, &new) && (r.strong || !new.strong) => {
                let each = lanes_of(new.lanes).map(|lane| unknown(clocks, lane, &r, &new));
                each.fold(0, |all, lanes| all | lanes) & !mine(&r, &new)
            }
            // The same of a thread's own reads.
            false if !r.writes && r.strong == new.strong && within => r.lanes & !mine(&r, &new),
            _ => r.lanes,
        };
        match (left, within) {
            (0, true) => None,
            (0, false) => Some(Record { bytes: r.bytes & !new.bytes, ..r }),
            (lanes, true) => Some(Record { lanes, ..r }),
            (_, false) => Some(r),
        }
    });
}
