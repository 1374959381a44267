//! `bind`, `both`, `all_three`: steps of operations, in types whose size stays proportional to the operation.
//!
//! The type of a closure contains the type parameters of the function around it. In a method of `TensorOps`, these are the
//! operations so far. A closure there would double the type of a chain with every operation, and the compiler would need
//! minutes for a dozen operations. So methods of `TensorOps` have no closures, and use these functions.

use crate::{
    DeviceOp,
    kernel::{Arg, ready_args},
    tensor::forms::IntoTensor,
};

/// Returns a closure that calls `function` with its argument and `parameters`.
pub(super) fn bind<X, P, O>(
    function: impl FnOnce(X, P) -> O,
    parameters: P,
) -> impl FnOnce(X) -> O {
    move |x| function(x, parameters)
}

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
