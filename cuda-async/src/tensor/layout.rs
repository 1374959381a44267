//! `Layout`: the places of a tensor's elements in its buffer.

use std::ops::{Bound, Range, RangeBounds};

use cuda_core::{Error, Result};

use crate::tensor::shape::{Dims, IntoShape, len_of};

/// The shape of a tensor, and the places of its elements in the buffer. Element `[i, j, ..]` is at
/// `offset + i * strides[0] + j * strides[1] + ..`. A stride of 0 repeats elements.
///
/// Every place is inside the buffer: a layout begins dense, and views only take places away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    shape: Dims,
    strides: Dims,
    offset: usize,
}

fn wrong(detail: String) -> Error {
    Error::OutOfRange { what: "a view of a tensor".into(), detail }
}

impl Layout {
    /// The layout of a new tensor: row-major, without gaps.
    pub(super) fn dense(shape: impl IntoShape) -> Result<Self> {
        let dims = shape.dims();
        len_of(dims)?;
        Ok(Self { shape: dims.into(), strides: row_major(dims), offset: 0 })
    }

    /// Returns the sizes of the dimensions, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns the distances of neighbours along each dimension, in elements.
    pub fn strides(&self) -> &[usize] {
        &self.strides
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Returns whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }

    /// Returns whether the elements lie in row-major order without gaps.
    pub fn is_dense(&self) -> bool {
        let mut expected = 1;
        self.is_empty()
            || self.shape.iter().zip(&self.strides).rev().all(|(size, stride)| {
                let fits = *size == 1 || *stride == expected;
                expected *= size;
                fits
            })
    }

    /// Returns whether two indices mean the same element, as after a broadcast.
    pub(super) fn repeats(&self) -> bool {
        // Views give no overlap but that of a stride of 0.
        self.shape.iter().zip(&self.strides).any(|(size, stride)| *size > 1 && *stride == 0)
    }

    /// The part of the buffer from the first to the last element.
    pub(super) fn span(&self) -> Range<usize> {
        if self.is_empty() {
            return self.offset..self.offset;
        }
        let last: usize =
            self.shape.iter().zip(&self.strides).map(|(size, stride)| (size - 1) * stride).sum();
        self.offset..self.offset + last + 1
    }

    /// The size of a dimension.
    pub(super) fn size(&self, dim: usize) -> Result<usize> {
        let rank = self.shape.len();
        let none = || {
            wrong(format!(
                "there is no dimension {dim} in the shape {:?}; dimensions are counted from 0 to {rank}, exclusive",
                &self.shape[..]
            ))
        };
        self.shape.get(dim).copied().ok_or_else(none)
    }

    /// The same elements with other dimensions.
    pub(super) fn reshape(&self, shape: impl IntoShape) -> Result<Self> {
        let dims = shape.dims();
        let (here, there) = (self.len(), len_of(dims)?);
        if here != there {
            return Err(wrong(format!(
                "the shape {:?} of {here} elements cannot become {dims:?}, which has {there}",
                &self.shape[..]
            )));
        }
        if self.is_dense() {
            return Ok(Self { shape: dims.into(), strides: row_major(dims), offset: self.offset });
        }
        let strides = self.strides_for(dims).ok_or_else(|| {
            wrong(format!(
                "the elements of a view of shape {:?} with strides {:?} have no places as {dims:?}; copy them first, with `contiguous()`",
                &self.shape[..],
                &self.strides[..]
            ))
        })?;
        Ok(Self { shape: dims.into(), strides, offset: self.offset })
    }

