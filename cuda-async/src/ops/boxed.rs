//! `boxed`: hides the type.

use std::task::{Context, Poll};

use cuda_core::Result;

use crate::{
    context::ExecutionContext,
    op::{Op, Submit},
};

/// An operation whose type is hidden.
pub type BoxedOp<'a, T> = Op<Box<dyn Submit<Output = T> + 'a>>;

impl<S: Submit + ?Sized> Submit for Box<S> {
    type Output = S::Output;

    fn poll_submit(
        &mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<S::Output>> {
        (**self).poll_submit(task, cx)
    }
}

#[cfg(test)]
mod tests {
    use crate::prelude::*;

    #[test]
    fn operations_of_different_make_fit_in_one_vec() -> crate::Result<()> {
        let ops = vec![value(1).boxed(), value(1).map(|x| x + 1).boxed()];
        assert_eq!(crate::join_all(ops).sync()?, [1, 2]);
        Ok(())
    }
}
