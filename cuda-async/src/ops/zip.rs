//! `zip!` and tuples: runs operations concurrently.

use std::task::Context;

use cuda_core::Result;

use crate::{
    context::{ExecutionContext, Fork},
    op::{IntoDeviceOp, Op, Submit, Submitted},
    ops::branch::{Branch, any_pending},
};

/// The steps of [`zip!`](crate::zip) and of tuples of operations; `T` is a tuple of branches.
pub struct Zip<T> {
    branches: T,
    fork: Fork,
}

/// Runs operations concurrently on several streams and gives their outputs as a tuple.
///
/// The first error ends the operation. A tuple of operations means the same wherever an operation is accepted.
///
/// ```
/// use cuda_async::{prelude::*, zip};
/// let (a, b) = zip!(h2d(vec![1, 2]).then(to_host), zeros::<f32>(1).then(to_host)).sync()?;
/// assert_eq!((a, b), (vec![1, 2], vec![0.0]));
/// # Ok::<(), cuda_async::Error>(())
/// ```
#[macro_export]
macro_rules! zip {
    ($($op:expr),+ $(,)?) => { $crate::op::IntoDeviceOp::into_op(($($op,)+)) };
}

macro_rules! tuples {
    ($($count:literal: $($name:ident $index:tt),+;)*) => {$(
        impl<$($name: IntoDeviceOp),+> IntoDeviceOp for ($($name,)+) {
            type Output = ($($name::Output,)+);
            type Steps = Zip<($(Branch<$name::Steps>,)+)>;

            fn into_op(self) -> Op<Self::Steps> {
                let branches = ($(Branch::new(self.$index.into_op().into_steps()),)+);
                Op::new(Zip { branches, fork: Fork::new() })
            }
        }

        impl<$($name: Submit),+> Submit for Zip<($(Branch<$name>,)+)> {
            type Output = ($($name::Output,)+);

            fn submit(
                mut self,
                task: &mut Context<'_>,
                cx: &ExecutionContext,
            ) -> Result<Submitted<Self>> {
                let Self { branches, fork } = &mut self;
                let mut poll = || {
                    let contexts = fork.contexts(cx, $count);
                    let mut pending = 0;
                    $(pending += usize::from(
                        branches.$index.poll(task, &contexts[$index])?.is_pending()
                    );)+
                    any_pending(pending, task, cx)
                };
                let submitted = poll();
                if submitted == Ok(true) {
                    return Ok(Submitted::Pending(self));
                }
                let Self { mut branches, mut fork } = self;
                fork.end(cx, submitted.map(drop))?;
                Ok(Submitted::Ready(($(branches.$index.take()?,)+)))
            }
        }
    )*};
}

tuples! {
    1: A 0;
    2: A 0, B 1;
    3: A 0, B 1, C 2;
    4: A 0, B 1, C 2, D 3;
    5: A 0, B 1, C 2, D 3, E 4;
    6: A 0, B 1, C 2, D 3, E 4, F 5;
    7: A 0, B 1, C 2, D 3, E 4, F 5, G 6;
    8: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7;
    9: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8;
    10: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9;
    11: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10;
    12: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11;
}