    /// The strides of `dims` over the same places, if there are any. Dimensions that lie together are cut anew.
    fn strides_for(&self, dims: &[usize]) -> Option<Dims> {
        let mut blocks = merged(&self.shape, [&self.strides]).into_iter().rev();
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

    /// The part of a dimension.
    pub(super) fn slice(&self, dim: usize, range: impl RangeBounds<usize>) -> Result<Self> {
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
                // An empty part may begin behind the last element.
                part.offset += if part.is_empty() { 0 } else { start * self.strides[dim] };
                Ok(part)
            }
            _ => Err(wrong(format!(
                "the range {:?} to {:?} is not inside dimension {dim}, which has {size}",
                range.start_bound(),
                range.end_bound()
            ))),
        }
    }

    /// The dimensions in another order.
    pub(super) fn permute(&self, order: &[usize]) -> Result<Self> {
        let rank = self.shape.len();
        let each_once = (0..rank).all(|dim| order.contains(&dim));
        if order.len() != rank || !each_once {
            return Err(wrong(format!("{order:?} is no order of {rank} dimensions")));
        }
        let pick = |from: &Dims| order.iter().map(|dim| from[*dim]).collect();
        Ok(Self { shape: pick(&self.shape), strides: pick(&self.strides), offset: self.offset })
    }

    /// The layout with dimensions `a` and `b` exchanged.
    pub(super) fn transpose(&self, a: usize, b: usize) -> Result<Self> {
        self.size(a)?;
        self.size(b)?;
        let mut order: Dims = (0..self.shape.len()).collect();
        order.swap(a, b);
        self.permute(&order)
    }

    /// The layout with elements repeated to a larger shape, by the rules of NumPy: dimensions are compared from the last
    /// to the first, and a missing one or one of size 1 repeats.
    pub(super) fn broadcast(&self, shape: &[usize]) -> Result<Self> {
        len_of(shape)?;
        let wrong = || {
            wrong(format!(
                "the shape {:?} does not repeat to {shape:?}: each of its sizes, from the last on, is 1 or the same",
                &self.shape[..]
            ))
        };
        let missing = shape.len().checked_sub(self.shape.len()).ok_or_else(wrong)?;
        let mut strides = Dims::from_elem(0, shape.len());
        for (dim, (size, stride)) in self.shape.iter().zip(&self.strides).enumerate() {
            let target = shape[missing + dim];
            if *size == target {
                strides[missing + dim] = *stride;
            } else if *size != 1 {
                return Err(wrong());
            }
        }
        Ok(Self { shape: shape.into(), strides, offset: self.offset })
    }

    /// The layout without dimension `dim`, of size 1.
    pub(super) fn squeeze(&self, dim: usize) -> Result<Self> {
        let size = self.size(dim)?;
        if size != 1 {
            return Err(wrong(format!("dimension {dim} has {size}, and only one of 1 can go")));
        }
        let mut layout = self.clone();
        layout.shape.remove(dim);
        layout.strides.remove(dim);
        Ok(layout)
    }

    /// The layout with a dimension of size 1 before dimension `dim`.
    pub(super) fn unsqueeze(&self, dim: usize) -> Result<Self> {
        let rank = self.shape.len();
        if dim > rank {
            return Err(wrong(format!(
                "a tensor of {rank} dimensions gets a new one at 0 to {rank}, not at {dim}"
            )));
        }
        let mut layout = self.clone();
        layout.shape.insert(dim, 1);
        layout.strides.insert(dim, 0);
        len_of(&layout.shape).map(|_| layout)
    }
}

