//! An access to a word, held against those that were before.

use super::cells::{Cells, Record};
use super::clock::WarpClocks;
use crate::engine::ctx::lanes_of;

/// Holds an access of one lane to a word against the others, and remembers it if it races with none; gives the
/// one that it races with. `same` says whether it writes what another write has written.
pub(crate) fn touch(
    clocks: &WarpClocks,
    cells: &mut Cells,
    (word, new): (u32, Record),
    mut same: impl FnMut(&Record) -> bool,
) -> Option<Record> {
    let mine = |r: &Record| if r.warp == new.warp { r.lanes & new.lanes } else { 0 };
    // The lanes of an access that this lane knows nothing of.
    let unknown = |r: &Record| {
        let others = lanes_of(r.lanes & !mine(r));
        let unknown = others.filter(|&l| !clocks.knows(new.lane(), r.warp.into(), l, r.stamp));
        unknown.fold(0, |lanes, lane| lanes | 1 << lane)
    };
    let overlaps = |r: &Record| r.bytes & new.bytes != 0;
    let conflicts = |r: &Record| {
        overlaps(r) && (new.writes || r.writes) && !(new.strong && r.strong) && unknown(r) != 0
    };
    // Who has written the same as others may read it.
    let wrote =
        |r: &Record, bytes: u8| r.writes && !r.strong && mine(r) != 0 && bytes & !r.bytes == 0;
    let found = cells.records(word).copied().filter(conflicts).find(|r| match new.writes {
        true => !(r.writes && same(r)),
        false => {
            let bytes = r.bytes & new.bytes;
            r.strong || !cells.records(word).any(|own| wrote(own, bytes))
        }
    });
    if let Some(other) = found {
        return Some(Record { lanes: unknown(&other), ..other });
    }
    cells.replace(word, new, |r| {
        let within = r.bytes & !new.bytes == 0;
        let left = match new.writes {
            // Who is ordered behind this access is ordered behind what this one is ordered behind. But strong
            // accesses of others, which do not race with this one, may race with that one.
            true if overlaps(&r) && (r.strong || !new.strong) => unknown(&r),
            // The same of a thread's own reads.
            false if !r.writes && r.strong == new.strong && within => r.lanes & !mine(&r),
            _ => r.lanes,
        };
        match (left, within) {
            (0, true) => None,
            (0, false) => Some(Record { bytes: r.bytes & !new.bytes, ..r }),
            (lanes, true) => Some(Record { lanes, ..r }),
            (_, false) => Some(r),
        }
    });
    None
}
