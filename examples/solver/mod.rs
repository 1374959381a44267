//! Conjugate gradients on a device, as one operation. The program is in `main.rs`.

use std::ops::ControlFlow::{Break, Continue};

use cuda_async::{
    cuda_core::{Limit, Quantity},
    iterate,
    ops::ScriptContext,
    prelude::*,
};

/// The number of iterations between two checks of the residual. A check waits for the device, an iteration does not.
pub const STEPS: usize = 10;

/// The number of threads of the kernel `dot`.
const DOT: u32 = 256;

cuda_async::kernels! {
    /// The kernels of the solver, loaded on a device.
    #[ptx = "solver/kernels/cg.ptx"]
    pub struct Kernels;

    /// Computes `out = A v`, for the negative 5-point Laplacian `A` of `side * side` points.
    ///
    /// # Safety
    /// `v` and `out` must have at least `side * side` elements.
    unsafe fn laplacian(v: &[f64], out: &mut [f64], side: u32);

    /// Computes `out[0] = a . b`, in one block of 256 threads.
    ///
    /// # Safety
    /// `a` and `b` must have at least `n` elements, and `out` one. The launch must have one block of 256 threads.
    unsafe fn dot(a: &[f64], b: &[f64], out: &mut [f64], n: u32);

    /// Computes `alpha = rr / pq; x += alpha p; r -= alpha q`.
    ///
    /// # Safety
    /// The vectors must have at least `n` elements, and the scalars one.
    unsafe fn advance(
        p: &[f64], q: &[f64], rr: &[f64], pq: &[f64], x: &mut [f64], r: &mut [f64], n: u32,
    );

    /// Computes `beta = next_rr / rr; p = r + beta p`.
    ///
    /// # Safety
    /// The vectors must have at least `n` elements, and the scalars one.
    unsafe fn turn(r: &[f64], next_rr: &[f64], rr: &[f64], p: &mut [f64], n: u32);
}

/// The result of [`solve`].
#[derive(Debug)]
pub struct Solution {
    /// The unknowns, row by row.
    pub x: Vec<f64>,
    /// The number of iterations, a multiple of [`STEPS`].
    pub iterations: usize,
    /// The length of `b - A x`, from the recurrence of the method.
    pub residual: f64,
}

/// The vectors and scalars of the method, on the device.
struct State {
    side: u32,
    x: DeviceBuffer<f64>,
    r: DeviceBuffer<f64>,
    p: DeviceBuffer<f64>,
    q: DeviceBuffer<f64>,
    /// `r . r` of this iteration and of the next one, and `p . q`.
    rr: DeviceBuffer<f64>,
    next_rr: DeviceBuffer<f64>,
    pq: DeviceBuffer<f64>,
}

// ANCHOR: solve
/// Solves `A x = b` for the negative 5-point Laplacian `A` of a square of `side` by `side` points. Ends when the
/// residual is at most `tolerance`, or after `most` iterations.
///
/// # Errors
/// When run, returns [`Error::OutOfRange`](cuda_async::Error::OutOfRange) if `b` does not have `side * side` elements.
pub fn solve(
    kernels: &Kernels,
    b: Vec<f64>,
    side: u32,
    tolerance: f64,
    most: usize,
) -> impl DeviceOp<Output = Solution> + use<> {
    let (first, kernels) = (kernels.clone(), kernels.clone());
    script(async move |cx| State::new(&cx, &first, b, side).await).then(move |state| {
        iterate((state, 0), move |(mut state, taken)| {
            let kernels = kernels.clone();
            script(async move |cx| {
                for _ in 0..STEPS {
                    state.step(&cx, &kernels).await?;
                }
                let (iterations, rr) = (taken + STEPS, cx.run(to_host(&state.rr)).await?);
                let residual = rr[0].sqrt();
                if residual > tolerance && iterations < most {
                    return Ok(Continue((state, iterations)));
                }
                let x = cx.run(to_host(state.x)).await?;
                Ok(Break(Solution { x, iterations, residual }))
            })
        })
    })
}
// ANCHOR_END: solve

impl State {
    async fn new(
        cx: &ScriptContext,
        kernels: &Kernels,
        b: Vec<f64>,
        side: u32,
    ) -> cuda_async::Result<Self> {
        let n = side as usize * side as usize;
        let limit = Limit::Exactly(n as u64);
        limit.check("the right-hand side", Quantity::Elements, b.len() as u64)?;
        let vectors = zip!(zeros(n), h2d(b.clone()), h2d(b), uninitialized(n));
        let scalars = zip!(uninitialized(1), uninitialized(1), uninitialized(1));
        let ((x, r, p, q), (rr, next_rr, pq)) = cx.run(zip!(vectors, scalars)).await?;
        let mut state = Self { side, x, r, p, q, rr, next_rr, pq };
        // SAFETY: the vector has `n` elements, and the scalar one.
        let dot = unsafe {
            kernels.dot(LaunchConfig::new(1, DOT), &state.r, &state.r, &mut state.rr, n as u32)
        };
        cx.run(dot).await?;
        Ok(state)
    }

    // ANCHOR: step
    /// Submits one iteration. It does not wait for the device, because the scalars stay there.
    async fn step(&mut self, cx: &ScriptContext, kernels: &Kernels) -> cuda_async::Result<()> {
        let Self { side, x, r, p, q, rr, next_rr, pq } = self;
        let (plane, n) = (LaunchConfig::for_plane(*side, *side), *side * *side);
        let (line, block) = (LaunchConfig::for_num_elems(n), LaunchConfig::new(1, DOT));
        // SAFETY: `State::new` allocates `n = side * side` elements for each vector and one for each scalar.
        unsafe {
            cx.run(kernels.laplacian(plane, &*p, &mut *q, *side)).await?;
            cx.run(kernels.dot(block, &*p, &*q, &mut *pq, n)).await?;
            cx.run(kernels.advance(line, &*p, &*q, &*rr, &*pq, &mut *x, &mut *r, n)).await?;
            cx.run(kernels.dot(block, &*r, &*r, &mut *next_rr, n)).await?;
            cx.run(kernels.turn(line, &*r, &*next_rr, &*rr, &mut *p, n)).await?;
        }
        std::mem::swap(rr, next_rr);
        Ok(())
    }
    // ANCHOR_END: step
}
