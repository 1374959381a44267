//! `Op`: steps as a value.

use crate::op::submit::Submit;

/// A device operation made of the steps `S`. It is a value that describes work and has not started.
///
/// This is the only type that implements [`DeviceOp`](crate::ops::DeviceOp). To write an operation, implement
/// [`Submit`] and wrap the steps in `Op`.
#[must_use = "a device operation does nothing until it is awaited or run with `.sync()`"]
#[derive(Clone)]
pub struct Op<S>(S);

impl<S: Submit> Op<S> {
    /// Creates an operation from its steps.
    pub const fn new(steps: S) -> Self {
        Self(steps)
    }

    /// Takes the steps out.
    #[inline]
    pub(crate) fn into_steps(self) -> S {
        self.0
    }
}

impl<S> std::fmt::Debug for Op<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Op({})", std::any::type_name::<S>())
    }
}
