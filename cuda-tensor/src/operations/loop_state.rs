//! Tensors as the state of a loop.

use std::sync::Arc;

use crate::{
    graph::{LoopState, Position},
    tensor::{element::dtype::DType, forms::TensorInput, tensor::Tensor},
};

/// Returns the position of a tensor: of its first element, with its shape and strides.
fn position<I: TensorInput>(tensor: &I) -> Position {
    let layout = tensor.layout();
    // The constructors of tensors exclude a layout that exceeds its buffer.
    let slice = tensor.memory().unwrap_or(tensor.whole());
    Position::of_view(slice, layout.shape(), layout.strides())
}

macro_rules! tensors {
    ($($tensor:ty;)*) => {$(
        impl<T: DType, B> LoopState for $tensor
        where
            Self: TensorInput,
        {
            fn positions(&self, each: &mut dyn FnMut(Position)) {
                each(position(self));
            }
        }
    )*};
}

tensors! {
    Tensor<T, B>;
    &mut Tensor<T, B>;
    Arc<Tensor<T, B>>;
}