/// The shape to which two shapes are repeated together, by the rules of NumPy.
///
/// # Errors
/// [`Error::OutOfRange`] if two sizes differ and neither is 1.
pub(super) fn common_shape(a: &[usize], b: &[usize]) -> Result<Dims> {
    let rank = a.len().max(b.len());
    let size = |shape: &[usize], dim: usize| {
        (dim + shape.len()).checked_sub(rank).map_or(1, |dim| shape[dim])
    };
    let common = (0..rank).map(|dim| match (size(a, dim), size(b, dim)) {
        (1, other) | (other, 1) => Some(other),
        (one, other) if one == other => Some(one),
        _ => None,
    });
    common.collect::<Option<Dims>>().ok_or_else(|| {
        wrong(format!("the shapes {a:?} and {b:?} do not go together: from the last on, two sizes are the same, or one is 1"))
    })
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

/// The dimensions of operands of one shape, without those of size 1, and with those joined that lie together in every
/// operand.
pub(super) fn merged<const N: usize>(
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The places of all elements in row-major order of the indices.
    fn places(layout: &Layout) -> Vec<usize> {
        let index = |mut n: usize| {
            let mut place = layout.offset;
            for (size, stride) in layout.shape.iter().zip(&layout.strides).rev() {
                place += n % size * stride;
                n /= size;
            }
            place
        };
        (0..layout.len()).map(index).collect()
    }

    #[derive(Debug, Clone)]
    enum View {
        Slice(usize, usize, usize),
        Transpose(usize, usize),
        Squeeze(usize),
        Unsqueeze(usize),
        Broadcast(usize),
    }

    fn view() -> impl Strategy<Value = View> {
        prop_oneof![
            (0..4usize, 0..5usize, 0..5usize).prop_map(|(dim, a, b)| View::Slice(dim, a, b)),
            (0..4usize, 0..4usize).prop_map(|(a, b)| View::Transpose(a, b)),
            (0..4usize).prop_map(View::Squeeze),
            (0..4usize).prop_map(View::Unsqueeze),
            (0..4usize).prop_map(View::Broadcast),
        ]
    }

    fn apply(layout: &Layout, view: &View) -> Result<Layout> {
        match *view {
            View::Slice(dim, a, b) => layout.slice(dim, a..b),
            View::Transpose(a, b) => layout.transpose(a, b),
            View::Squeeze(dim) => layout.squeeze(dim),
            View::Unsqueeze(dim) => layout.unsqueeze(dim),
            View::Broadcast(dim) => {
                let mut shape = layout.shape.to_vec();
                *shape.get_mut(dim).ok_or_else(|| wrong(String::new()))? *= 3;
                layout.broadcast(&shape)
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn views_stay_inside_and_reshapes_keep_the_order(
            shape in prop::collection::vec(0..5usize, 0..4),
            views in prop::collection::vec(view(), 0..5),
            cut in 0..6usize,
        ) {
            let dense = Layout::dense(&shape).unwrap();
            let mut layout = dense.clone();
            for view in &views {
                layout = apply(&layout, view).unwrap_or(layout);
            }
            let all = places(&layout);
            prop_assert!(layout.span().end <= dense.len().max(layout.offset));
            prop_assert!(all.iter().all(|place| layout.span().contains(place)));
            prop_assert_eq!(layout.is_dense(), all.iter().enumerate().all(|(i, place)| *place == layout.offset + i));
            let mut distinct = all.clone();
            distinct.sort_unstable();
            distinct.dedup();
            prop_assert_eq!(layout.repeats() && !layout.is_empty(), distinct.len() < all.len());
            let flat = layout.reshape(layout.len());
            if let Ok(flat) = &flat {
                prop_assert_eq!(places(flat), all.clone());
            } else {
                prop_assert!(!layout.is_dense());
            }
            let divisor = (1..=cut + 1).rev().find(|size| layout.len().is_multiple_of(*size)).unwrap_or(1);
            if let Ok(cut) = layout.reshape([divisor, layout.len() / divisor]) {
                prop_assert_eq!(places(&cut), all);
            }
        }
    }

    #[test]
    fn shapes_repeat_together() {
        assert_eq!(&common_shape(&[3, 1], &[4]).unwrap()[..], [3, 4]);
        assert_eq!(&common_shape(&[], &[2, 0]).unwrap()[..], [2, 0]);
        assert!(common_shape(&[3], &[4]).is_err());
    }

    #[test]
    fn mistakes_are_errors() {
        let layout = Layout::dense([2, 3]).unwrap();
        assert!(layout.reshape([4]).is_err());
        assert!(layout.transpose(0, 1).unwrap().reshape(6).is_err());
        assert!(layout.slice(1, 2..4).is_err());
        assert!(layout.slice(2, ..).is_err());
        assert!(layout.slice(0, ..=usize::MAX).is_err());
        assert!(layout.permute(&[0, 0]).is_err());
        assert!(layout.squeeze(0).is_err());
        assert!(layout.unsqueeze(3).is_err());
        assert!(layout.broadcast(&[2]).is_err());
    }
}
