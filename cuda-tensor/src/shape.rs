//! Shapes and layouts: the sizes of a tensor's dimensions ([`IntoShape`]), the offsets of its elements in its buffer
//! ([`Layout`]), and errors about them.

use std::ops::{Bound, Range, RangeBounds};

use cuda_core::{Error, ExpectedShape, Limit, MemoryConflict, Quantity, Result};
use smallvec::SmallVec;

/// The maximum number of dimensions of a tensor.
pub const MAX_RANK: usize = 8;

/// One number for each dimension.
pub(crate) type Dims = SmallVec<[usize; 4]>;

/// The sizes of a tensor's dimensions, outermost first: `5`, `[2, 3]`, a slice or a vector. `()` is the shape of a
/// single element.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a shape",
    note = "a shape is a `usize`, an array, slice or vector of `usize`, or `()`: write `[2, 3]`, and `n as usize`"
)]
pub trait IntoShape: Send {
    /// Returns the sizes.
    fn dims(&self) -> &[usize];
}

impl IntoShape for () {
    fn dims(&self) -> &[usize] {
        &[]
    }
}

impl IntoShape for usize {
    fn dims(&self) -> &[usize] {
        std::slice::from_ref(self)
    }
}

macro_rules! shapes {
    ($([$($generics:tt)*] $shape:ty;)*) => {$(
        impl<$($generics)*> IntoShape for $shape {
            fn dims(&self) -> &[usize] {
                &self[..]
            }
        }
    )*};
}

shapes! {
    [const N: usize] [usize; N];
    [const N: usize] &[usize; N];
    [] &[usize];
    [] Vec<usize>;
    [] &Vec<usize>;
}

/// Returns the number of elements of a shape.
///
/// # Errors
/// [`Error::OutOfRange`](cuda_core::Error::OutOfRange) if there are too many dimensions,
/// [`Error::Shape`](cuda_core::Error::Shape) if there are too many elements.
pub(crate) fn len_of(dims: &[usize]) -> Result<usize> {
    let limit = Limit::AtMost(MAX_RANK as u64);
    limit.check("a tensor", Quantity::Dimensions, dims.len() as u64)?;
    // Zeros do not hide an overflow of the other dimensions: strides are products of them.
    let nonzero = dims.iter().filter(|size| **size > 0);
    let product = nonzero.copied().try_fold(1usize, usize::checked_mul);
    match product.filter(|len| *len <= isize::MAX as usize) {
        Some(len) => Ok(if dims.contains(&0) { 0 } else { len }),
        None => {
            let form = "have at most 2^63 - 1 elements; use smaller dimensions";
            Err(shape_error(dims, ExpectedShape::Form(form)))
        }
    }
}

/// The shape of a tensor, and the offsets of its elements in the buffer. Element `[i, j, ..]` is at `offset + i *
/// strides[0] + j * strides[1] + ..`. A dimension with a stride of 0 is broadcast: all its indices are the same
/// element.
///
/// Every offset is inside the buffer: the first layout of a buffer is contiguous or spans the whole buffer, and the
/// layout of a view has no other offsets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    shape: Dims,
    strides: Dims,
    offset: usize,
}

impl Layout {
    /// Returns the layout of a new tensor, which is contiguous: in row-major order without gaps.
    pub(crate) fn contiguous(shape: impl IntoShape) -> Result<Self> {
        let dims = shape.dims();
        len_of(dims)?;
        Ok(Self { shape: dims.into(), strides: row_major(dims), offset: 0 })
    }

