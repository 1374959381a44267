//! The variables of a module as buffers.
//!
//! # Ordering
//! Kernels use variables without an argument. A variable gets an allocation, with its own histories, when a handle is
//! first requested. From then on, every launch of a kernel that may use the variable claims it like an argument: for
//! reading if it is a constant, otherwise for writing. The allocation begins behind everything that was submitted before,
//! and lives as long as a handle of the module or of the variable. Launches need no handle of the variable, so its
//! submissions take turns (`stream::turns`).

use std::{
    any::Any,
    sync::{Arc, Weak},
};

use crate::{
    handle::{device::Device, stream::Allocation},
    protocol::{AllocId, Control, ModuleId, Result, Ticket, VariableInfo},
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

/// The variables of a module. All its handles share them.
pub(super) struct Variables {
    pub(super) infos: Vec<VariableInfo>,
    /// Whether one of them has ever had an allocation.
    any: AtomicBool,
    /// By variable.
    allocations: Mutex<Vec<Weak<Allocation>>>,
}

impl Variables {
    pub(super) fn new(infos: Vec<VariableInfo>) -> Self {
        let allocations = Mutex::new(infos.iter().map(|_| Weak::new()).collect());
        Self { infos, any: AtomicBool::new(false), allocations }
    }

    /// Whether one of them has ever had an allocation. Relaxed: a launch that is not ordered after the first handle of a
    /// variable is not ordered with it either.
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// The allocation of a variable, if it has one.
    pub(super) fn find(&self, index: u32) -> Option<Arc<Allocation>> {
        self.allocations.lock().get(index as usize)?.upgrade()
    }

    /// The allocation of the variable at `index`. The first call names it on the device.
    ///
    /// # Errors
    /// An error of the device.
    pub(super) fn open(
        &self,
        index: usize,
        device: &Device,
        module: ModuleId,
        unloads: Arc<dyn Any + Send + Sync>,
    ) -> Result<Arc<Allocation>> {
        let VariableInfo { name, bytes, .. } = &self.infos[index];
        let mut allocations = self.allocations.lock();
        if let Some(allocation) = allocations[index].upgrade() {
            return Ok(allocation);
        }
        let core = device.core();
        let stream = device.lend_stream(0)?;
        let last = core.streams.all();
        let last = last.iter().map(|it| Ticket { stream: it.id, number: it.published() });
        let last: Vec<_> = last.filter(|it| it.number > 0 && it.stream != stream.id()).collect();
        let named = stream.join(&last)?;
        let id = AllocId(core.next_id());
        let control = Control::NameVariable { id, module, name: name.clone(), bytes: *bytes };
        // SAFETY: the control frees, retires and unloads nothing.
        unsafe { core.backend.control(control) }?;
        let allocation = Allocation::variable(device.clone(), id, *bytes, named, unloads);
        allocations[index] = Arc::downgrade(&allocation);
        self.any.store(true, Ordering::Relaxed);
        Ok(allocation)
    }
}
