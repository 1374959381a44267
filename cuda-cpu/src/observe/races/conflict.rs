//! Compares an access to a word with the earlier ones. Threads that write the same value do not race.

use super::cells::{Cells, Record, WORD};
use super::clock::WarpClocks;
use crate::exec::memory::locate::read_byte;
use crate::isa::address::SHARED_WINDOW;
use crate::isa::effect::Access;
use crate::lanes::lanes_of;
use crate::machine::ctx::Ctx;
use crate::observe::places::Places;

/// Checks an access of lanes to a word for races. If there is none, records the access. Otherwise returns the lane and
/// the other access. `same` returns whether the access writes the value of an earlier write. If several lanes write,
/// the caller has checked that they write the same value.
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
        record(clocks, cells, word, new);
    }
    races
}

fn overlaps(r: &Record, new: &Record) -> bool {
    r.bytes & new.bytes != 0
}

/// Returns the common lanes of two accesses.
fn common_lanes(r: &Record, new: &Record) -> u32 {
    if r.warp == new.warp { r.lanes & new.lanes } else { 0 }
}

/// Returns whether the same lanes have already accessed the word in at least the same way, at the same stamp. An access
/// that is ordered after the earlier one is also ordered after the new one, and one that is not races with the earlier
/// one.
#[inline]
fn is_known(cells: &Cells, word: u32, new: &Record) -> bool {
    let as_much = |r: &Record| {
        (r.writes || !new.writes)
            && (r.warp, r.stamp, r.strong) == (new.warp, new.stamp, new.strong)
            && new.lanes & !r.lanes == 0
            && new.bytes & !r.bytes == 0
    };
    // Several lanes may have written the same value before. One of them may now write another value.
    let alone = |r: &Record| !overlaps(r, new) || common_lanes(r, new) == r.lanes;
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
    // A lane that has written the same value as others may read it.
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

/// Returns the other lanes of an access that are unordered with a lane.
fn unknown(clocks: &WarpClocks, lane: usize, r: &Record, new: &Record) -> u32 {
    let own = if r.warp == new.warp { 1 << lane } else { 0 };
    let others = lanes_of(r.lanes & !own);
    let unknown = others.filter(|&other| !clocks.knows(lane, r.warp.into(), other, r.stamp));
    unknown.fold(0, |lanes, lane| lanes | 1 << lane)
}

fn record(clocks: &WarpClocks, cells: &mut Cells, word: u32, new: Record) {
    if !new.writes && cells.join(word, new) {
        return;
    }
    cells.replace(word, new, |r| {
        let within = r.bytes & !new.bytes == 0;
        let left = match new.writes {
            // An access that is ordered after the new one is also ordered after those before it, so they can be
            // removed. Strong accesses of others stay, because they may race with a later weak access but not with the
            // new one.
            true if overlaps(&r, &new) && (r.strong || !new.strong) => {
                let each = lanes_of(new.lanes).map(|lane| unknown(clocks, lane, &r, &new));
                each.fold(0, |all, lanes| all | lanes) & !common_lanes(&r, &new)
            }
            // The same holds for a thread's own reads.
            false if !r.writes && r.strong == new.strong && within => {
                r.lanes & !common_lanes(&r, &new)
            }
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

/// Returns byte `bit` of a word as a lane writes it, if known.
fn written(
    ctx: &Ctx<'_>,
    access: &Access,
    places: &Places,
    lane: usize,
    (word, bit): (u32, u64),
) -> Option<u8> {
    let at = u64::from(word) * WORD + bit;
    access.value(ctx, lane, at.checked_sub(places.of_lane(lane))? as u32)
}

/// Iterates over the positions in a byte mask.
fn bits(bytes: u8) -> impl Iterator<Item = u64> {
    (0..WORD).filter(move |bit| bytes >> bit & 1 != 0)
}

/// Returns the first lane that writes another value than the lowest lane of the same op, to the same bytes.
pub(super) fn differs(
    ctx: &Ctx<'_>,
    access: &Access,
    places: &Places,
    (word, new): (u32, &Record),
) -> Option<usize> {
    let value =
        |lane| bits(new.bytes).map(move |bit| written(ctx, access, places, lane, (word, bit)));
    let first = new.lane();
    lanes_of(new.lanes).find(|&lane| !value(lane).eq(value(first)))
}

/// Returns whether the lanes write the value that is already in memory, from the other write.
pub(super) fn same(
    ctx: &mut Ctx<'_>,
    access: &Access,
    places: &Places,
    (word, new): (u32, &Record),
    other: &Record,
) -> bool {
    let lane = new.lane();
    bits(new.bytes & other.bytes).all(|bit| {
        let new_value = written(ctx, access, places, lane, (word, bit));
        let op = &ctx.code.ops[new.pc as usize];
        let at = SHARED_WINDOW + u64::from(word) * WORD + bit;
        new_value.is_some() && read_byte(ctx, op, lane, at).ok() == new_value
    })
}
