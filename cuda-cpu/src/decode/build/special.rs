//! Special registers.

use cuda_ptx::{Operand, Special as Register, SpecialName as Name};

use super::builder::{Builder, OPERANDS, Problem};
use crate::exec::number::lane::Kind;
use crate::exec::special::{clock_32, clock_64, global_timer, global_timer_32};
use crate::isa::preset::{PresetValue, Special};
use crate::machine::code::{Handler, Op};

/// The value of a special register.
enum Value {
    /// Constant while a block runs.
    Preset(PresetValue),
    /// Read by a handler with this `imm`.
    Changing(Handler, u64, Kind),
    /// The device has no such register.
    None,
}

/// Returns the preset of a special register that is constant while a block runs.
pub(crate) fn value(register: Register) -> Option<PresetValue> {
    match of(register) {
        Value::Preset(value) => Some(value),
        Value::Changing(..) | Value::None => None,
    }
}

fn of(register: Register) -> Value {
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
        Name::CurrentGraphExec | Name::ReservedSmemOffsetBegin => {
            return Value::Preset(PresetValue::Const(0));
        }
        Name::ReservedSmemOffset0
        | Name::ReservedSmemOffset1
        | Name::ReservedSmemOffsetCap
        | Name::ReservedSmemOffsetEnd => return Value::None,
        Name::Clock => return Value::Changing(clock_32, 0, Kind::W32),
        Name::ClockHi => return Value::Changing(clock_32, 32, Kind::W32),
        Name::Clock64 => return Value::Changing(clock_64, 0, Kind::W64),
        Name::Globaltimer => return Value::Changing(global_timer, 0, Kind::W64),
        Name::GlobaltimerLo => return Value::Changing(global_timer_32, 0, Kind::W32),
        Name::GlobaltimerHi => return Value::Changing(global_timer_32, 32, Kind::W32),
    };
    Value::Preset(PresetValue::Special(special))
}

/// Decodes a `mov` of a special register that changes while a block runs. Returns false for other registers.
pub(crate) fn mov_changing(
    b: &mut Builder<'_>,
    d: &Operand,
    register: Register,
    kind: Kind,
) -> Result<bool, Problem> {
    let Value::Changing(run, imm, own) = of(register) else { return Ok(false) };
    if own.class() != kind.class() {
        return Err(OPERANDS);
    }
    let mut op = Op::new(run);
    op.imm = imm;
    op.d = b.dest(d, own, false)?;
    b.emit(op)?;
    Ok(true)
}
