//! Copies of tensors: `dup`, `contiguous`, `memcpy`, `cast`.

use cuda_core::{Error, LaunchConfig, Slice};

use crate::{
    DeviceOp, defer,
    kernel::launch,
    ops::Either,
    tensor::{
        argument::{Read, Walk, Written, for_elements},
        create::fresh,
        dtype::DType,
        forms::{Sealed, TensorInput, TensorOutput},
        kernels::{COPY, kernel},
        layout::{Layout, merged},
        tensor::Tensor,
    },
    value,
};

/// The tiles of `transpose` in `copy.cu`.
const TILE: usize = 32;

/// A tensor whose elements lie in row-major order without gaps: the given one, or a copy of it.
pub(super) enum Dense<I: TensorInput> {
    Given(I),
    Copied(Tensor<I::Element>),
}

impl<I: TensorInput> Sealed for Dense<I> {}

impl<I: TensorInput> TensorInput for Dense<I> {
    type Element = I::Element;

    fn layout(&self) -> &Layout {
        match self {
            Self::Given(tensor) => tensor.layout(),
            Self::Copied(tensor) => tensor.layout(),
        }
    }

    fn memory(&self) -> Slice<'_, <I::Element as DType>::Stored> {
        match self {
            Self::Given(tensor) => tensor.memory(),
            Self::Copied(tensor) => tensor.memory(),
        }
    }
}

/// Gives the tensor, or a copy of it if its elements have gaps or another order.
pub(super) fn dense<I: TensorInput>(x: I) -> impl DeviceOp<Output = Dense<I>> {
    defer(move || {
        if x.layout().is_dense() {
            Either::Left(value(Dense::Given(x)))
        } else {
            Either::Right(dup(x).map(Dense::Copied))
        }
    })
}

/// Gives the tensor as a new one in row-major order.
pub(super) fn dup<I: TensorInput>(x: I) -> impl DeviceOp<Output = Tensor<I::Element>> {
    defer(move || {
        let layout = Layout::dense(x.layout().shape())?;
        Ok(fresh(layout).then(move |y| match as_transposed(x.layout()) {
            Some(shape) => Either::Left(transpose(x, y, shape)),
            None => Either::Right(copy(x, y)),
        }))
    })
}

/// The name of a kernel in `copy.cu` for elements of `T`.
fn name_of<T: DType>(family: &str) -> String {
    format!("{family}_u{}", 8 * size_of::<T::Stored>())
}

/// Copies between tensors of one shape.
fn copy<I, O>(from: I, into: O) -> impl DeviceOp<Output = O>
where
    I: TensorInput,
    O: TensorOutput<Element = I::Element>,
{
    kernel(&COPY, name_of::<I::Element>("copy")).then(move |copy| {
        let (x, y) = (from.layout(), into.layout());
        let (n, walk) = (x.len(), Walk::new(x.shape(), [x.strides(), y.strides()]));
        // SAFETY: reads and writes the places of the elements, which the layouts keep inside the memory.
        unsafe { launch(&copy, for_elements(n), (Read(from), Written(into), walk)) }
    })
}

/// Batch, rows and columns of a dense tensor of which this layout is the transpose.
fn as_transposed(layout: &Layout) -> Option<[usize; 3]> {
    let all = merged(layout.shape(), [layout.strides()]);
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
    kernel(&COPY, name_of::<I::Element>("transpose")).then(move |transpose| {
        let tiles = batch * rows.div_ceil(TILE) * columns.div_ceil(TILE);
        let config = LaunchConfig::new(tiles.clamp(1, 1 << 24) as u32, 1).block(TILE as u32, 8, 1);
        let args = (Read(from), Written(into), batch as u64, rows as u64, columns as u64);
        // SAFETY: reads and writes `batch * rows * columns` elements, all of both tensors.
        unsafe { launch(&transpose, config, args) }
    })
}

/// Copies the elements of `from` into an existing tensor, and gives that one back.
pub(super) fn memcpy<I, O>(into: O, from: I) -> impl DeviceOp<Output = O>
where
    I: TensorInput,
    O: TensorOutput<Element = I::Element>,
{
    defer(move || {
        let (x, y) = (from.layout(), into.layout());
        if x.shape() != y.shape() {
            let detail = format!(
                "a tensor of shape {:?} does not fit into one of shape {:?}",
                x.shape(),
                y.shape()
            );
            return Err(Error::OutOfRange { what: "a copy of a tensor".into(), detail });
        }
        if y.repeats() {
            let detail = "the target is broadcast: several of its elements are the same memory; copy it first, with `dup()`";
            return Err(Error::Misuse { what: "a copy of a tensor".into(), detail: detail.into() });
        }
        Ok(copy(from, into))
    })
}

/// Gives the elements as another type, in row-major order.
pub(super) fn cast<U: DType, I: TensorInput>(x: I) -> impl DeviceOp<Output = Tensor<U>> {
    dense(x).then(|x| {
        let layout = Layout::dense(x.layout().shape());
        layout.map(|layout| {
            fresh::<U>(layout).then(move |y| {
                kernel(U::cast(), format!("cast_{}", <I::Element as DType>::NAME)).then(
                    move |cast| {
                        let n = y.len();
                        // SAFETY: reads x and writes y, all below n.
                        unsafe { launch(&cast, for_elements(n), (Read(x), Written(y), n as u64)) }
                    },
                )
            })
        })
    })
}
