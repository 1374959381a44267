//! Tensor cores: the multiplications of `mma` and `wmma`, as an H200 does them.
//!
//! An instruction multiplies a matrix A of 16 (or 8) rows with a matrix B of 8 columns and adds C. The lanes of
//! the warp hold fragments of the matrices ([`layout`]). Registers stand in `Code::extras`: those of D, A, B
//! and C, one after the other. `wmma` is made of the same multiplications (`decode::wmma`).

mod accumulator;
pub(crate) mod doubles;
pub(crate) mod elements;
pub(crate) mod floats;
mod fused;
pub(crate) mod integers;
pub(crate) mod layout;
mod parts;
pub(crate) mod quads;
pub(crate) mod sparse;

use crate::engine::ctx::{Ctx, FULL};
use crate::engine::fault::FaultKind;
use crate::engine::op::Flow;

/// Chooses the variant of a handler for this processor: baseline, or with AVX2 and FMA. Results are the same.
macro_rules! twice {
    ($(#[$doc:meta])* $pick:ident, $body:ident, [$($generic:tt)*], [$($argument:tt)*]) => {
        $(#[$doc])*
        pub(crate) fn $pick<$($generic)*>() -> crate::engine::op::Handler {
            fn base<$($generic)*>(
                ctx: &mut crate::engine::ctx::Ctx<'_>,
                op: &crate::engine::op::Op,
            ) -> crate::engine::op::Flow {
                $body::<$($argument)*>(ctx, op)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn fast<$($generic)*>(
                ctx: &mut crate::engine::ctx::Ctx<'_>,
                op: &crate::engine::op::Op,
            ) -> crate::engine::op::Flow {
                $body::<$($argument)*>(ctx, op)
            }
            #[cfg(target_arch = "x86_64")]
            if crate::engine::exec::simd::level() >= crate::engine::exec::simd::Level::Avx2 {
                return fast::<$($argument)*>;
            }
            base::<$($argument)*>
        }
    };
}

use twice;

/// Matrix instructions need the whole warp: others' registers hold parts of every result.
#[inline(always)]
pub(crate) fn whole_warp(ctx: &mut Ctx<'_>) -> Result<(), Flow> {
    if ctx.mask == FULL { Ok(()) } else { Err(partial(ctx)) }
}

#[cold]
fn partial(ctx: &mut Ctx<'_>) -> Flow {
    let lane = ctx.mask.trailing_zeros() as usize & 31;
    ctx.fail(lane, FaultKind::PartialWarp { lanes: ctx.mask })
}
