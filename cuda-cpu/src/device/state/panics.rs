//! Panics in items, which count as faults.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
};

use cuda_core::{Error, Fault, FaultKind, internals::sync::discard_panic};

use super::lost::RECOVERY;

/// The message of a panic.
pub(crate) struct Panicked(pub(crate) String);

impl From<Panicked> for Error {
    fn from(Panicked(said): Panicked) -> Self {
        let what = format!("the CPU device's interpreter panicked: {said}");
        Fault::new(FaultKind::Other, what).recovery(RECOVERY).into()
    }
}

/// Runs `f` and catches a panic. The data that `f` uses must be its own, or atomic, or behind locks and valid between any two
/// steps.
pub(crate) fn contained<T>(f: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|panic| {
        let said = message(&*panic);
        discard_panic(panic);
        Panicked(said)
    })
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("(no message)").to_owned()
}
