//! Tensor cores: the multiplications of `mma` and `wmma`, with the same results as an H200.
//!
//! An instruction multiplies a matrix A of 16 (or 8) rows by a matrix B of 8 columns and adds C. The lanes of the warp
//! hold fragments of the matrices (`layout`). The registers of D, A, B and C are the extra operands, in this order.
//! This folder uses the rounding and number formats of `exec::number`, and `exec::memory` to move matrices.
//! `decode::tensor` selects its handlers.

pub(crate) mod fused;
pub(crate) mod layout;
pub(crate) mod matrix;
pub(crate) mod mma;
pub(crate) mod sparse;

use crate::fault::FaultKind;
use crate::lanes::FULL;
use crate::machine::code::{Flow, Op};
use crate::machine::ctx::Ctx;

/// Selects a variant of a handler for this processor: baseline, or AVX2 and FMA. The results are the same.
macro_rules! twice {
    ($(#[$doc:meta])* $pick:ident, $body:ident, [$($generic:tt)*], [$($argument:tt)*]) => {
        $(#[$doc])*
        pub(crate) fn $pick<$($generic)*>() -> crate::machine::code::Handler {
            fn base<$($generic)*>(
                ctx: &mut crate::machine::ctx::Ctx<'_>,
                op: &crate::machine::code::Op,
            ) -> crate::machine::code::Flow {
                $body::<$($argument)*>(ctx, op)
            }
            #[cfg(all(target_arch = "x86_64", not(any(test, one_level))))]
            #[target_feature(enable = "avx2,fma")]
            fn fast<$($generic)*>(
                ctx: &mut crate::machine::ctx::Ctx<'_>,
                op: &crate::machine::code::Op,
            ) -> crate::machine::code::Flow {
                $body::<$($argument)*>(ctx, op)
            }
            #[cfg(all(target_arch = "x86_64", not(any(test, one_level))))]
            if crate::lanes::simd::level() >= crate::lanes::simd::Level::Avx2 {
                return fast::<$($argument)*>;
            }
            base::<$($argument)*>
        }
    };
}

use twice;

/// Fails unless the whole warp executes. Each result depends on the registers of all lanes.
#[inline(always)]
pub(crate) fn whole_warp(ctx: &mut Ctx<'_>) -> Result<(), Flow> {
    if ctx.mask == FULL { Ok(()) } else { Err(partial(ctx)) }
}

/// Placed before the ops of an instruction that takes several.
pub(crate) fn check_whole_warp(ctx: &mut Ctx<'_>, _: &Op) -> Flow {
    whole_warp(ctx).err().unwrap_or(Flow::Next)
}

#[cold]
fn partial(ctx: &mut Ctx<'_>) -> Flow {
    let lane = ctx.mask.trailing_zeros() as usize & 31;
    ctx.fail(lane, FaultKind::PartialWarp { lanes: ctx.mask })
}
