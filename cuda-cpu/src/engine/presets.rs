//! Registers that hold a known value when a function begins: constants, special registers, addresses.

use super::code::{Preset, PresetValue, Special};
use super::ctx::{Ctx, LANES};
use super::op::Class;

/// Where the running block is, for its special registers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Place {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) at: [u32; 3],
    pub(crate) worker: u32,
    pub(crate) workers: u32,
    pub(crate) grid_id: u64,
    pub(crate) static_shared: u32,
    pub(crate) dynamic_shared: u32,
}

impl Place {
    pub(crate) fn threads(&self) -> u32 {
        self.block.iter().product()
    }

    /// `threadIdx` of a thread by its linear number.
    pub(crate) fn thread(&self, linear: u32) -> [u32; 3] {
        let [x, y, z] = self.block;
        if y == 1 && z == 1 {
            return [linear, 0, 0];
        }
        [linear % x, linear / x % y, linear / (x * y)]
    }
}

/// Fills in the presets for the executing lanes of the current frame.
pub(crate) fn fill(ctx: &mut Ctx<'_>, presets: &[Preset], warp: u32) {
    for preset in presets {
        one(ctx, preset, warp);
    }
}

/// Fills in those that differ between blocks.
pub(crate) fn refill(ctx: &mut Ctx<'_>, presets: &[Preset], warp: u32) {
    let differs = |value| matches!(value, PresetValue::Special(Special::Ctaid(_)));
    for preset in presets.iter().filter(|p| differs(p.value)) {
        one(ctx, preset, warp);
    }
}

fn one(ctx: &mut Ctx<'_>, preset: &Preset, warp: u32) {
    let value = match preset.value {
        PresetValue::Const(bits) => bits,
        PresetValue::Local(at) => u64::from(ctx.spaces.local_base) + u64::from(at),
        PresetValue::DynamicShared => u64::from(ctx.place.static_shared),
        PresetValue::Special(special) => return fill_special(ctx, preset, special, warp),
    };
    let mask = ctx.mask;
    match preset.class {
        Class::Pred => ctx.set_pred(preset.slot, mask, if value != 0 { mask } else { 0 }),
        Class::W32 => ctx.write(preset.slot, mask, &[value as u32; LANES]),
        Class::W64 => ctx.write(preset.slot, mask, &[value; LANES]),
    }
}

fn fill_special(ctx: &mut Ctx<'_>, preset: &Preset, special: Special, warp: u32) {
    let place = ctx.place;
    let of = |lane| value(&place, special, warp, lane);
    let values: [u64; LANES] = match special {
        Special::Tid(_)
        | Special::LaneId
        | Special::LaneMaskEq
        | Special::LaneMaskLt
        | Special::LaneMaskLe
        | Special::LaneMaskGt
        | Special::LaneMaskGe => std::array::from_fn(|lane| of(lane as u32)),
        _ => [of(0); LANES],
    };
    match preset.class {
        Class::W64 => ctx.write(preset.slot, ctx.mask, &values),
        _ => ctx.write(preset.slot, ctx.mask, &values.map(|v| v as u32)),
    }
}

fn value(place: &Place, special: Special, warp: u32, lane: u32) -> u64 {
    let axis = |of: [u32; 3], i: u8| of.get(usize::from(i)).copied().unwrap_or(0);
    let linear = warp * LANES as u32 + lane;
    u64::from(match special {
        Special::Tid(i) => axis(place.thread(linear), i),
        Special::Ntid(i) => axis(place.block, i),
        Special::Ctaid(i) => axis(place.at, i),
        Special::Nctaid(i) => axis(place.grid, i),
        Special::LaneId => lane,
        Special::WarpId => warp,
        Special::NWarpId => place.threads().div_ceil(LANES as u32),
        Special::SmId => place.worker,
        Special::NSmId => place.workers,
        Special::GridId => return place.grid_id,
        Special::LaneMaskEq => 1 << lane,
        Special::LaneMaskLt => (1 << lane) - 1,
        Special::LaneMaskLe => (1 << lane) | ((1 << lane) - 1),
        Special::LaneMaskGt => !((1 << lane) | ((1 << lane) - 1)),
        Special::LaneMaskGe => !((1 << lane) - 1),
        Special::DynamicSharedSize => place.dynamic_shared,
        Special::TotalSharedSize => place.static_shared + place.dynamic_shared,
    })
}