    /// Returns the layout of foreign memory with these strides, in elements. Its offset is 0.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] or [`Error::Shape`] if there are too many dimensions or elements. [`Error::Misuse`] if the
    /// strides overlap: two indices have the same offset. Strides of 0 may overlap.
    #[cfg(any(feature = "dlpack", feature = "candle-cuda"))]
    pub(crate) fn strided(shape: &[usize], strides: &[usize]) -> Result<Self> {
        if len_of(shape)? == 0 {
            return Self::contiguous(shape);
        }
        let used = |(size, stride): (&usize, &usize)| if *size == 1 { 0 } else { *stride };
        let strides: Dims = shape.iter().zip(strides).map(used).collect();
        let mut dims: Vec<_> =
            strides.iter().zip(shape).filter(|(stride, _)| **stride > 0).collect();
        dims.sort_unstable();
        // The largest offset of the dimensions so far. The next stride must be larger, so that all offsets stay
        // distinct.
        let mut last = 0usize;
        for (stride, size) in dims {
            let next = stride.checked_mul(size - 1).and_then(|far| far.checked_add(last));
            match next.filter(|next| *stride > last && *next < isize::MAX as usize) {
                Some(next) => last = next,
                None => {
                    let strides = &strides[..];
                    let tensor = format!("a tensor of shape {shape:?} with strides {strides:?}");
                    return Err(Error::memory(tensor, cuda_core::MemoryConflict::Overlapping));
                }
            }
        }
        Ok(Self { shape: shape.into(), strides, offset: 0 })
    }

    /// Returns the sizes of the dimensions, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns the strides: for each dimension, the distance between neighboring elements, in elements.
    pub fn strides(&self) -> &[usize] {
        &self.strides
    }

    /// Returns the index of the first element in the buffer.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Returns whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }

    /// Returns whether the layout is contiguous: in row-major order without gaps.
    pub fn is_contiguous(&self) -> bool {
        let mut expected = 1;
        self.is_empty()
            || self.shape.iter().zip(&self.strides).rev().all(|(size, stride)| {
                let fits = *size == 1 || *stride == expected;
                expected *= size;
                fits
            })
    }

    /// Returns whether two indices have the same offset, as after a broadcast.
    pub(crate) fn has_overlap(&self) -> bool {
        // Only a stride of 0 makes elements of a view overlap.
        self.shape.iter().zip(&self.strides).any(|(size, stride)| *size > 1 && *stride == 0)
    }

    /// Returns the range of the buffer from the first to the last element.
    pub(crate) fn span(&self) -> Range<usize> {
        if self.is_empty() {
            return self.offset..self.offset;
        }
        let last: usize =
            self.shape.iter().zip(&self.strides).map(|(size, stride)| (size - 1) * stride).sum();
        self.offset..self.offset + last + 1
    }

    /// Returns the size of a dimension.
    pub(crate) fn size(&self, dim: usize) -> Result<usize> {
        let limit = Limit::Below(self.shape.len() as u64);
        let none = || view_error(&self.shape, Quantity::Dimension, dim, limit);
        self.shape.get(dim).copied().ok_or_else(none)
    }

    /// Checks that there are as many elements as the shape has.
    pub(crate) fn check_len(&self, len: usize) -> Result<()> {
        let limit = Limit::Exactly(self.len() as u64);
        if limit.allows(len as u64) {
            return Ok(());
        }
        Err(view_error(&self.shape, Quantity::Elements, len, limit))
    }

    /// Returns the layout of the same elements, in the same order, with another shape.
    pub(crate) fn reshape(&self, shape: impl IntoShape) -> Result<Self> {
        let dims = shape.dims();
        if self.len() != len_of(dims)? {
            return Err(shape_error(&self.shape, ExpectedShape::ElementsOf(dims.into())));
        }
        if self.is_contiguous() {
            return Ok(Self { shape: dims.into(), strides: row_major(dims), offset: self.offset });
        }
        let strides = self
            .reshaped_strides(dims)
            .ok_or_else(|| shape_error(&self.shape, ExpectedShape::ViewAs(dims.into())))?;
        Ok(Self { shape: dims.into(), strides, offset: self.offset })
    }

    /// Returns the strides with which `dims` has the same offsets, if there are any. Merges dimensions that are
    /// contiguous with each other, and splits the result into `dims`.
    fn reshaped_strides(&self, dims: &[usize]) -> Option<Dims> {
        let mut blocks = merge_dims(&self.shape, [&self.strides]).into_iter().rev();
        let (mut left, mut stride) = (1, 1);
        let mut strides = Dims::from_elem(0, dims.len());
        for (place, size) in dims.iter().enumerate().rev().filter(|(_, size)| **size > 1) {
            if left == 1 {
                let (size, [of_block]) = blocks.next()?;
                (left, stride) = (size, of_block);
            }
            if left % size != 0 {
                return None;
            }
            strides[place] = stride;
            (left, stride) = (left / size, stride * size);
        }
        Some(strides)
    }

