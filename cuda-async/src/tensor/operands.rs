//! `both`, `all_three`: the tensors of an operation.
//!
//! Methods of `TensorOps` use these functions and `bind`, and no closures: see [`bind`](crate::ops::bind).

use crate::{
    DeviceOp,
    kernel::{Arg, ready_args},
    tensor::forms::IntoTensor,
};

/// Gives two tensors. Runs the operations that give them one after the other, on one stream.
pub(super) fn both<A: IntoTensor, B: IntoTensor>(
    a: A,
    b: B,
) -> impl DeviceOp<Output = (A::Form, B::Form)> {
    ready_args((Arg(a.into_tensor()), Arg(b.into_tensor())))
}

/// Gives three tensors, as [`both`] gives two.
pub(super) fn all_three<A: IntoTensor, B: IntoTensor, C: IntoTensor>(
    a: A,
    b: B,
    c: C,
) -> impl DeviceOp<Output = (A::Form, (B::Form, C::Form))> {
    ready_args((Arg(a.into_tensor()), (Arg(b.into_tensor()), Arg(c.into_tensor()))))
}
