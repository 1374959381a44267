//! Computes the temperature of a metal plate whose upper edge is kept at 100 degrees and whose other edges are at 0.
//!
//! ```text
//! cargo run --release --example script
//! ```
//!
//! In equilibrium, every point has the mean temperature of its four neighbors. A kernel replaces each point by that
//! mean until the plate no longer changes. The program prints the plate and the temperature of its center, which must
//! be 25 degrees: four such plates, rotated so that each edge is hot once, add up to a plate of 100 degrees.
//!
//! The example shows a script without an executor. The whole computation is one lazy operation, with a loop that
//! depends on results of the device. `.sync()` runs it.

use std::{
    ops::ControlFlow::{Break, Continue},
    sync::Arc,
};

use cuda_async::{Function, default_device, iterate, launch, prelude::*};

/// The number of points in each direction. It is odd, so that one point is at the center.
const SIDE: usize = 33;

/// The number of steps between two checks of the plate.
const STEPS: u32 = 100;

/// A plate that changes by less than this between two checks is in equilibrium.
const STILL: f32 = 1e-3;

/// A plate on the device, in degrees. The `Arc` makes it readable by several operations.
type Plate = Arc<DeviceBuffer<f32>>;

/// Returns a cold plate with a hot upper edge.
fn cold_plate() -> Vec<f32> {
    let mut plate = vec![0.0; SIDE * SIDE];
    plate[..SIDE].fill(100.0);
    plate
}

/// Returns an operation that computes a plate whose inner points are the means of their neighbors on `plate`.
fn step(stencil: Function, plate: Plate) -> impl DeviceOp<Output = Plate> {
    zeros(SIDE * SIDE)
        .then(move |next| {
            let side = SIDE as u32;
            let blocks = side.div_ceil(16);
            let config = LaunchConfig::new(1, 1).grid(blocks, blocks, 1).block(16, 16, 1);
            // SAFETY: the kernel reads all of plate and writes all of next. Both have SIDE * SIDE points.
            unsafe { launch(&stencil, config, (plate, next, side, side, 0.0f32, 0.25f32)) }
        })
        .map(|(_, next)| Arc::new(next))
}

/// Returns an operation that runs this number of steps in sequence.
fn steps(stencil: Function, plate: Plate) -> impl DeviceOp<Output = Plate> {
    iterate((plate, STEPS), move |(plate, left)| {
        step(stencil.clone(), plate).map(move |plate| match left {
            0 | 1 => Break(plate),
            _ => Continue((plate, left - 1)),
        })
    })
}

/// Returns an operation that runs until equilibrium. Its output is the plate and the number of steps. The closure after
/// `to_host` examines the device's result and decides whether to continue.
fn settle(stencil: Function) -> impl DeviceOp<Output = (Vec<f32>, u32)> {
    h2d(cold_plate()).then(|plate| {
        iterate((Arc::new(plate), cold_plate(), STEPS), move |(plate, before, taken)| {
            steps(stencil.clone(), plate).then(move |plate| {
                to_host(plate.clone()).map(move |now| match largest_change(&before, &now) {
                    change if change < STILL => Break((now, taken)),
                    _ => Continue((plate, now, taken + STEPS)),
                })
            })
        })
    })
}

fn largest_change(before: &[f32], now: &[f32]) -> f32 {
    before.iter().zip(now).map(|(before, now)| (before - now).abs()).fold(0.0, f32::max)
}

/// Draws the plate with characters, denser for hotter points. Every other row is left out, because characters are twice
/// as high as wide.
fn drawn(plate: &[f32]) -> String {
    const HEAT: &[u8] = b" .:-=+*#%@";
    let character = |degrees: &f32| {
        let heat = (degrees / 100.0 * HEAT.len() as f32) as usize;
        char::from(HEAT[heat.min(HEAT.len() - 1)])
    };
    let line = |row: &[f32]| row.iter().map(character).collect::<String>();
    plate.chunks(SIDE).step_by(2).map(line).collect::<Vec<_>>().join("\n")
}

fn main() -> cuda_async::Result<()> {
    let device = default_device()?;
    let module = device.load_ptx_blocking(include_str!("../../kernels/stencil.ptx"))?;
    let (plate, steps) = settle(module.function("stencil5")?).sync()?;

    println!("{}", drawn(&plate));
    println!("settled after {steps} steps on {}", device.info().address);
    println!("center {:.2} degrees, should be 25", plate[SIDE * SIDE / 2]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_center_ends_at_a_quarter() -> cuda_async::Result<()> {
        let device = cuda_async::open_blocking("cpu")?;
        let module = device.load_ptx_blocking(include_str!("../../kernels/stencil.ptx"))?;
        let op = settle(module.function("stencil5")?);
        let (plate, _) = op.sync_on(&device.new_stream()?)?;
        assert!((plate[SIDE * SIDE / 2] - 25.0).abs() < 0.01);
        Ok(())
    }
}