    /// Returns the layout of a part of dimension `dim`.
    pub(crate) fn slice(&self, dim: usize, range: impl RangeBounds<usize>) -> Result<Self> {
        let size = self.size(dim)?;
        let past = |bound: usize| bound.checked_add(1);
        let start = match range.start_bound() {
            Bound::Included(start) => Some(*start),
            Bound::Excluded(start) => past(*start),
            Bound::Unbounded => Some(0),
        };
        let end = match range.end_bound() {
            Bound::Included(end) => past(*end),
            Bound::Excluded(end) => Some(*end),
            Bound::Unbounded => Some(size),
        };
        match (start, end) {
            (Some(start), Some(end)) if start <= end && end <= size => {
                let mut part = self.clone();
                part.shape[dim] = end - start;
                // The start of an empty part may be past the last element.
                part.offset += if part.is_empty() { 0 } else { start * self.strides[dim] };
                Ok(part)
            }
            _ => {
                let (start, end) = (start.unwrap_or(usize::MAX), end.unwrap_or(usize::MAX));
                let (quantity, given, most) = if end > size {
                    (Quantity::End, end, size)
                } else {
                    (Quantity::Start, start, end)
                };
                Err(view_error(&self.shape, quantity, given, Limit::AtMost(most as u64)))
            }
        }
    }

    /// Returns the layout with its dimensions in another order.
    pub(crate) fn permute(&self, order: &[usize]) -> Result<Self> {
        let rank = self.shape.len();
        let each_once = (0..rank).all(|dim| order.contains(&dim));
        if order.len() != rank || !each_once {
            return Err(shape_error(&self.shape, ExpectedShape::OrderedBy(order.into())));
        }
        let pick = |from: &Dims| order.iter().map(|dim| from[*dim]).collect();
        Ok(Self { shape: pick(&self.shape), strides: pick(&self.strides), offset: self.offset })
    }

    /// Returns the layout with dimensions `a` and `b` exchanged.
    pub(crate) fn transpose(&self, a: usize, b: usize) -> Result<Self> {
        self.size(a)?;
        self.size(b)?;
        let mut order: Dims = (0..self.shape.len()).collect();
        order.swap(a, b);
        self.permute(&order)
    }

    /// Returns the layout broadcast to a larger shape, by the rules of NumPy: dimensions are compared from the last to
    /// the first, and a missing one or one of size 1 is repeated.
    pub(crate) fn broadcast(&self, shape: &[usize]) -> Result<Self> {
        len_of(shape)?;
        let unfit = || shape_error(&self.shape, ExpectedShape::BroadcastTo(shape.into()));
        let missing = shape.len().checked_sub(self.shape.len()).ok_or_else(unfit)?;
        let mut strides = Dims::from_elem(0, shape.len());
        for (dim, (size, stride)) in self.shape.iter().zip(&self.strides).enumerate() {
            let target = shape[missing + dim];
            if *size == target {
                strides[missing + dim] = *stride;
            } else if *size != 1 {
                return Err(unfit());
            }
        }
        Ok(Self { shape: shape.into(), strides, offset: self.offset })
    }

    /// Returns the layout of one index of dimension `dim`, without that dimension.
    pub(crate) fn index(&self, dim: usize, index: usize) -> Result<Self> {
        let size = self.size(dim)?;
        if index >= size {
            let limit = Limit::Below(size as u64);
            return Err(view_error(&self.shape, Quantity::Index, index, limit));
        }
        self.slice(dim, index..=index)?.squeeze(dim)
    }

