//! Comparison of written values: threads that write the same value do not race.

use super::cells::WORD;
use super::record::Record;
use crate::exec::memory::locate::read_byte;
use crate::isa::address::SHARED_WINDOW;
use crate::isa::effect::Access;
use crate::lanes::lanes_of;
use crate::machine::ctx::Ctx;
use crate::observe::places::Places;

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
