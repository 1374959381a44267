//! Copies of tensors: `dup`, `memcpy`, `cast`.

use cuda_async::{DeviceOp, defer, kernel::launch, ops::Either, value};
use cuda_core::{ExpectedShape, LaunchConfig, Slice};

use crate::{
    argument::{Read, StridedIndex, Written, element_config},
    element::{COPY, DType, TRANSPOSE, kernel},
    forms::{Sealed, TensorInput, TensorOutput},
    operations::create::allocate,
    shape::{Layout, broadcast_target, merge_dims, of_operation, shape_error},
    tensor::Tensor,
};

/// The number of packs that each thread of a copy loads before it stores them: `COPY_PACKS` in `copy.cu`.
const COPY_PACKS: usize = 4;

/// The number of elements in the side of a tile of `transpose.cu`.
const fn tile_side<T: DType>() -> usize {
    let lanes = match size_of::<T::Stored>() {
        1 => 4,
        size => 8 / size,
    };
    32 * lanes
}

/// A contiguous tensor, in row-major order without gaps: the given one, or a copy of it.
pub(crate) enum Contiguous<I: TensorInput> {
    Original(I),
    Copied(Tensor<I::Element>),
}

impl<I: TensorInput> Sealed for Contiguous<I> {}

impl<I: TensorInput> TensorInput for Contiguous<I> {
    type Element = I::Element;

    fn layout(&self) -> &Layout {
        match self {
            Self::Original(tensor) => tensor.layout(),
            Self::Copied(tensor) => tensor.layout(),
        }
    }

    fn whole(&self) -> Slice<'_, <I::Element as DType>::Stored> {
        match self {
            Self::Original(tensor) => tensor.whole(),
            Self::Copied(tensor) => tensor.whole(),
        }
    }
}

/// Gives the tensor, or a copy of it if it is not contiguous.
pub(crate) fn contiguous<I: TensorInput>(x: I) -> impl DeviceOp<Output = Contiguous<I>> {
    defer(move || {
        if x.layout().is_contiguous() {
            Either::Left(value(Contiguous::Original(x)))
        } else {
            Either::Right(dup(x).map(Contiguous::Copied))
        }
    })
}

/// Copies the tensor into a new one in row-major order.
pub(crate) fn dup<I: TensorInput>(x: I) -> impl DeviceOp<Output = Tensor<I::Element>> {
    defer(move || {
        let layout = Layout::contiguous(x.layout().shape())?;
        Ok(allocate(layout).then(move |y| match as_transposed(x.layout()) {
            Some(shape) => Either::Left(transpose(x, y, shape)),
            None => Either::Right(copy(x, y)),
        }))
    })
}

/// Returns the name of the kernel of a family for elements of the size of `T`.
fn name_of<T: DType>(family: &str) -> String {
    format!("{family}_u{}", 8 * size_of::<T::Stored>())
}

/// Copies between tensors of one shape.
pub(crate) fn copy<I, O>(from: I, into: O) -> impl DeviceOp<Output = O>
where
    I: TensorInput,
    O: TensorOutput<Element = I::Element>,
{
    kernel::<I::Element>(&COPY, name_of::<I::Element>("copy")).then(move |copy| {
        let (x, y) = (from.layout(), into.layout());
        let walk = StridedIndex::new(x.shape(), [x.strides(), y.strides()]);
        let config = walk.0.config::<I::Element>(COPY_PACKS);
        // SAFETY: reads and writes the offsets of the layouts, which are inside the memory.
        unsafe { launch(&copy, config, (Read(from), Written(into), walk)) }
    })
}

/// Returns `[batch, rows, columns]` of the contiguous tensor of which this layout is the transpose, if there is one.
fn as_transposed(layout: &Layout) -> Option<[usize; 3]> {
    let all = merge_dims(layout.shape(), [layout.strides()]);
    let (batch, of_batch, columns, rows) = match all[..] {
        [(columns, [1]), (rows, [of_rows])] if of_rows == columns => (1, 0, columns, rows),
        [(batch, [of_batch]), (columns, [1]), (rows, [of_rows])] if of_rows == columns => {
            (batch, of_batch, columns, rows)
        }
        _ => return None,
    };
    (batch == 1 || of_batch == rows * columns).then_some([batch, rows, columns])
}

fn transpose<I: TensorInput>(
    from: I,
    into: Tensor<I::Element>,
    [batch, rows, columns]: [usize; 3],
) -> impl DeviceOp<Output = Tensor<I::Element>> {
    kernel::<I::Element>(&TRANSPOSE, name_of::<I::Element>("transpose")).then(move |transpose| {
        let side = tile_side::<I::Element>();
        let tiles = batch * rows.div_ceil(side) * columns.div_ceil(side);
        let config = LaunchConfig::new(tiles.clamp(1, 1 << 24) as u32, 1).block(32, 8, 1);
        let args = (Read(from), Written(into), batch as u64, rows as u64, columns as u64);
        // SAFETY: reads and writes `batch * rows * columns` elements, all of both tensors.
        unsafe { launch(&transpose, config, args) }
    })
}

/// Copies the elements of `from` into an existing tensor, and gives the existing tensor back.
pub(crate) fn memcpy<I, O>((into, from): (O, I)) -> impl DeviceOp<Output = O>
where
    I: TensorInput,
    O: TensorOutput<Element = I::Element>,
{
    defer(move || {
        let (x, y) = (from.layout(), into.layout());
        if x.shape() != y.shape() {
            let expected = ExpectedShape::Same(y.shape().into());
            return of_operation("memcpy", Err(shape_error(x.shape(), expected)));
        }
        if y.has_overlap() {
            return Err(broadcast_target("memcpy"));
        }
        Ok(copy(from, into))
    })
}

/// Converts the elements to another type, in row-major order.
pub(crate) fn cast<U: DType, I: TensorInput>(x: I) -> impl DeviceOp<Output = Tensor<U>> {
    contiguous(x).then(|x| {
        let layout = Layout::contiguous(x.layout().shape());
        layout.map(|layout| {
            allocate::<U>(layout).then(move |y| {
                kernel::<U>(U::cast(), format!("cast_{}", <I::Element as DType>::NAME)).then(
                    move |cast| {
                        let n = y.len();
                        // SAFETY: reads x and writes y, all below n.
                        unsafe { launch(&cast, element_config(n), (Read(x), Written(y), n as u64)) }
                    },
                )
            })
        })
    })
}
