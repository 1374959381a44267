//! Elements of tensors on the host: `to_host_vec`, `to_host_vec_into`, `item`.

use cuda_async::{
    DeviceOp, defer,
    memory::{BufferSource, to_host_into},
};
use cuda_core::{Error, ExpectedShape, Result, Slice};

use crate::{
    element::dtype::DType,
    forms::TensorInput,
    operations::copy::{Contiguous, contiguous},
    shape::{
        error::{of_operation, shape_error},
        layout::Layout,
    },
};

/// The elements of a contiguous tensor, which are inside its buffer.
pub(crate) struct Elements<I: TensorInput>(Contiguous<I>);

impl<I: TensorInput> Elements<I> {
    pub(crate) fn of(tensor: Contiguous<I>) -> Result<Self> {
        tensor.memory()?;
        Ok(Self(tensor))
    }
}

impl<I: TensorInput> BufferSource for Elements<I> {
    type Element = <I::Element as DType>::Stored;

    fn as_slice(&self) -> Slice<'_, Self::Element> {
        // `of` has checked that the elements are inside.
        self.0.memory().unwrap_or(self.0.whole())
    }
}

/// Downloads the elements in row-major order.
pub(crate) fn to_host_vec<I: TensorInput>(x: I) -> impl DeviceOp<Output = Vec<I::Element>> {
    download(x, Vec::new()).map_err(|error| error.of_step("to_host_vec"))
}

/// Downloads the elements in row-major order into an existing vector.
pub(crate) fn to_host_vec_into<I: TensorInput>(
    x: I,
    into: Vec<I::Element>,
) -> impl DeviceOp<Output = Vec<I::Element>> {
    download(x, into).map_err(|error| error.of_step("to_host_vec_into"))
}

/// Downloads the elements. The callers name the step in the error of a run that cannot wait.
fn download<I: TensorInput>(
    x: I,
    into: Vec<I::Element>,
) -> impl DeviceOp<Output = Vec<I::Element>> {
    let into = I::Element::store_all(into);
    contiguous(x)
        .then(|x| Elements::of(x).map(|elements| to_host_into(elements, into)))
        .map(I::Element::load_all)
}

/// Downloads the only element.
pub(crate) fn item<I: TensorInput>(x: I) -> impl DeviceOp<Output = I::Element> {
    defer(move || {
        of_operation("item", check_one(x.layout()))?;
        let elements = download(x, Vec::new()).map_err(|error| error.of_step("item"));
        Ok(elements.try_map(|elements| elements.first().copied().ok_or_else(|| several(&[0]))))
    })
}

/// Checks that there is one element.
pub(crate) fn check_one(layout: &Layout) -> Result<()> {
    if layout.len() == 1 { Ok(()) } else { Err(several(layout.shape())) }
}

fn several(shape: &[usize]) -> Error {
    let form =
        "have one element; reduce it first, for example with `max()`, or use `to_host_vec()`";
    shape_error(shape, ExpectedShape::Form(form))
}
