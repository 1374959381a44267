//! `both`, `all_three`: the tensors of an operation.
//!
//! Methods of `TensorOps` use these functions and `bind`, and no closures: see [`bind`](crate::ops::bind).

use crate::{
    DeviceOp,
    ops::{Arg, ready_args},
    tensor::forms::IntoTensor,
};

/// Returns an operation that gives two tensors. If they are operations, they run in this order, on one stream.
pub(super) fn both<A: IntoTensor, B: IntoTensor>(
    a: A,
    b: B,
) -> impl DeviceOp<Output = (A::Form, B::Form)> {
    ready_args((Arg(a.into_tensor()), Arg(b.into_tensor())))
}

/// Returns an operation that gives three tensors, as [`both`].
pub(super) fn all_three<A: IntoTensor, B: IntoTensor, C: IntoTensor>(
    a: A,
    b: B,
    c: C,
) -> impl DeviceOp<Output = (A::Form, (B::Form, C::Form))> {
    ready_args((Arg(a.into_tensor()), (Arg(b.into_tensor()), Arg(c.into_tensor()))))
}
