//! Launches of kernels that foreign code has loaded.

use std::{any::Any, ffi::c_void, sync::Arc};

use smallvec::SmallVec;

use super::arguments::Arguments;
use crate::{
    handle::stream::{Operand, Stream},
    protocol::{Error, RawStream, Result, Ticket},
};

/// Bytes of parameters, aligned as no parameter needs more.
#[repr(align(256))]
struct Aligned<T>(T);

/// Parameters of more bytes are refused: the driver has the same limit.
const MAX_BYTES: usize = 32_764;

impl Arguments<'_> {
    /// Calls `launch` with the raw stream and a pointer to each argument, in the form in which `cuLaunchKernel` takes them.
    /// `launch` enqueues one kernel that foreign code has loaded. The library orders it with other uses of the buffers
    /// among the arguments. `kernel` keeps the kernel's module loaded, and is dropped on a thread of the device when the
    /// kernel has run.
    ///
    /// # Errors
    /// As [`ForeignCall::submit`](crate::ForeignCall::submit), and [`Error::Arguments`] for an argument that cannot be passed.
    ///
    /// # Safety
    /// - The arguments are those that the kernel takes.
    /// - The conditions of [`Function::launch`](crate::Function::launch) and of
    ///   [`ForeignCall::submit`](crate::ForeignCall::submit) hold. The pointers are used only inside `launch`.
    pub unsafe fn launch_foreign(
        &self,
        stream: &Stream,
        kernel: Arc<dyn Any + Send + Sync>,
        launch: impl FnOnce(RawStream, &mut [*mut c_void]) -> Result<()>,
    ) -> Result<Ticket> {
        let refused =
            |detail| Error::Arguments { kernel: "a kernel of foreign code".into(), detail };
        if let Some(reason) = self.refusal() {
            return Err(refused(reason.to_owned()));
        }
        if self.bytes.len() > MAX_BYTES {
            let detail = format!("{} bytes, the limit is {MAX_BYTES}", self.bytes.len());
            return Err(refused(detail));
        }
        let mut bytes = Box::new(Aligned([0u8; MAX_BYTES + 4]));
        bytes.0[..self.bytes.len()].copy_from_slice(&self.bytes);
        let operands: SmallVec<[Operand<'_>; 6]> = self.operands.iter().cloned().collect();
        let mut launch = Some(launch);
        let mut submit = |raw, addresses: &[u64]| {
            for (relocation, address) in self.relocations.iter().zip(addresses) {
                let at = relocation.at as usize;
                if let Some(place) = bytes.0.get_mut(at..at + 8) {
                    place.copy_from_slice(&address.to_ne_bytes());
                }
            }
            let start = bytes.0.as_mut_ptr();
            let pointer = |place: usize| start.wrapping_add(place).cast::<c_void>();
            let mut pointers: SmallVec<[_; 16]> = self.starts().map(pointer).collect();
            let launch = launch.take().ok_or(Error::AlreadyEnded)?;
            launch(raw, &mut pointers)
        };
        // SAFETY: the caller promises it.
        unsafe { stream.submit_foreign_on(&operands, Some(kernel), &mut submit) }
    }
}
