//! The solver agrees with conjugate gradients in plain Rust, and its result solves the equations.

use cuda_async::{Error, prelude::*};
use examples::solver::{Kernels, STEPS, solve};

const SIDE: usize = 30;
const TOLERANCE: f64 = 1e-9;

/// Applies the negative 5-point Laplacian in plain Rust.
fn laplacian(v: &[f64]) -> Vec<f64> {
    let at = |x: usize, y: usize| if x < SIDE && y < SIDE { v[y * SIDE + x] } else { 0.0 };
    let row = |y: usize| {
        (0..SIDE).map(move |x| {
            let sides = at(x.wrapping_sub(1), y) + at(x + 1, y);
            4.0 * at(x, y) - sides - at(x, y.wrapping_sub(1)) - at(x, y + 1)
        })
    };
    (0..SIDE).flat_map(row).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Computes `x += factor * v`.
fn add(x: &mut [f64], factor: f64, v: &[f64]) {
    x.iter_mut().zip(v).for_each(|(x, v)| *x += factor * v);
}

/// Runs conjugate gradients in plain Rust. Returns the solution and the number of iterations.
fn expected(b: &[f64]) -> (Vec<f64>, usize) {
    let (mut x, mut r, mut p) = (vec![0.0; b.len()], b.to_vec(), b.to_vec());
    let mut rr = dot(&r, &r);
    for iterations in 0.. {
        if rr.sqrt() <= TOLERANCE {
            return (x, iterations);
        }
        let q = laplacian(&p);
        let alpha = rr / dot(&p, &q);
        add(&mut x, alpha, &p);
        add(&mut r, -alpha, &q);
        let next_rr = dot(&r, &r);
        p.iter_mut().zip(&r).for_each(|(p, r)| *p = r + next_rr / rr * *p);
        rr = next_rr;
    }
    unreachable!()
}

/// Returns heat in one corner and at one point, without symmetry.
fn heat() -> Vec<f64> {
    let mut b: Vec<f64> = (0..SIDE * SIDE).map(|i| 1.0 / (1.0 + i as f64)).collect();
    b[17 * SIDE + 5] = -2.0;
    b
}

#[test]
fn solution_agrees_with_plain_rust() -> cuda_async::Result<()> {
    let kernels = Kernels::load(&cuda_async::default_device()?)?;
    let solution = solve(&kernels, heat(), SIDE as u32, TOLERANCE, 1000).sync()?;
    let (x, iterations) = expected(&heat());
    assert_eq!(solution.iterations, iterations.next_multiple_of(STEPS));
    assert!(solution.residual <= TOLERANCE, "{}", solution.residual);
    let largest = x.iter().zip(&solution.x).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(largest < 1e-8, "{largest}");

    let mut rest = heat();
    add(&mut rest, -1.0, &laplacian(&solution.x));
    assert!(dot(&rest, &rest).sqrt() < 10.0 * TOLERANCE);
    Ok(())
}

#[test]
fn loop_ends_at_the_limit() -> cuda_async::Result<()> {
    let kernels = Kernels::load(&cuda_async::default_device()?)?;
    let solution = solve(&kernels, heat(), SIDE as u32, 0.0, 2 * STEPS).sync()?;
    assert_eq!(solution.iterations, 2 * STEPS);
    assert!(solution.residual > TOLERANCE);
    Ok(())
}

#[test]
fn nothing_to_solve_gives_zeros() -> cuda_async::Result<()> {
    let kernels = Kernels::load(&cuda_async::default_device()?)?;
    let solution = solve(&kernels, vec![0.0; 16], 4, 0.0, 1000).sync()?;
    assert_eq!((solution.x, solution.residual), (vec![0.0; 16], 0.0));
    Ok(())
}

#[test]
fn wrong_number_of_elements_is_an_error() -> cuda_async::Result<()> {
    let kernels = Kernels::load(&cuda_async::default_device()?)?;
    let error = solve(&kernels, vec![0.0; 15], 4, 0.0, 1000).sync().unwrap_err();
    assert!(matches!(error, Error::OutOfRange { .. }), "{error}");
    Ok(())
}
