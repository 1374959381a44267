//! Special registers by name.

use cuda_ptx::Operand;

use super::builder::{Builder, OPERANDS, Problem};
use crate::exec::number::lane::Kind;
use crate::exec::special::{clock_32, clock_64, global_timer, global_timer_32};
use crate::isa::preset::{PresetValue, Special};
use crate::machine::code::{Handler, Op};

/// Returns the preset of a special register that is constant while a block runs.
pub(crate) fn value(name: &str) -> Option<PresetValue> {
    let (base, axis) = match name.split_once('.') {
        Some((base, "x")) => (base, 0),
        Some((base, "y")) => (base, 1),
        Some((base, "z")) => (base, 2),
        Some(_) => return Some(PresetValue::Const(0)).filter(|_| name.ends_with(".w")),
        None => (name, 0),
    };
    let special = match base {
        "tid" => Special::Tid(axis),
        "ntid" => Special::Ntid(axis),
        "ctaid" => Special::Ctaid(axis),
        "nctaid" => Special::Nctaid(axis),
        "laneid" => Special::LaneId,
        "warpid" => Special::WarpId,
        "nwarpid" => Special::NWarpId,
        "smid" => Special::SmId,
        "nsmid" => Special::NSmId,
        "gridid" => Special::GridId,
        "lanemask_eq" => Special::LaneMaskEq,
        "lanemask_lt" => Special::LaneMaskLt,
        "lanemask_le" => Special::LaneMaskLe,
        "lanemask_gt" => Special::LaneMaskGt,
        "lanemask_ge" => Special::LaneMaskGe,
        "dynamic_smem_size" => Special::DynamicSharedSize,
        "total_smem_size" | "aggr_smem_size" => Special::TotalSharedSize,
        "WARP_SZ" => return Some(PresetValue::Const(32)),
        // The device supports no device-side graph launch, no driver-defined registers and no performance counters.
        "current_graph_exec" => return Some(PresetValue::Const(0)),
        // CUDA's cooperative groups find the workspace of a cooperative launch in these two.
        "envreg1" => Special::Workspace { high: true },
        "envreg2" => Special::Workspace { high: false },
        _ if base.starts_with("envreg") || base.starts_with("pm") => {
            return Some(PresetValue::Const(0));
        }
        "reserved_smem_offset_begin" => return Some(PresetValue::Const(0)),
        "cluster_ctarank" => Special::ClusterRank,
        "cluster_nctarank" => Special::ClusterSize,
        "cluster_ctaid" => Special::ClusterCtaid(axis),
        "cluster_nctaid" => Special::ClusterNctaid(axis),
        "clusterid" => Special::ClusterId(axis),
        "nclusterid" => Special::NClusterId(axis),
        "is_explicit_cluster" => Special::IsExplicitCluster,
        _ => return None,
    };
    Some(PresetValue::Special(special))
}

/// Decodes a `mov` of a special register that changes while a block runs. Returns false for other names.
pub(crate) fn mov_changing(
    b: &mut Builder<'_>,
    d: &Operand,
    name: &str,
    kind: Kind,
) -> Result<bool, Problem> {
    let (run, imm, own): (Handler, u64, Kind) = match name {
        "clock" => (clock_32, 0, Kind::W32),
        "clock_hi" => (clock_32, 32, Kind::W32),
        "clock64" => (clock_64, 0, Kind::W64),
        "globaltimer" => (global_timer, 0, Kind::W64),
        "globaltimer_lo" => (global_timer_32, 0, Kind::W32),
        "globaltimer_hi" => (global_timer_32, 32, Kind::W32),
        _ => return Ok(false),
    };
    if own.class() != kind.class() {
        return Err(OPERANDS);
    }
    let mut op = Op::new(run);
    op.imm = imm;
    op.d = b.dest(d, own, false)?;
    b.emit(op)?;
    Ok(true)
}
