//! What lanes write: several that write the same do each other no harm.

use super::cells::WORD;
use super::record::Record;
use crate::engine::address::SHARED_WINDOW;
use crate::engine::ctx::{Ctx, lanes_of};
use crate::engine::exec::locate::read_byte;
use crate::engine::observe::effect::Access;
use crate::engine::observe::places::Places;

/// Byte `bit` of a word, as a lane writes it.
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

/// The bytes of a word that are named.
fn bits(bytes: u8) -> impl Iterator<Item = u64> {
    (0..WORD).filter(move |bit| bytes >> bit & 1 != 0)
}

/// The first lane that writes something else than the first one of them, into the same bytes in this very op.
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

/// Whether lanes write what the other access wrote: what is there.
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
