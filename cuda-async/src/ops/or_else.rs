//! `or_else`: runs another operation if the first one fails.

use std::task::Context;

use cuda_core::{Error, Result};

use crate::{
    context::ExecutionContext,
    op::{IntoDeviceOp, Submit, Submitted},
    ops::settled::Settled,
};

/// The steps of [`DeviceOp::or_else`](crate::ops::DeviceOp::or_else).
pub struct OrElse<S: Submit, F, B>(State<S, F, B>);

enum State<S: Submit, F, B> {
    First(Settled<S>, F),
    Second(B),
}

impl<S: Submit, F, B> OrElse<S, F, B> {
    pub(crate) const fn new(first: S, f: F) -> Self {
        Self(State::First(Settled::new(first), f))
    }
}

impl<S, F, O, B> Submit for OrElse<S, F, B>
where
    S: Submit,
    F: FnOnce(Error) -> O + Send,
    O: IntoDeviceOp<Output = S::Output, Steps = B>,
    B: Submit<Output = S::Output>,
{
    type Output = S::Output;

    fn submit(self, task: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        let second = match self.0 {
            State::First(first, f) => {
                cx.waits().may_wait("or_else")?;
                match first.submit(task, cx) {
                    Ok(Submitted::Ready(output)) => return Ok(Submitted::Ready(output)),
                    Ok(Submitted::Pending(first)) => {
                        return Ok(Submitted::Pending(Self(State::First(first, f))));
                    }
                    Err(error) => f(error).into_op().into_steps(),
                }
            }
            State::Second(second) => second,
        };
        Ok(second.submit(task, cx)?.map_pending(|second| Self(State::Second(second))))
    }
}

#[cfg(test)]
mod tests {
    use crate::{Error, prelude::*};

    #[test]
    fn or_else_runs_the_second_only_after_an_error() {
        let fine = value(1).or_else(|_| -> Op<crate::ops::Value<i32>> { unreachable!() });
        assert_eq!(fine.sync(), Ok(1));
        let failed = value(1).then(|_| Err::<Op<crate::ops::Value<i32>>, _>(Error::OutsideScript));
        let saved = failed.or_else(|error| {
            assert_eq!(error, Error::OutsideScript);
            value(2)
        });
        assert_eq!(saved.sync(), Ok(2));
    }
}
