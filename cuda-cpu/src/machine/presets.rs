//! Sets the registers with a known value when a warp starts a function: constants, special registers and addresses.

use super::ctx::Ctx;
use super::place::Place;
use crate::isa::operand::{Class, Preset, PresetValue, Special};
use crate::lanes::LANES;

/// Fills in the presets for the executing lanes of the current frame.
pub(crate) fn fill(ctx: &mut Ctx<'_>, presets: &[Preset], warp: u32) {
    for preset in presets {
        fill_preset(ctx, preset, warp);
    }
}

/// Period in which a preset is constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// For all warps of the same index in blocks of the same shape.
    Always,
    ForLaunch,
    ForBlock,
}

/// Returns the presets that are constant for exactly this period.
pub(crate) fn with_lifetime(presets: &[Preset], lifetime: Lifetime) -> Vec<Preset> {
    presets.iter().filter(|preset| lifetime_of(preset.value) == lifetime).copied().collect()
}

fn lifetime_of(value: PresetValue) -> Lifetime {
    match value {
        PresetValue::Const(_) | PresetValue::Local(_) => Lifetime::Always,
        PresetValue::Special(
            Special::Ctaid(_)
            | Special::ClusterCtaid(_)
            | Special::ClusterId(_)
            | Special::ClusterRank,
        ) => Lifetime::ForBlock,
        PresetValue::Special(Special::Ntid(_) | Special::WarpId | Special::NWarpId) => {
            Lifetime::Always
        }
        PresetValue::Special(special) if differs_by_lane(special) => Lifetime::Always,
        _ => Lifetime::ForLaunch,
    }
}

fn fill_preset(ctx: &mut Ctx<'_>, preset: &Preset, warp: u32) {
    let value = match preset.value {
        PresetValue::Const(bits) => bits,
        PresetValue::Local(at) => u64::from(ctx.spaces.local_base) + u64::from(at),
        PresetValue::DynamicShared => u64::from(ctx.place.static_shared),
        PresetValue::Param { at, bytes, signed } => param(ctx.spaces.params, at, bytes, signed),
        PresetValue::Special(special) if differs_by_lane(special) => {
            let place = ctx.place;
            let lane_value = |lane| value(&place, special, warp, lane as u32);
            return match preset.class {
                Class::W64 => ctx.set_lanes::<u64>(preset.slot, lane_value),
                _ => ctx.set_lanes::<u32>(preset.slot, |lane| lane_value(lane) as u32),
            };
        }
        PresetValue::Special(special) => value(&ctx.place, special, warp, 0),
    };
    let mask = ctx.mask;
    match preset.class {
        Class::Pred => ctx.set_pred(preset.slot, mask, if value != 0 { mask } else { 0 }),
        Class::W32 => ctx.set_lanes(preset.slot, |_| value as u32),
        Class::W64 => ctx.set_lanes(preset.slot, |_| value),
    }
}

fn differs_by_lane(special: Special) -> bool {
    matches!(
        special,
        Special::Tid(_)
            | Special::LaneId
            | Special::LaneMaskEq
            | Special::LaneMaskLt
            | Special::LaneMaskLe
            | Special::LaneMaskGt
            | Special::LaneMaskGe
    )
}

/// Reads a kernel parameter. The range was checked at decoding, and the length of the parameter block at launch.
fn param(params: &[u8], at: u32, bytes: u8, signed: bool) -> u64 {
    let at = at as usize;
    let bytes = params.get(at..at + usize::from(bytes)).unwrap_or_default();
    let word = bytes.iter().rev().fold(0u64, |word, &byte| word << 8 | u64::from(byte));
    let above = 64 - 8 * bytes.len().max(1) as u32;
    if signed { ((word << above) as i64 >> above) as u64 } else { word }
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
        Special::ClusterCtaid(i) => axis(place.in_cluster(), i),
        Special::ClusterNctaid(i) => axis(place.cluster, i),
        Special::ClusterId(i) => axis(place.at, i) / axis(place.cluster, i).max(1),
        Special::NClusterId(i) => axis(place.grid, i) / axis(place.cluster, i).max(1),
        Special::ClusterRank => place.cluster_rank(),
        Special::ClusterSize => place.cluster_size(),
        Special::IsExplicitCluster => u32::from(place.is_explicit_cluster),
        Special::Workspace { high: false } => place.workspace as u32,
        Special::Workspace { high: true } => (place.workspace >> 32) as u32,
    })
}
