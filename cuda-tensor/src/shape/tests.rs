//! Tests of layouts.

use proptest::prelude::*;

use super::*;

/// Returns the offsets of all elements in row-major order of the indices.
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
            *shape.get_mut(dim).ok_or_else(|| shape_error(&[], ExpectedShape::Form("")))? *= 3;
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
        let contiguous = Layout::contiguous(&shape).unwrap();
        let mut layout = contiguous.clone();
        for view in &views {
            layout = apply(&layout, view).unwrap_or(layout);
        }
        let all = places(&layout);
        prop_assert!(layout.span().end <= contiguous.len().max(layout.offset));
        prop_assert!(all.iter().all(|place| layout.span().contains(place)));
        prop_assert_eq!(layout.is_contiguous(), all.iter().enumerate().all(|(i, place)| *place == layout.offset + i));
        let mut distinct = all.clone();
        distinct.sort_unstable();
        distinct.dedup();
        prop_assert_eq!(layout.has_overlap() && !layout.is_empty(), distinct.len() < all.len());
        let flat = layout.reshape(layout.len());
        if let Ok(flat) = &flat {
            prop_assert_eq!(places(flat), all.clone());
        } else {
            prop_assert!(!layout.is_contiguous());
        }
        let divisor = (1..=cut + 1).rev().find(|size| layout.len().is_multiple_of(*size)).unwrap_or(1);
        if let Ok(cut) = layout.reshape([divisor, layout.len() / divisor]) {
            prop_assert_eq!(places(&cut), all);
        }
    }
}

#[cfg(feature = "dlpack")]
proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn strided_layouts_have_distinct_offsets_and_take_every_view(
        dims in prop::collection::vec((0..5usize, 0..20usize), 0..4),
        views in prop::collection::vec(view(), 0..5),
    ) {
        let (shape, strides): (Vec<_>, Vec<_>) = dims.into_iter().unzip();
        if let Ok(layout) = Layout::strided(&shape, &strides) {
            let all = places(&layout);
            prop_assert!(all.iter().all(|place| layout.span().contains(place)));
            let mut distinct = all.clone();
            distinct.sort_unstable();
            distinct.dedup();
            prop_assert_eq!(layout.has_overlap() && !layout.is_empty(), distinct.len() < all.len());
        }
        let mut layout = Layout::contiguous(&shape).unwrap();
        for view in &views {
            layout = apply(&layout, view).unwrap_or(layout);
        }
        let again = Layout::strided(layout.shape(), layout.strides()).unwrap();
        let begin = if layout.is_empty() { 0 } else { layout.offset() };
        let moved: Vec<_> = places(&again).iter().map(|place| place + begin).collect();
        prop_assert_eq!(moved, places(&layout));
    }
}

#[cfg(feature = "dlpack")]
#[test]
fn strides_that_overlap_or_overflow_are_errors() {
    for (shape, strides) in
        [([2, 3], [1, 1]), ([3, 2], [2, 4]), ([2, 2], [usize::MAX, 1]), ([3, 1], [usize::MAX, 0])]
    {
        let error = Layout::strided(&shape, &strides).unwrap_err();
        assert!(error.to_string().contains("are the same memory; copy it first"), "{error}");
    }
    assert!(Layout::strided(&[2, 3], &[1, 2]).is_ok());
}

#[test]
fn shapes_repeat_together() {
    assert_eq!(&broadcast_shape(&[3, 1], &[4]).unwrap()[..], [3, 4]);
    assert_eq!(&broadcast_shape(&[], &[2, 0]).unwrap()[..], [2, 0]);
    assert!(broadcast_shape(&[3], &[4]).is_err());
}

#[test]
fn mistakes_are_errors() {
    let layout = Layout::contiguous([2, 3]).unwrap();
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

#[test]
fn shapes_have_lengths_and_limits() {
    assert_eq!(len_of(().dims()).unwrap(), 1);
    assert_eq!(len_of([2, 0, 3].dims()).unwrap(), 0);
    assert_eq!(len_of(vec![4, 5].dims()).unwrap(), 20);
    for wrong in [vec![1; MAX_RANK + 1], vec![usize::MAX, 2], vec![0, usize::MAX, 3]] {
        assert!(
            matches!(len_of(&wrong), Err(Error::OutOfRange { .. } | Error::Shape { .. })),
            "{wrong:?}"
        );
    }
}
