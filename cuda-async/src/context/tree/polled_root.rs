//! Records which context polls the steps of another. Detects `shared` operations that wait for themselves.

use std::sync::Arc;

use crate::context::tree::{
    execution_context::ExecutionContext, run_mode::RunMode, shared_context::Shared,
};

/// Marks a root context as driven by another context. The mark ends when this guard is dropped.
pub(crate) struct Driving<'a>(&'a Shared);

impl ExecutionContext {
    /// Marks that steps in `driver` poll the steps of this root.
    pub(crate) fn drive_in(&self, driver: &ExecutionContext) -> Driving<'_> {
        let root = &**Shared::root_of(self.shared());
        let before = root.root_place().driver.lock().replace(driver.shared().clone());
        drop(before);
        Driving(root)
    }

    /// The kind of waits in the run that polls these steps now. It differs from [`mode`](Self::mode) in the steps of a
    /// `shared` operation, which several runs may drive.
    pub(crate) fn mode_of_poll(&self) -> RunMode {
        let is_driven = |shared: &Arc<Shared>| shared.root_place().driver.lock().is_some();
        if !self.known_shared().is_some_and(is_driven) {
            return self.mode();
        }
        self.drivers().last().map_or_else(|| self.mode(), |outermost| outermost.mode())
    }

    /// Whether this context, or one that drives it, belongs to the `shared` operation `id`.
    pub(crate) fn is_part_of(&self, id: usize) -> bool {
        self.drivers().any(|context| context.root_place().part_of == Some(id))
    }

    /// The chain of drivers: this context, then its driver, then the driver of that, up to the outermost.
    fn drivers(&self) -> impl Iterator<Item = Arc<Shared>> {
        std::iter::successors(self.known_shared().cloned(), |context| {
            context.root_place().driver.lock().clone()
        })
    }
}

impl Drop for Driving<'_> {
    fn drop(&mut self) {
        let driver = self.0.root_place().driver.lock().take();
        drop(driver);
    }
}
