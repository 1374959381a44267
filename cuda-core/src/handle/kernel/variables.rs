//! The variables of a module as buffers.
//!
//! # Ordering
//! Kernels use variables without an argument. A variable gets an allocation, with its own history, at the first call of
//! `Module::variable`, or when a launch that may use it is recorded. From then on, every launch of a kernel that may
//! use the variable claims it: a constant for reading, another variable for writing. Such a launch holds no handle of
//! the variable. Therefore submissions that use a variable take turns (`stream::submit`).
//!
//! The device keeps one id for the variable until the module is unloaded. The allocation lives as long as a buffer of
//! the variable, a recording, or a module handle that opened it. A later allocation has the same id. Its history begins
//! with a join behind everything that was submitted before.

use std::{
    any::Any,
    sync::{Arc, Weak},
};

use crate::{
    handle::{device::Device, stream::Allocation},
    protocol::{AllocId, Control, ModuleId, Result, VariableInfo},
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

/// The variables of a module, shared by all handles of the module.
pub(super) struct Variables {
    pub(super) infos: Vec<VariableInfo>,
    /// Whether one of them has an id on the device.
    any: AtomicBool,
    /// One for each variable, in the order of `infos`.
    on_device: Mutex<Vec<OnDevice>>,
}

#[derive(Default)]
struct OnDevice {
    /// The id on the device.
    id: Option<AllocId>,
    allocation: Weak<Allocation>,
}

impl Variables {
    pub(super) fn new(infos: Vec<VariableInfo>) -> Self {
        let on_device = Mutex::new(infos.iter().map(|_| OnDevice::default()).collect());
        Self { infos, any: AtomicBool::new(false), on_device }
    }

    /// Whether one of them has an id on the device. Relaxed: the caller orders launches after the first handle, or they
    /// are unordered.
    #[inline]
    pub(super) fn any_named(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Whether a variable has an id on the device.
    pub(super) fn is_named(&self, index: u32) -> bool {
        self.on_device.lock().get(index as usize).is_some_and(|own| own.id.is_some())
    }

    /// Returns the index of the variable with this id on the device.
    pub(super) fn index_of(&self, id: AllocId) -> Option<u32> {
        let found = self.on_device.lock().iter().position(|own| own.id == Some(id))?;
        u32::try_from(found).ok()
    }

    /// Returns the allocation of a variable. Names the variable on the device first, if it has no id.
    ///
    /// A new allocation needs a join of all streams. The join may call wakers, so no lock is held meanwhile.
    ///
    /// # Errors
    /// An error of the device. [`Error::NoSuchVariable`](crate::Error::NoSuchVariable) if the device has no such
    /// variable.
    pub(super) fn open(
        &self,
        index: u32,
        device: &Device,
        module: ModuleId,
        unloads: Arc<dyn Any + Send + Sync>,
    ) -> Result<Arc<Allocation>> {
        let VariableInfo { name, bytes, .. } = &self.infos[index as usize];
        let id = {
            let own = &mut self.on_device.lock()[index as usize];
            if let Some(allocation) = own.allocation.upgrade() {
                return Ok(allocation);
            }
            match own.id {
                Some(id) => id,
                None => {
                    let id = AllocId(device.core().next_id());
                    let (name, bytes) = (name.clone(), *bytes);
                    let control = Control::NameVariable { id, module, name, bytes };
                    // SAFETY: the control frees, retires, drops and unloads nothing.
                    unsafe { device.core().backend.control(control) }?;
                    *own.id.insert(id)
                }
            }
        };
        self.any.store(true, Ordering::Relaxed);
        // Behind everything that was submitted to the device.
        let named = device.lend_stream(0)?.join(&device.core().streams.last_tickets())?;
        let opened = Allocation::variable(device.clone(), id, *bytes, named, unloads);
        let own = &mut self.on_device.lock()[index as usize];
        // Another thread may have opened it meanwhile.
        Ok(own.allocation.upgrade().unwrap_or_else(|| {
            own.allocation = Arc::downgrade(&opened);
            opened
        }))
    }
}
