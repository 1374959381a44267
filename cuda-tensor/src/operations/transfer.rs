//! Elements of tensors on the host and on other devices: `to_host_vec`, `to_host_vec_into`, `item`, `to_device`.

use cuda_async::{
    DeviceOp, IntoDeviceOp, defer,
    memory::{self, BufferSource, to_host_into},
};
use cuda_core::{Device, Error, ExpectedShape, Result, Slice};

use crate::{
    element::DType,
    forms::{IntoTensor, TensorInput},
    operations::copy::{Contiguous, contiguous},
    shape::{Layout, of_operation, shape_error},
    tensor::Tensor,
};

/// The elements of a contiguous tensor, which are inside its buffer.
struct Elements<I: TensorInput>(Contiguous<I>);

impl<I: TensorInput> Elements<I> {
    fn of(tensor: Contiguous<I>) -> Result<Self> {
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

/// Copies a tensor to `device`, in row-major order, as [`memory::to_device`](cuda_async::memory::to_device) copies a
/// buffer. The operation may run on any device.
///
/// ```
/// use cuda_async::{open_blocking, cuda_cpu::CpuProvider, prelude::*};
/// use cuda_tensor::{Tensor, TensorOps};
/// let (first, second) = (open_blocking("cpu")?, Device::open(&CpuProvider::default(), 0)?);
/// let x = Tensor::from_host(vec![1, 2, 3, 4], [2, 2]).on(&first).sync()?;
/// let there = cuda_tensor::to_device(x.transpose(0, 1)?, &second).sync()?;
/// assert!(*there.device() == second);
/// assert_eq!(there.to_host_vec().on(&second).sync()?, [1, 3, 2, 4]);
/// # Ok::<(), cuda_async::Error>(())
/// ```
///
/// # Errors
/// The errors of [`memory::to_device`](cuda_async::memory::to_device).
pub fn to_device<'a, I: IntoTensor<Form: 'a>>(
    x: I,
    device: &Device,
) -> impl DeviceOp<Output = Tensor<I::Element>> + use<'a, I> {
    let device = device.clone();
    x.into_tensor().into_op().then(move |x| copy_to(x, device))
}

fn copy_to<'a, I: TensorInput + 'a>(
    x: I,
    device: Device,
) -> impl DeviceOp<Output = Tensor<I::Element>> + use<'a, I> {
    defer(move || {
        let layout = Layout::contiguous(x.layout().shape())?;
        let from = x.whole().device().clone();
        let elements = contiguous(x).try_map(Elements::of).on(&from);
        let copied = elements.then(move |elements| memory::to_device(elements, &device));
        Ok(copied.map(move |buffer| Tensor::of(buffer, layout)))
    })
}
