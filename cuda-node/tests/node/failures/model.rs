//! The values that the units of a buffer may contain.

/// The units of each buffer.
pub const UNITS: usize = 4;

/// The contents of a unit: element `i` is `first + step * i`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Value {
    pub first: u32,
    pub step: u32,
}

/// The factor of the kernel `mad`. A launch that runs twice, or not at all, gives another value.
pub const FACTOR: u32 = 3;

impl Value {
    pub fn mad(self, add: u32) -> Self {
        let first = self.first.wrapping_mul(FACTOR).wrapping_add(add);
        Self { first, step: self.step.wrapping_mul(FACTOR) }
    }

    pub fn elements(self, count: usize) -> impl Iterator<Item = u32> {
        (0..count as u32).map(move |i| self.first.wrapping_add(self.step.wrapping_mul(i)))
    }

    /// The value of these elements, if they are one.
    pub fn of(elements: &[u32]) -> Option<Self> {
        let step = elements[1].wrapping_sub(elements[0]);
        let value = Self { first: elements[0], step };
        value.elements(elements.len()).eq(elements.iter().copied()).then_some(value)
    }
}

/// The possible contents of a unit.
#[derive(Debug, Clone)]
pub struct Cell {
    /// The values that a read may give. If there are none, each read fails.
    pub values: Vec<Value>,
    /// Whether a read may fail.
    pub may_be_lost: bool,
    /// Whether the last write is known to be complete, so that later faults leave it alone.
    pub is_settled: bool,
}

impl Cell {
    pub fn written(value: Value) -> Self {
        Self { values: vec![value], may_be_lost: false, is_settled: false }
    }

    pub fn lost() -> Self {
        Self { values: Vec::new(), may_be_lost: true, is_settled: false }
    }

    /// Returns the cell of a unit that has this cell or `other`, because an operation may have been skipped.
    pub fn or(mut self, other: &Cell) -> Self {
        let new = other.values.iter().filter(|value| !self.values.contains(value));
        let new: Vec<_> = new.copied().collect();
        self.values.extend(new);
        self.may_be_lost |= other.may_be_lost;
        self.is_settled &= other.is_settled;
        self
    }
}

/// Whether a use of these cells may fail, and whether it has to.
pub fn fails(cells: &[Cell]) -> (bool, bool) {
    let may = cells.iter().any(|cell| cell.may_be_lost);
    (may, cells.iter().any(|cell| cell.values.is_empty()))
}
