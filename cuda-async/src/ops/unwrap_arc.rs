//! `unwrap_arc`: takes the value out of an `Arc` that has one owner.

use std::{
    sync::Arc,
    task::{Context, Poll, ready},
};

use cuda_core::{Error, Result};

use crate::{
    context::ExecutionContext,
    op::{Live, Submit},
};

/// The steps of [`DeviceOp::unwrap_arc`](crate::ops::DeviceOp::unwrap_arc).
#[derive(Clone)]
pub struct UnwrapArc<S>(Live<S>);

impl<S> UnwrapArc<S> {
    pub(crate) const fn new(steps: S) -> Self {
        Self(Live::new(steps))
    }
}

impl<S, T> Submit for UnwrapArc<S>
where
    S: Submit<Output = Arc<T>>,
    T: Send,
{
    type Output = T;

    fn poll_submit(&mut self, task: &mut Context<'_>, cx: &ExecutionContext) -> Poll<Result<T>> {
        let output = ready!(self.0.get()?.poll_submit(task, cx));
        // The steps may own a clone of the `Arc`, so they are dropped first.
        self.0.end();
        let shared = |arc: Arc<T>| Error::StillShared { others: Arc::strong_count(&arc) - 1 };
        Poll::Ready(output.and_then(|arc| Arc::try_unwrap(arc).map_err(shared)))
    }

    fn nested_boxes(&self) -> usize {
        self.0.peek().map_or(0, S::nested_boxes)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Error, prelude::*};

    #[test]
    fn unwrap_arc_takes_the_value_from_the_last_owner() {
        let shared = value(vec![1]).shared();
        let kept = shared.clone().sync();
        let refused = shared.clone().unwrap_arc().sync();
        assert!(matches!(refused, Err(Error::StillShared { others: 2 })), "{refused:?}");
        drop(kept);
        assert_eq!(shared.unwrap_arc().sync(), Ok(vec![1]));
    }
}
