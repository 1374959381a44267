//! How warm does a plate get that is heated evenly and cooled at its edges?
//!
//! ```text
//! cargo run --release --example solver
//! ```
//!
//! It solves the equations of 64 by 64 points with conjugate gradients, and prints the iterations and the residual. The
//! whole solver is one lazy operation: a loop that looks at the residual every ten iterations and ends when it is small.

use cuda_async::prelude::*;
use examples::solver::{Kernels, solve};

/// Points in each direction.
const SIDE: u32 = 64;

/// The exact temperature in the middle of a plate of 1 by 1 with heat 1.
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
