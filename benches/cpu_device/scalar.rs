//! The kernels' work in plain Rust on one core: ordinary loops over slices, without threads or explicit vectors.

pub fn vecadd(a: &[f32], b: &[f32], out: &mut [f32]) {
    for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
        *out = a + b;
    }
}

pub fn transpose(x: &[f32], out: &mut [f32], width: usize) {
    let height = x.len() / width;
    for (row, values) in x.chunks_exact(width).enumerate() {
        for (column, value) in values.iter().enumerate() {
            out[column * height + row] = *value;
        }
    }
}

/// Adds the terms in order, as the language defines a sum of floats.
pub fn sum(x: &[f32]) -> f32 {
    x.iter().sum()
}

pub fn histogram(x: &[u8], counts: &mut [u32]) {
    for &value in x {
        counts[usize::from(value)] += 1;
    }
}

pub fn stencil5(u: &[f32], out: &mut [f32], width: usize, center: f32, side: f32) {
    let height = u.len() / width;
    out.copy_from_slice(u);
    for y in 1..height - 1 {
        for x in 1..width - 1 {
            let here = y * width + x;
            let sides = u[here - width] + u[here + width] + u[here - 1] + u[here + 1];
            out[here] = center * u[here] + side * sides;
        }
    }
}

pub fn softmax(x: &[f32], y: &mut [f32], columns: usize) {
    for (x, y) in x.chunks_exact(columns).zip(y.chunks_exact_mut(columns)) {
        let largest = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let mut sum = 0.0;
        for (x, y) in x.iter().zip(&mut *y) {
            *y = (x - largest).exp();
            sum += *y;
        }
        y.iter_mut().for_each(|y| *y /= sum);
    }
}

/// Three loops, `a` is m x k, `b` is k x n.
pub fn matmul(a: &[f32], b: &[f32], c: &mut [f32], n: usize, k: usize) {
    for (a, c) in a.chunks_exact(k).zip(c.chunks_exact_mut(n)) {
        for (column, c) in c.iter_mut().enumerate() {
            let mut sum = 0.0;
            for (i, a) in a.iter().enumerate() {
                sum += a * b[i * n + column];
            }
            *c = sum;
        }
    }
}

pub fn mandelbrot(out: &mut [u32], width: usize, limit: u32) {
    let height = out.len() / width;
    for (y, row) in out.chunks_exact_mut(width).enumerate() {
        for (x, out) in row.iter_mut().enumerate() {
            let cx = x as f32 * 3.0 / width as f32 - 2.0;
            let cy = y as f32 * 2.0 / height as f32 - 1.0;
            let (mut zx, mut zy, mut i) = (0.0f32, 0.0f32, 0);
            while i < limit && zx * zx + zy * zy < 4.0 {
                let t = zx * zx - zy * zy + cx;
                zy = 2.0 * zx * zy + cy;
                zx = t;
                i += 1;
            }
            *out = i;
        }
    }
}

pub fn nbody(bodies: &[[f32; 4]], acceleration: &mut [[f32; 4]]) {
    for (me, out) in bodies.iter().zip(acceleration) {
        let mut a = [0.0; 3];
        for other in bodies {
            let d = [other[0] - me[0], other[1] - me[1], other[2] - me[2]];
            let square = d[0] * d[0] + d[1] * d[1] + d[2] * d[2] + 1e-3;
            let inverse = 1.0 / square.sqrt();
            let weight = other[3] * inverse * inverse * inverse;
            for (a, d) in a.iter_mut().zip(d) {
                *a += weight * d;
            }
        }
        *out = [a[0], a[1], a[2], 0.0];
    }
}

fn normal(x: f32) -> f32 {
    let k = 1.0 / (1.0 + 0.231_641_9 * x.abs());
    let poly = k
        * (0.319_381_53
            + k * (-0.356_563_78 + k * (1.781_477_9 + k * (-1.821_255_9 + k * 1.330_274_4))));
    let tail = 0.398_942_3 * (-0.5 * x * x).exp() * poly;
    if x > 0.0 { 1.0 - tail } else { tail }
}

pub fn black_scholes(spot: &[f32], strike: &[f32], years: &[f32], price: &mut [f32]) {
    let (rate, volatility) = (0.02f32, 0.3f32);
    for (((spot, strike), years), price) in spot.iter().zip(strike).zip(years).zip(price) {
        let spread = volatility * years.sqrt();
        let drift = (rate + 0.5 * volatility * volatility) * years;
        let d1 = ((spot / strike).ln() + drift) / spread;
        let d2 = d1 - spread;
        *price = spot * normal(d1) - strike * (-rate * years).exp() * normal(d2);
    }
}

pub fn pcg(x: &mut [u32], rounds: u32) {
    for state in x {
        for _ in 0..rounds {
            *state = state.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
            let word = ((*state >> ((*state >> 28) + 4)) ^ *state).wrapping_mul(277_803_737);
            *state = (word >> 22) ^ word;
        }
    }
}
