//! `boxed`: hides the type of an operation.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    task::{Context, Poll},
};

use cuda_core::{Misuse, Result};

use crate::{
    context::ExecutionContext,
    op::{Op, Submit, Submitted, poll_stored},
};

/// The maximum number of boxes whose submissions are nested, as in an operation that boxes its own successor without an
/// end: 10,000. More of them are an error. Nested boxes use memory in proportion to their number.
pub const MAX_NESTED_BOXES: usize = 10_000;

/// The stack that a box leaves to the steps inside it. Deeper boxes get more stack from the heap.
const STACK_OF_A_BOX: usize = 128 << 10;

/// The stack from the heap for further boxes.
const MORE_STACK: usize = 2 << 20;

/// An operation whose type is hidden.
pub type BoxedOp<'a, T> = Op<Boxed<'a, T>>;

/// The steps of [`DeviceOp::boxed`](crate::DeviceOp::boxed).
pub struct Boxed<'a, T>(Option<Box<dyn Hidden<T> + 'a>>);

/// Steps in a box, which are submitted where they are.
trait Hidden<T>: Send {
    fn poll(&mut self, task: &mut Context<'_>, cx: &ExecutionContext) -> Poll<Result<T>>;
}

impl<S: Submit> Hidden<S::Output> for Option<S> {
    fn poll(&mut self, task: &mut Context<'_>, cx: &ExecutionContext) -> Poll<Result<S::Output>> {
        poll_stored(self, task, cx)
    }
}

impl<'a, T> Boxed<'a, T> {
    pub(crate) fn new<S: Submit<Output = T> + 'a>(steps: S) -> Self {
        Self(Some(Box::new(Some(steps))))
    }
}

impl<T: Send> Submit for Boxed<'_, T> {
    type Output = T;

    fn submit(mut self, task: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        let _nested = Nested::enter(cx)?;
        let Some(steps) = &mut self.0 else { return Err(cuda_core::Error::AlreadyEnded) };
        match on_enough_stack(|| steps.poll(task, cx)) {
            Poll::Ready(output) => output.map(Submitted::Ready),
            Poll::Pending => Ok(Submitted::Pending(self)),
        }
    }
}

impl<T> Drop for Boxed<'_, T> {
    fn drop(&mut self) {
        if let Some(steps) = self.0.take() {
            on_enough_stack(|| drop(steps));
        }
    }
}

/// Calls `f`, which may recurse through nested boxes. Uses a new stack if the current one has little room.
pub(super) fn on_enough_stack<R>(f: impl FnOnce() -> R) -> R {
    stacker::maybe_grow(STACK_OF_A_BOX, MORE_STACK, f)
}

/// Counts a box in its context while its steps are submitted.
struct Nested<'a>(&'a AtomicUsize);

impl<'a> Nested<'a> {
    /// # Errors
    /// [`Error::Misuse`](cuda_core::Error::Misuse) inside of [`MAX_NESTED_BOXES`] boxes.
    fn enter(cx: &'a ExecutionContext) -> Result<Self> {
        let count = cx.nested_boxes();
        let nested = count.load(Ordering::Relaxed);
        if nested >= MAX_NESTED_BOXES {
            return Err(Misuse::NestedBoxes { limit: MAX_NESTED_BOXES }.into());
        }
        count.store(nested + 1, Ordering::Relaxed);
        Ok(Self(count))
    }
}

impl Drop for Nested<'_> {
    fn drop(&mut self) {
        self.0.store(self.0.load(Ordering::Relaxed).saturating_sub(1), Ordering::Relaxed);
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
