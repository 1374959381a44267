//! Elements of tensors on the host: `to_host_vec`, `item`.

use cuda_core::{Error, Slice};

use crate::{
    DeviceOp,
    memory::{BufferSource, to_host},
    tensor::{
        copying::{Dense, dense},
        dtype::DType,
        forms::TensorInput,
    },
};

/// The memory of a dense tensor.
struct Memory<I: TensorInput>(Dense<I>);

impl<I: TensorInput> BufferSource for Memory<I> {
    type Element = <I::Element as DType>::Stored;

    fn as_slice(&self) -> Slice<'_, Self::Element> {
        self.0.memory()
    }
}

/// Downloads the elements in row-major order.
pub(super) fn to_host_vec<I: TensorInput>(x: I) -> impl DeviceOp<Output = Vec<I::Element>> {
    dense(x).then(|x| to_host(Memory(x))).map(I::Element::load_all)
}

/// Downloads the only element.
pub(super) fn item<I: TensorInput>(x: I) -> impl DeviceOp<Output = I::Element> {
    to_host_vec(x).try_map(|elements| match elements[..] {
        [element] => Ok(element),
        _ => {
            let detail =
                format!("it has {} elements, not one; use `to_host_vec()`", elements.len());
            Err(Error::OutOfRange { what: "the only element of a tensor".into(), detail })
        }
    })
}
