//! Special registers.

use cuda_ptx::{Special as Register, SpecialName as Name};

use crate::exec::number::lane::Kind;
use crate::exec::special::{clock_32, clock_64, global_timer, global_timer_32};
use crate::isa::preset::{PresetValue, Special};
use crate::machine::code::Handler;

/// The value of a special register.
pub(super) enum Value {
    /// Constant while a block runs.
    Preset(PresetValue),
    /// Read by a handler with this `imm`.
    Changing(Handler, u64, Kind),
}

/// Returns the value of a special register.
pub(super) fn of(register: Register) -> Value {
    let (name, axis) = match register {
        Register::Named(name) => (name, 0),
        Register::Element(_, 3..) => return Value::Preset(PresetValue::Const(0)),
        Register::Element(name, axis) => (name, axis),
        // CUDA's cooperative groups find the workspace of a cooperative launch in these two.
        Register::Envreg(number @ (1 | 2)) => {
            let special = Special::Workspace { high: number == 1 };
            return Value::Preset(PresetValue::Special(special));
        }
        // The device supports no other driver-defined registers and no performance counters.
        Register::Envreg(_) | Register::Pm(_) | Register::Pm64(_) => {
            return Value::Preset(PresetValue::Const(0));
        }
    };
    let special = match name {
        Name::Tid => Special::Tid(axis),
        Name::Ntid => Special::Ntid(axis),
        Name::Ctaid => Special::Ctaid(axis),
        Name::Nctaid => Special::Nctaid(axis),
        Name::Laneid => Special::LaneId,
        Name::Warpid => Special::WarpId,
        Name::Nwarpid => Special::NWarpId,
        Name::Smid => Special::SmId,
        Name::Nsmid => Special::NSmId,
        Name::Gridid => Special::GridId,
        Name::LanemaskEq => Special::LaneMaskEq,
        Name::LanemaskLt => Special::LaneMaskLt,
        Name::LanemaskLe => Special::LaneMaskLe,
        Name::LanemaskGt => Special::LaneMaskGt,
        Name::LanemaskGe => Special::LaneMaskGe,
        Name::DynamicSmemSize => Special::DynamicSharedSize,
        Name::TotalSmemSize | Name::AggrSmemSize => Special::TotalSharedSize,
        Name::ClusterCtarank => Special::ClusterRank,
        Name::ClusterNctarank => Special::ClusterSize,
        Name::ClusterCtaid => Special::ClusterCtaid(axis),
        Name::ClusterNctaid => Special::ClusterNctaid(axis),
        Name::Clusterid => Special::ClusterId(axis),
        Name::Nclusterid => Special::NClusterId(axis),
        Name::IsExplicitCluster => Special::IsExplicitCluster,
        // The device supports no device-side graph launch, and reserves no shared memory.
        Name::CurrentGraphExec
        | Name::ReservedSmemOffset0
        | Name::ReservedSmemOffset1
        | Name::ReservedSmemOffsetBegin
        | Name::ReservedSmemOffsetCap
        | Name::ReservedSmemOffsetEnd => return Value::Preset(PresetValue::Const(0)),
        Name::Clock => return Value::Changing(clock_32, 0, Kind::W32),
        Name::ClockHi => return Value::Changing(clock_32, 32, Kind::W32),
        Name::Clock64 => return Value::Changing(clock_64, 0, Kind::W64),
        Name::Globaltimer => return Value::Changing(global_timer, 0, Kind::W64),
        Name::GlobaltimerLo => return Value::Changing(global_timer_32, 0, Kind::W32),
        Name::GlobaltimerHi => return Value::Changing(global_timer_32, 32, Kind::W32),
    };
    Value::Preset(PresetValue::Special(special))
}
