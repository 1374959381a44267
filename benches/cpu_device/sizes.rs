//! Problem sizes of the kernels: full sizes for the comparison with plain Rust, small sizes for the comparison with
//! interpreters that are thousands of times slower. Both peers, `benches/peers/ptoxide` and
//! `benches/peers/numba_simulator`, take their sizes from this file.

pub struct Sizes {
    /// Width, height, iterations at most.
    pub mandelbrot: [u32; 3],
    /// Rows and columns of each matrix.
    pub matmul: u32,
    pub vecadd: u32,
    /// Rows and columns.
    pub transpose: u32,
    /// Elements, blocks.
    pub reduce: [u32; 2],
    /// Bytes, blocks.
    pub histogram: [u32; 2],
    /// Rows and columns.
    pub stencil: u32,
    /// Rows, columns.
    pub softmax: [u32; 2],
    pub nbody: u32,
    pub black_scholes: u32,
    /// States, rounds over each.
    pub pcg: [u32; 2],
}

pub const FULL: Sizes = Sizes {
    mandelbrot: [1024, 768, 256],
    matmul: 512,
    vecadd: 4 << 20,
    transpose: 2048,
    reduce: [4 << 20, 64],
    histogram: [4 << 20, 64],
    stencil: 2048,
    softmax: [1024, 1024],
    nbody: 4096,
    black_scholes: 1 << 20,
    pcg: [1 << 20, 32],
};

/// Small sizes. Each kernel takes a few seconds in the slowest peer, and at least ten times as long as a launch here.
/// `benches/peers/numba_simulator` parses these numbers.
pub const SMALL: Sizes = Sizes {
    mandelbrot: [128, 96, 256],
    matmul: 64,
    vecadd: 16_384,
    transpose: 128,
    reduce: [65_536, 16],
    histogram: [65_536, 16],
    stencil: 128,
    softmax: [16, 1024],
    nbody: 1024,
    black_scholes: 16_384,
    pcg: [16_384, 32],
};

impl Sizes {
    /// The size of a kernel's work as the tables print it.
    pub fn text(&self, kernel: &str) -> String {
        let square = |n| format!("{n} x {n}");
        let in_blocks = |[n, blocks]: [u32; 2]| format!("{n} in {blocks} blocks");
        match kernel {
            "mandelbrot" => {
                let [width, height, limit] = self.mandelbrot;
                format!("{width} x {height} x {limit}")
            }
            "matmul_naive" | "matmul_tiled" => square(self.matmul),
            "vecadd" => self.vecadd.to_string(),
            "transpose" => square(self.transpose),
            "reduce" => in_blocks(self.reduce),
            "histogram" => in_blocks(self.histogram),
            "stencil" => square(self.stencil),
            "softmax" => format!("{} x {}", self.softmax[0], self.softmax[1]),
            "nbody" => self.nbody.to_string(),
            "black_scholes" => self.black_scholes.to_string(),
            "pcg" => format!("{} x {}", self.pcg[0], self.pcg[1]),
            _ => String::new(),
        }
    }
}
