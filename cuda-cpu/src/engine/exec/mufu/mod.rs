//! The GPU's function unit (MUFU), bit for bit: reciprocals, roots, powers of two, logarithms,
//! sines and hyperbolic tangents, as an H200 computes them.
//!
//! The unit keeps a parabola for each segment of a function's argument: the upper bits of the
//! argument's fraction choose it, the 17 bits below are put into it in integers, and the result
//! is cut off after 24 bits. Its coefficients (26, 16 and 10 bits) are what `fit.py` finds from all
//! the results that `dump.py` has read off a GPU; `tests/engine/sweep` compares the rest.
//!
//! Functions take and give the bits of numbers. Denormals are taken as zeros, except by `tanh`;
//! results too small for a normal number become zeros. `approx` adds what compilers put around the
//! unit. No branches: the compiler turns these into vector code.

mod exponential;
mod fixed;
mod roots;
#[rustfmt::skip]
mod tables;
mod tanh;
mod trigonometric;

pub(crate) use exponential::{ex2, lg2};
use fixed::Table;
pub(crate) use roots::{rcp, rcp64, rsq, rsq64, sqrt};
pub(crate) use tanh::tanh;
pub(crate) use trigonometric::{cos, sin};

use super::narrow::unless;

const SIGN: u32 = 0x8000_0000;
const INFINITY: u32 = 0x7F80_0000;
const NAN: u32 = super::float::NAN32;
const ONE: u32 = 0x3F80_0000;
/// The smallest normal number.
const NORMAL: u32 = 0x0080_0000;
/// The bits of a fraction.
const FRACTION: u32 = NORMAL - 1;