    /// Returns the layout without dimension `dim`, whose size must be 1.
    pub(crate) fn squeeze(&self, dim: usize) -> Result<Self> {
        let size = self.size(dim)?;
        if size != 1 {
            return Err(view_error(&self.shape, Quantity::Size, size, Limit::Exactly(1)));
        }
        let mut layout = self.clone();
        layout.shape.remove(dim);
        layout.strides.remove(dim);
        Ok(layout)
    }

    /// Returns the layout with a new dimension of size 1 before dimension `dim`.
    pub(crate) fn unsqueeze(&self, dim: usize) -> Result<Self> {
        let rank = self.shape.len();
        if dim > rank {
            let limit = Limit::AtMost(rank as u64);
            return Err(view_error(&self.shape, Quantity::Dimension, dim, limit));
        }
        let mut layout = self.clone();
        layout.shape.insert(dim, 1);
        layout.strides.insert(dim, 0);
        len_of(&layout.shape).map(|_| layout)
    }
}

/// Returns the shape to which two shapes are broadcast, by the rules of NumPy.
///
/// # Errors
/// [`Error::Shape`] if two sizes differ and neither is 1.
pub(crate) fn broadcast_shape(a: &[usize], b: &[usize]) -> Result<Dims> {
    let rank = a.len().max(b.len());
    let size = |shape: &[usize], dim: usize| {
        (dim + shape.len()).checked_sub(rank).map_or(1, |dim| shape[dim])
    };
    let common = (0..rank).map(|dim| match (size(a, dim), size(b, dim)) {
        (1, other) | (other, 1) => Some(other),
        (one, other) if one == other => Some(one),
        _ => None,
    });
    common
        .collect::<Option<Dims>>()
        .ok_or_else(|| shape_error(a, ExpectedShape::BroadcastWith(b.into())))
}

fn row_major(dims: &[usize]) -> Dims {
    let mut stride = 1;
    let mut strides: Dims = dims
        .iter()
        .rev()
        .map(|size| {
            let own = stride;
            stride *= (*size).max(1);
            own
        })
        .collect();
    strides.reverse();
    strides
}

/// Returns the sizes and strides of operands of one shape, without dimensions of size 1. Neighboring dimensions that
/// are contiguous with each other in every operand are merged into one.
pub(crate) fn merge_dims<const N: usize>(
    shape: &[usize],
    strides: [&[usize]; N],
) -> Vec<(usize, [usize; N])> {
    let mut all: Vec<(usize, [usize; N])> = Vec::with_capacity(shape.len());
    for (dim, size) in shape.iter().enumerate().filter(|(_, size)| **size != 1) {
        let own = strides.map(|strides| strides[dim]);
        match all.last_mut() {
            Some((outer, of_outer))
                if (0..N).all(|operand| of_outer[operand] == own[operand] * size) =>
            {
                *outer *= size;
                *of_outer = own;
            }
            _ => all.push((*size, own)),
        }
    }
    all
}

/// Returns the error for a number that does not fit a tensor of this shape.
#[cold]
fn view_error(shape: &[usize], quantity: Quantity, given: usize, limit: Limit) -> Error {
    Error::out_of_range(format!("a tensor of shape {shape:?}"), quantity, given as u64, limit)
}

/// Adds the name of the called operation to an error about shapes.
pub(crate) fn of_operation<T>(called: &'static str, checked: Result<T>) -> Result<T> {
    checked.map_err(|error| match error {
        Error::Shape { operation, given, expected } => {
            Error::Shape { operation: format!("`{called}` of {operation}").into(), given, expected }
        }
        Error::OutOfRange { object, quantity, given, limit } => {
            Error::out_of_range(format!("`{called}` of {object}"), quantity, given, limit)
        }
        error => error,
    })
}

/// Returns the error for a tensor of shape `given`.
#[cold]
pub(crate) fn shape_error(given: &[usize], expected: ExpectedShape) -> Error {
    Error::Shape { operation: "a tensor".into(), given: given.into(), expected }
}

/// Returns the error for a target of `operation` whose elements are the same memory.
#[cold]
pub(crate) fn broadcast_target(operation: &'static str) -> Error {
    Error::memory(format!("`{operation}` of a tensor"), MemoryConflict::Overlapping)
}

#[cfg(test)]
mod tests;
