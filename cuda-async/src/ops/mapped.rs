//! `map`, `try_map`, `inspect`, `map_err`, `unwrap_arc`: change the result of an operation on the host.

use std::{sync::Arc, task::Context};

use cuda_core::{Error, Result};

use crate::{
    context::ExecutionContext,
    op::{Submit, Submitted},
};

/// A function that maps the result of an operation.
pub trait Mapping<T>: Send {
    /// The output after the mapping.
    type Output: Send;

    /// Maps the result.
    fn apply(self, result: Result<T>) -> Result<Self::Output>;
}

/// The mapping of [`DeviceOp::map`](crate::DeviceOp::map).
#[derive(Clone)]
pub struct MapOutput<F>(pub(crate) F);

/// The mapping of [`DeviceOp::try_map`](crate::DeviceOp::try_map).
#[derive(Clone)]
pub struct TryMapOutput<F>(pub(crate) F);

/// The mapping of [`DeviceOp::inspect`](crate::DeviceOp::inspect).
#[derive(Clone)]
pub struct InspectOutput<F>(pub(crate) F);

/// The mapping of [`DeviceOp::map_err`](crate::DeviceOp::map_err).
#[derive(Clone)]
pub struct MapError<F>(pub(crate) F);

/// The mapping of [`DeviceOp::unwrap_arc`](crate::DeviceOp::unwrap_arc).
#[derive(Clone)]
pub struct UnwrapArc;

impl<T, U: Send, F: FnOnce(T) -> U + Send> Mapping<T> for MapOutput<F> {
    type Output = U;

    #[inline]
    fn apply(self, result: Result<T>) -> Result<U> {
        result.map(self.0)
    }
}

impl<T, U: Send, F: FnOnce(T) -> Result<U> + Send> Mapping<T> for TryMapOutput<F> {
    type Output = U;

    #[inline]
    fn apply(self, result: Result<T>) -> Result<U> {
        result.and_then(self.0)
    }
}

impl<T: Send, F: FnOnce(&T) + Send> Mapping<T> for InspectOutput<F> {
    type Output = T;

    #[inline]
    fn apply(self, result: Result<T>) -> Result<T> {
        result.inspect(self.0)
    }
}

impl<T: Send, F: FnOnce(Error) -> Error + Send> Mapping<T> for MapError<F> {
    type Output = T;

    #[inline]
    fn apply(self, result: Result<T>) -> Result<T> {
        result.map_err(self.0)
    }
}

impl<T: Send> Mapping<Arc<T>> for UnwrapArc {
    type Output = T;

    fn apply(self, result: Result<Arc<T>>) -> Result<T> {
        let shared = |arc: Arc<T>| Error::StillShared { others: Arc::strong_count(&arc) - 1 };
        result.and_then(|arc| Arc::try_unwrap(arc).map_err(shared))
    }
}

/// The steps of an operation whose result a [`Mapping`] changes.
#[derive(Clone)]
pub struct Mapped<S, M> {
    steps: S,
    mapping: M,
}

impl<S, M> Mapped<S, M> {
    pub(crate) const fn new(steps: S, mapping: M) -> Self {
        Self { steps, mapping }
    }
}

impl<S: Submit, M: Mapping<S::Output>> Submit for Mapped<S, M> {
    type Output = M::Output;

    #[inline]
    fn submit(self, task: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        let Self { steps, mapping } = self;
        let result = match steps.submit(task, cx) {
            Ok(Submitted::Ready(output)) => Ok(output),
            Ok(Submitted::Pending(steps)) => {
                return Ok(Submitted::Pending(Self { steps, mapping }));
            }
            Err(error) => Err(error),
        };
        mapping.apply(result).map(Submitted::Ready)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Error, prelude::*};

    #[test]
    fn map_err_changes_errors_and_keeps_values() {
        let lost = |_| Error::OutOfHostMemory { requested: 1 };
        assert_eq!(value(1).map_err(lost).sync(), Ok(1));
        let failed = value(1).try_map(|_| Err::<u8, _>(Error::OutsideScript));
        assert_eq!(failed.map_err(lost).sync(), Err(Error::OutOfHostMemory { requested: 1 }));
    }

    #[test]
    fn unwrap_arc_takes_the_value_from_the_last_owner() {
        let shared = value(vec![1]).shared();
        let kept = shared.clone().sync();
        let refused = shared.clone().unwrap_arc().sync();
        assert!(matches!(refused, Err(Error::StillShared { others: 2 })), "{refused:?}");
        drop(kept);
        assert_eq!(shared.unwrap_arc().sync(), Ok(vec![1]));
    }

    #[test]
    fn question_mark_takes_errors_of_the_program_and_of_std() {
        #[derive(Debug, PartialEq, thiserror::Error)]
        #[error("no weights for layer {0}")]
        struct NoWeights(usize);

        let parsed = |text: &'static str| value(text).try_map(|text| Ok(text.parse::<u32>()?));
        assert_eq!(parsed("7").sync(), Ok(7));
        let refused = parsed("x").sync().unwrap_err();
        assert_eq!(refused.to_string(), "invalid digit found in string");
        assert!(refused.downcast_ref::<std::num::ParseIntError>().is_some());

        let op = value(3).then(|layer| {
            let weights = (layer < 3).then(|| vec![0u8; 4]).ok_or(NoWeights(layer));
            Ok(h2d(weights.map_err(Error::other)?))
        });
        let error = op.then(to_host).sync().unwrap_err();
        assert_eq!(error.downcast_ref(), Some(&NoWeights(3)));
        assert_eq!(error.to_string(), "no weights for layer 3");

        let script = script(async |_| Err::<(), _>(Error::other("the model diverged")));
        assert_eq!(script.sync().unwrap_err().to_string(), "the model diverged");
    }
}
