//! Conjugate gradients on a device, as one operation. The program is in `main.rs` beside this file.

use std::ops::ControlFlow::{Break, Continue};

use cuda_async::{iterate, ops::ScriptContext, prelude::*};

/// Iterations between two looks at the residual. A look waits for the device, an iteration does not.
pub const STEPS: usize = 10;

/// Threads of the kernel `dot`.
const DOT: u32 = 256;

cuda_async::kernels! {
    /// The steps of the solver on a device.
    #[ptx = "solver/kernels/cg.ptx"]
    pub struct Kernels;

    /// `out = A v`, for the negative 5-point Laplacian `A` of `side * side` points.
    ///
    /// # Safety
    /// `v` and `out` have at least `side * side` elements.
    unsafe fn laplacian(v: &[f64], out: &mut [f64], side: u32);

    /// `out[0] = a . b`, in one block of 256 threads.
    ///
    /// # Safety
    /// `a` and `b` have at least `n` elements, `out` has one. The launch has one block of 256 threads.
    unsafe fn dot(a: &[f64], b: &[f64], out: &mut [f64], n: u32);

    /// `alpha = rr / pq; x += alpha p; r -= alpha q`.
    ///
    /// # Safety
    /// The vectors have at least `n` elements, the scalars have one.
    unsafe fn advance(
        p: &[f64], q: &[f64], rr: &[f64], pq: &[f64], x: &mut [f64], r: &mut [f64], n: u32,
    );

    /// `beta = next_rr / rr; p = r + beta p`.
    ///
    /// # Safety
    /// The vectors have at least `n` elements, the scalars have one.
    unsafe fn turn(r: &[f64], next_rr: &[f64], rr: &[f64], p: &mut [f64], n: u32);
}

/// The result of [`solve`].
#[derive(Debug)]
pub struct Solution {
    /// The unknowns, row by row.
    pub x: Vec<f64>,
    /// The iterations, a multiple of [`STEPS`].
    pub iterations: usize,
    /// The length of `b - A x`, as the recurrence of the method has it.
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
/// Solves `A x = b` for the negative 5-point Laplacian `A` of a square of `side` by `side` points. Ends when the residual
/// is at most `tolerance`, or after `most` iterations.
///
/// # Errors
/// When it is run: [`Error::OutOfRange`](cuda_async::Error::OutOfRange) if `b` has other than `side * side` elements.
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
        if b.len() != n {
            let detail = format!("{} elements for {side} x {side} points", b.len());
            return Err(cuda_async::Error::OutOfRange { what: "b".into(), detail });
        }
        let vectors = zip!(zeros(n), h2d(b.clone()), h2d(b), uninitialised(n));
        let scalars = zip!(uninitialised(1), uninitialised(1), uninitialised(1));
        let ((x, r, p, q), (rr, next_rr, pq)) = cx.run(zip!(vectors, scalars)).await?;
        let mut state = Self { side, x, r, p, q, rr, next_rr, pq };
        // SAFETY: as in `step`.
        let dot = unsafe {
            kernels.dot(LaunchConfig::new(1, DOT), &state.r, &state.r, &mut state.rr, n as u32)
        };
        cx.run(dot).await?;
        Ok(state)
    }

    // ANCHOR: step
    /// Submits one iteration. It waits for nothing, because the scalars stay on the device.
    async fn step(&mut self, cx: &ScriptContext, kernels: &Kernels) -> cuda_async::Result<()> {
        let Self { side, x, r, p, q, rr, next_rr, pq } = self;
        let (plane, n) = (LaunchConfig::for_plane(*side, *side), *side * *side);
        let (line, block) = (LaunchConfig::for_num_elems(n), LaunchConfig::new(1, DOT));
        // SAFETY: `State::new` gives each vector `n = side * side` elements and each scalar one.
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
