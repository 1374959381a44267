//! The GPU's function unit (MUFU), bit for bit as on an H200: reciprocals, roots, powers of two, logarithms, sines and
//! hyperbolic tangents.
//!
//! The unit has a parabola for each segment of a function's argument. The upper bits of the argument's fraction select
//! the segment. The parabola is evaluated at the 17 bits below in integers, and the result is truncated to 24 bits.
//! `fit.py` derives the coefficients (26, 16 and 10 bits) from the results that `dump.py` reads from a GPU.
//! `tests/engine/sweep` compares the other functions.
//!
//! The functions take and return the bits of numbers. They flush denormal arguments to zero, except `tanh`, and
//! denormal results to zero. `approx` calls them and adds the code that compilers emit around the unit. The functions
//! have no branches, so that the compiler vectorises them.

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

use crate::exec::number::narrow::unless;

const SIGN: u32 = 0x8000_0000;
const INFINITY: u32 = 0x7F80_0000;
const NAN: u32 = crate::exec::number::float::NAN32;
const ONE: u32 = 0x3F80_0000;
/// The smallest normal number.
const NORMAL: u32 = 0x0080_0000;
/// Mask of the fraction bits.
const FRACTION: u32 = NORMAL - 1;
