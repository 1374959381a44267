//! `Either`: one of two operations of different types.

use std::task::Context;

use cuda_core::Result;

use crate::{
    context::ExecutionContext,
    op::{IntoDeviceOp, Op, Submit, Submitted},
};

/// One of two operations with the same output. Closures that return different operations return it.
///
/// ```
/// use cuda_async::{ops::Either, prelude::*, value};
/// let doubled = |x: u32| match x {
///     0 => Either::Left(value(0)),
///     x => Either::Right(h2d([x]).then(to_host).map(|v| 2 * v[0])),
/// };
/// assert_eq!(value(3).then(doubled).sync()?, 6);
/// # Ok::<(), cuda_async::Error>(())
/// ```
#[derive(Debug, Clone)]
pub enum Either<A, B> {
    /// The first operation.
    Left(A),
    /// The second operation.
    Right(B),
}

impl<A: IntoDeviceOp, B: IntoDeviceOp<Output = A::Output>> IntoDeviceOp for Either<A, B> {
    type Output = A::Output;
    type Steps = EitherSteps<A::Steps, B::Steps>;

    fn into_op(self) -> Op<Self::Steps> {
        Op::new(match self {
            Self::Left(op) => EitherSteps::Left(op.into_op().into_steps()),
            Self::Right(op) => EitherSteps::Right(op.into_op().into_steps()),
        })
    }
}

/// The steps of an [`Either`].
pub enum EitherSteps<A, B> {
    /// Those of the first operation.
    Left(A),
    /// Those of the second operation.
    Right(B),
}

impl<A: Submit, B: Submit<Output = A::Output>> Submit for EitherSteps<A, B> {
    type Output = A::Output;

    #[inline]
    fn submit(self, task: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        Ok(match self {
            Self::Left(steps) => steps.submit(task, cx)?.map_pending(Self::Left),
            Self::Right(steps) => steps.submit(task, cx)?.map_pending(Self::Right),
        })
    }
}
