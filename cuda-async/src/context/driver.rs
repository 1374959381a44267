//! Which context drives which: finds `shared` operations that wait for themselves.

use std::sync::Arc;

use crate::context::{execution_context::ExecutionContext, run_mode::RunMode, shared::Shared};

/// Marks that one context drives another one, until it is dropped.
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
        let mut mode = self.mode();
        let mut context = self.known_shared().cloned();
        while let Some(shared) = context {
            mode = shared.mode();
            context = shared.root_place().driver.lock().clone();
        }
        mode
    }

    /// Whether this context, or one that drives it, belongs to the `shared` operation `id`.
    pub(crate) fn is_part_of(&self, id: usize) -> bool {
        let mut context = self.known_shared().cloned();
        while let Some(shared) = context {
            let root = shared.root_place();
            if root.part_of == Some(id) {
                return true;
            }
            let driver: Option<Arc<Shared>> = root.driver.lock().clone();
            context = driver;
        }
        false
    }
}

impl Drop for Driving<'_> {
    fn drop(&mut self) {
        let driver = self.0.root_place().driver.lock().take();
        drop(driver);
    }
}
