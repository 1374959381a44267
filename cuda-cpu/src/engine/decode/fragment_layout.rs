//! Which elements of a matrix are in which registers of which lanes, for `wmma`.

use super::form::Form;
use crate::engine::exec::tensor::elements::{Elements, Linear};

/// A matrix that `wmma` knows.
pub(super) struct Matrix {
    which: char,
    shape: &'static str,
    /// The matrix lies in memory row by row.
    rows: bool,
    pub(super) bits: u32,
    pub(super) registers: usize,
}

/// What there is, without the layout: shape, type of A and B, of C.
const SHAPES: [(&str, &[&str], &[&str]); 7] = [
    ("m16n16k16", &["f16", "bf16", "s8", "u8"], &["f16", "f32", "s32"]),
    ("m8n32k16", &["f16", "bf16", "s8", "u8"], &["f16", "f32", "s32"]),
    ("m32n8k16", &["f16", "bf16", "s8", "u8"], &["f16", "f32", "s32"]),
    ("m16n16k8", &["tf32"], &["f32"]),
    ("m8n8k4", &["f64"], &["f64"]),
    ("m8n8k32", &["s4", "u4"], &["s32"]),
    ("m8n8k128", &["b1"], &["s32"]),
];

impl Matrix {
    /// The shape, layout and type that a form names.
    pub(super) fn take(form: &mut Form<'_>, which: char) -> Option<Self> {
        let rows = form.take_one(&["row", "col"])? == "row";
        let &(shape, factors, sums) = SHAPES.iter().find(|(shape, ..)| form.take(shape))?;
        let ty = form.take_one(if which == 'c' { sums } else { factors })?;
        let bits = match ty {
            "f64" => 64,
            "f16" | "bf16" => 16,
            "s8" | "u8" => 8,
            "s4" | "u4" => 4,
            "b1" => 1,
            _ => 32,
        };
        // Parts of bytes can only follow each other along a row of A or a column of B.
        if bits < 8 && rows != (which == 'a') {
            return None;
        }
        let mut matrix = Self { which, shape, rows, bits, registers: 0 };
        let (m, n) = matrix.size();
        let lane = if bits == 64 { 64 } else { 32 };
        matrix.registers = match (which, ty) {
            ('a' | 'b', "f16") => 8,
            _ => ((m * n * bits / 32).div_ceil(lane)) as usize,
        };
        Some(matrix)
    }

    /// Rows and columns.
    fn size(&self) -> (u32, u32) {
        let mut numbers = self.shape.split(['m', 'n', 'k']).skip(1).map(|n| n.parse().unwrap_or(0));
        let mut next = || numbers.next().unwrap_or(0);
        let (m, n, k) = (next(), next(), next());
        match self.which {
            'a' => (m, k),
            'b' => (k, n),
            _ => (m, n),
        }
    }

    /// Elements between the beginnings of its rows or columns in memory, where they follow each other.
    pub(super) fn default_stride(&self) -> u32 {
        let (rows, columns) = self.size();
        if self.rows { columns } else { rows }
    }

    /// Elements in a register.
    pub(super) fn per_register(&self) -> u32 {
        (32 / self.bits).max(1)
    }

    /// Row and column of element `index` of a register.
    fn place(&self, register: usize, index: u32) -> (Linear, Linear) {
        let register = register as u32;
        let (rows, columns) = self.size();
        if self.which == 'c' {
            return self.sum_place(register, index);
        }
        let (lines, depth) = if self.which == 'a' { (rows, columns) } else { (columns, rows) };
        let per = self.per_register();
        // Words of a line that each place in a group of lanes has: one or two.
        let words = depth / per / 4;
        // The one of `mma`'s operands with 16 lines, or the one with 8.
        let tall = lines % 16 == 0 && (self.which == 'a' || self.shape == "m8n32k16");
        let (line, word) = if tall {
            (8 * (register & 1) + 16 * (register / (2 * words)), (register % (2 * words)) >> 1)
        } else {
            (8 * (register / words), register % words)
        };
        let line = Linear { group: 1, place: 0, base: line % lines };
        let along = Linear { group: 0, place: per, base: 4 * per * word + index };
        if self.which == 'a' { (line, along) } else { (along, line) }
    }

    fn sum_place(&self, register: u32, index: u32) -> (Linear, Linear) {
        // Pairs of neighbours, in the order of `mma`; the second half beside or below the first.
        let (pair, index) =
            if self.bits == 16 { (register, index) } else { (register >> 1, register & 1) };
        let (line, along) = match self.shape {
            "m16n16k16" | "m16n16k8" => (8 * (pair & 1), 8 * (pair >> 1)),
            _ => (8 * pair, 0),
        };
        let line = Linear { group: 1, place: 0, base: line };
        let along = Linear { group: 0, place: 2, base: along + index };
        if self.shape == "m8n32k16" { (along, line) } else { (line, along) }
    }

    /// Where element `index` of a register is, in the terms of memory.
    pub(super) fn element(&self, register: usize, index: u32) -> Elements {
        let (row, column) = self.place(register, index);
        let (major, minor) = if self.rows { (row, column) } else { (column, row) };
        Elements { major, minor, bits: self.bits, bytes: self.bits / 8 }
    }

    /// Where those of a whole register are, if they follow each other.
    pub(super) fn whole(&self, register: usize) -> Elements {
        let bytes = (self.bits / 8).max(4);
        Elements { bytes, ..self.element(register, 0) }
    }

    /// The elements of a register follow each other in memory.
    pub(super) fn is_contiguous(&self) -> bool {
        let apart = |i: u32| self.element(0, i).minor.base - self.element(0, 0).minor.base;
        (0..self.per_register()).all(|i| apart(i) == i)
    }
}
