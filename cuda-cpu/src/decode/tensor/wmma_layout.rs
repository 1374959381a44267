//! Layout of `wmma` fragments: maps registers and lanes to matrix elements.

use cuda_ptx::{ScalarType as T, Word as W};

use crate::decode::form::Form;
use crate::exec::tensor::wmma_addresses::{Elements, Linear};

/// A matrix operand of `wmma`.
pub(super) struct Matrix {
    which: W,
    shape: W,
    /// Number of rows and columns.
    size: (u32, u32),
    /// Whether the matrix is stored in row-major order.
    rows: bool,
    pub(super) bits: u32,
    pub(in crate::decode) registers: usize,
}

/// A shape, its sizes m, n and k, the types of A and B, and the types of C and D.
type Shape = (W, [u32; 3], &'static [T], &'static [T]);

/// Supported shapes.
const SHAPES: [Shape; 7] = [
    (W::M16n16k16, [16, 16, 16], &[T::F16, T::BF16, T::S8, T::U8], &[T::F16, T::F32, T::S32]),
    (W::M8n32k16, [8, 32, 16], &[T::F16, T::BF16, T::S8, T::U8], &[T::F16, T::F32, T::S32]),
    (W::M32n8k16, [32, 8, 16], &[T::F16, T::BF16, T::S8, T::U8], &[T::F16, T::F32, T::S32]),
    (W::M16n16k8, [16, 16, 8], &[T::TF32], &[T::F32]),
    (W::M8n8k4, [8, 8, 4], &[T::F64], &[T::F64]),
    (W::M8n8k32, [8, 8, 32], &[T::S4, T::U4], &[T::S32]),
    (W::M8n8k128, [8, 8, 128], &[T::B1], &[T::S32]),
];

impl Matrix {
    /// Takes the shape, layout and type from a form.
    pub(super) fn take(form: &mut Form<'_>, which: W) -> Option<Self> {
        let rows = form.take_one(&[W::Row, W::Col])? == W::Row;
        let &(shape, [m, n, k], factors, sums) =
            SHAPES.iter().find(|(shape, ..)| form.take(*shape))?;
        let ty = form.ty_of(if which == W::C { sums } else { factors })?;
        let bits = match ty {
            T::F64 => 64,
            T::F16 | T::BF16 => 16,
            T::S8 | T::U8 => 8,
            T::S4 | T::U4 => 4,
            T::B1 => 1,
            _ => 32,
        };
        // Elements smaller than a byte are contiguous only along a row of A or a column of B.
        if bits < 8 && rows != (which == W::A) {
            return None;
        }
        let size = match which {
            W::A => (m, k),
            W::B => (k, n),
            _ => (m, n),
        };
        let mut matrix = Self { which, shape, size, rows, bits, registers: 0 };
        let lane = if bits == 64 { 64 } else { 32 };
        matrix.registers = match (which, ty) {
            (W::A | W::B, T::F16) => 8,
            _ => ((size.0 * size.1 * bits / 32).div_ceil(lane)) as usize,
        };
        Some(matrix)
    }

    /// Returns the default stride: the number of elements between the starts of contiguous rows or columns.
    pub(super) fn default_stride(&self) -> u32 {
        let (rows, columns) = self.size;
        if self.rows { columns } else { rows }
    }

    /// Returns the number of elements in a register.
    pub(super) fn per_register(&self) -> u32 {
        (32 / self.bits).max(1)
    }

    /// Returns the row and column of element `index` of a register.
    fn place(&self, register: usize, index: u32) -> (Linear, Linear) {
        let register = register as u32;
        let (rows, columns) = self.size;
        if self.which == W::C {
            return self.sum_place(register, index);
        }
        let (lines, depth) = if self.which == W::A { (rows, columns) } else { (columns, rows) };
        let per = self.per_register();
        // Number of words of a line that each lane of a lane group holds: one or two.
        let words = depth / per / 4;
        // The fragment with 16 lines is laid out as the A operand of `mma`, the other one, with 8 lines, as B.
        let tall = lines % 16 == 0 && (self.which == W::A || self.shape == W::M8n32k16);
        let (line, word) = if tall {
            (8 * (register & 1) + 16 * (register / (2 * words)), (register % (2 * words)) >> 1)
        } else {
            (8 * (register / words), register % words)
        };
        let line = Linear { group: 1, place: 0, base: line % lines };
        let along = Linear { group: 0, place: per, base: 4 * per * word + index };
        if self.which == W::A { (line, along) } else { (along, line) }
    }

    fn sum_place(&self, register: u32, index: u32) -> (Linear, Linear) {
        // Pairs of adjacent elements, in the order of `mma`. The second half is beside or below the first.
        let (pair, index) =
            if self.bits == 16 { (register, index) } else { (register >> 1, register & 1) };
        let (line, along) = match self.shape {
            W::M16n16k16 | W::M16n16k8 => (8 * (pair & 1), 8 * (pair >> 1)),
            _ => (8 * pair, 0),
        };
        let line = Linear { group: 1, place: 0, base: line };
        let along = Linear { group: 0, place: 2, base: along + index };
        if self.shape == W::M8n32k16 { (along, line) } else { (line, along) }
    }

    /// Returns the position in memory of element `index` of a register.
    pub(super) fn element(&self, register: usize, index: u32) -> Elements {
        let (row, column) = self.place(register, index);
        let (major, minor) = if self.rows { (row, column) } else { (column, row) };
        Elements { major, minor, bits: self.bits, bytes: self.bits / 8 }
    }

    /// Returns the position in memory of a whole register whose elements are contiguous.
    pub(super) fn whole(&self, register: usize) -> Elements {
        let bytes = (self.bits / 8).max(4);
        Elements { bytes, ..self.element(register, 0) }
    }

    /// Returns whether the elements of a register are contiguous in memory.
    pub(super) fn is_contiguous(&self) -> bool {
        let apart = |i: u32| self.element(0, i).minor.base - self.element(0, 0).minor.base;
        (0..self.per_register()).all(|i| apart(i) == i)
    }
}
