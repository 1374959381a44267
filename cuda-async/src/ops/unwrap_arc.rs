//! `unwrap_arc`: the last owner's way back from an `Arc`.

use std::{
    sync::Arc,
    task::{Context, Poll, ready},
};

use cuda_core::{Error, Result};

use crate::{context::ExecutionContext, op::Submit};

/// Steps of [`DeviceOp::unwrap_arc`](crate::DeviceOp::unwrap_arc).
#[derive(Clone)]
pub struct UnwrapArc<S>(Option<S>);

impl<S> UnwrapArc<S> {
    pub(crate) const fn new(steps: S) -> Self {
        Self(Some(steps))
    }
}

impl<S, T> Submit for UnwrapArc<S>
where
    S: Submit<Output = Arc<T>>,
    T: Send,
{
    type Output = T;

    fn poll_submit(&mut self, task: &mut Context<'_>, cx: &ExecutionContext) -> Poll<Result<T>> {
        let steps = self.0.as_mut().ok_or(Error::AlreadyEnded)?;
        let output = ready!(steps.poll_submit(task, cx));
        // First, since they may own it too.
        self.0 = None;
        let shared = |arc: Arc<T>| Error::StillShared { others: Arc::strong_count(&arc) - 1 };
        Poll::Ready(output.and_then(|arc| Arc::try_unwrap(arc).map_err(shared)))
    }
}

#[cfg(test)]
mod tests {
    use crate::{Error, prelude::*};

    #[test]
    fn the_last_clone_gives_the_value() {
        let shared = value(vec![1]).shared();
        let kept = shared.clone().sync();
        let refused = shared.clone().unwrap_arc().sync();
        assert!(matches!(refused, Err(Error::StillShared { others: 2 })), "{refused:?}");
        drop(kept);
        assert_eq!(shared.unwrap_arc().sync(), Ok(vec![1]));
    }
}
