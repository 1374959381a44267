//! Computes the temperature of a plate that is heated evenly and cooled at its edges.
//!
//! ```text
//! cargo run --release --example solver
//! ```
//!
//! The program solves the equations of 64 by 64 points with conjugate gradients, and prints the number of iterations
//! and the residual. The whole solver is one lazy operation: a loop that checks the residual every ten iterations and
//! ends when it is small.

use cuda_async::prelude::*;
use examples::solver::{Kernels, solve};

/// The number of points in each direction.
const SIDE: u32 = 64;

/// The exact temperature at the center of a plate of size 1 by 1 with heat 1.
const EXACT: f64 = 0.073_671;

fn main() -> cuda_async::Result<()> {
    let device = cuda_async::default_device()?;
    let kernels = Kernels::load(&device)?;

    let n = (SIDE * SIDE) as usize;
    let heat = vec![f64::from(SIDE + 1).powi(-2); n];
    let solution = solve(&kernels, heat, SIDE, 1e-10, 1000).sync()?;

    let warmest = solution.x.iter().copied().fold(0.0, f64::max);
    println!("solved {n} equations on {}", device.info().address);
    println!("iterations {}, residual {:.1e}", solution.iterations, solution.residual);
    println!("warmest point {warmest:.5}, exact {EXACT:.5}");
    Ok(())
}
