//! `boxed`: hides the type of an operation.

use std::task::{Context, Poll};

use cuda_core::Result;

use crate::{
    context::{ExecutionContext, MAX_NESTED_BOXES},
    misuse,
    op::{Live, Op, Submit},
};

/// An operation whose type is hidden.
pub type BoxedOp<'a, T> = Op<Box<dyn Submit<Output = T> + 'a>>;

/// Boxes steps. Beyond [`MAX_NESTED_BOXES`] the steps are dropped and replaced by an error, so that neither a poll nor
/// a drop of the result can overflow the stack.
pub(crate) fn boxed<'a, S: Submit + 'a>(steps: S) -> BoxedOp<'a, S::Output> {
    let inner = steps.nested_boxes();
    Op::new(Box::new(if inner < MAX_NESTED_BOXES {
        Nested { steps: Live::new(Ok(steps)), boxes: inner + 1 }
    } else {
        Nested { steps: Live::new(Err(misuse::too_many_nested_boxes(MAX_NESTED_BOXES))), boxes: 1 }
    }))
}

/// Steps inside a box, with the number of boxes nested up to this one.
struct Nested<S> {
    steps: Live<Result<S>>,
    boxes: usize,
}

impl<S: Submit> Submit for Nested<S> {
    type Output = S::Output;

    fn poll_submit(
        &mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<S::Output>> {
        let _nesting = cx.enter_box()?;
        match self.steps.get()? {
            Ok(steps) => steps.poll_submit(task, cx),
            Err(error) => Poll::Ready(Err(error.clone())),
        }
    }

    fn nested_boxes(&self) -> usize {
        self.boxes
    }
}

impl<S: Submit + ?Sized> Submit for Box<S> {
    type Output = S::Output;

    #[inline]
    fn poll_submit(
        &mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<S::Output>> {
        (**self).poll_submit(task, cx)
    }

    fn nested_boxes(&self) -> usize {
        (**self).nested_boxes()
    }
}

#[cfg(test)]
mod tests {
    use crate::prelude::*;

    #[test]
    fn operations_of_different_types_fit_in_one_vec() -> crate::Result<()> {
        let ops = vec![value(1).boxed(), value(1).map(|x| x + 1).boxed()];
        assert_eq!(crate::join_all(ops).sync()?, [1, 2]);
        Ok(())
    }
}
