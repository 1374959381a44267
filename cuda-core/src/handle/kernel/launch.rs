//! Launches of kernels, and of kernels that foreign code has loaded.

use std::{any::Any, borrow::Cow, ffi::c_void, sync::Arc};

use smallvec::SmallVec;

use crate::{
    handle::stream::submit_foreign_on,
    handle::{
        kernel::{arguments::Arguments, module::Function},
        stream::{Attached, Operand, Stream, trace},
    },
    protocol::{
        Access, Error, Feature, Launch, LaunchConfig, RawStream, Result, Ticket, Use, Work,
    },
};

impl Function {
    /// Launches the kernel on `stream`. The library orders the launch with every other use of its buffers.
    ///
    /// # Errors
    /// [`Error::Arguments`] if number, sizes or kinds do not fit the kernel's parameters,
    /// [`Error::InvalidLaunch`], [`Error::WrongDevice`], or an error of the backend.
    ///
    /// # Safety
    /// - The kernel accesses only the buffers among `arguments` and the variables of its module, inside their bounds.
    /// - It only reads buffers given as `Access::Read`, and `__constant__` variables.
    /// - No other code uses a buffer that was given as `Access::Write` while this call lasts.
    /// - Launches that overlap do not race on a variable. The library orders launches that use a variable after the
    ///   first call of [`Module::variable`](super::Module::variable). It never does so for modules from cubins.
    /// - A kernel that is launched as [dependent](LaunchConfig::dependent) waits for the earlier kernel in every
    ///   thread, before its first write and before its first access to memory that other work writes.
    ///
    /// If `stream` belongs to a recording, these rules hold at every replay, with the contents of the buffers at that
    /// time.
    #[inline]
    pub unsafe fn launch(
        &self,
        stream: &Stream,
        config: LaunchConfig,
        arguments: &Arguments<'_>,
    ) -> Result<Ticket> {
        stream.device().check_same("a kernel", self.device())?;
        self.check_shape(&config)?;
        arguments.check(self)?;
        let ticket = if self.claims_variables(stream) {
            // SAFETY: the kernel stays inside the operands, and the caller may use them.
            unsafe { self.submit_with_variables(stream, config, arguments) }?
        } else {
            let work = Work::Launch(self.work(config, arguments, Cow::Borrowed(&[])));
            // SAFETY: the operands are the buffers among the arguments. The caller may use them so,
            // and the kernel stays inside them. `self` holds the module during this call. A dropped module is unloaded
            // only after all earlier submissions (`DeviceCore::retire_module`).
            unsafe { stream.submit(&work, &arguments.operands, Attached::default()) }?
        };
        if !stream.is_recording() {
            trace::launched(ticket, self.name(), &config);
        }
        Ok(ticket)
    }

    #[inline]
    fn work<'a>(
        &self,
        config: LaunchConfig,
        arguments: &'a Arguments<'_>,
        variables: Cow<'a, [Use]>,
    ) -> Launch<'a> {
        Launch {
            function: self.id(),
            config,
            params: Cow::Borrowed(&arguments.bytes),
            relocations: Cow::Borrowed(&arguments.relocations),
            variables,
        }
    }

    /// Submits a launch that also uses variables of its module.
    ///
    /// # Safety
    /// The requirements of [`launch`](Self::launch).
    #[cold]
    unsafe fn submit_with_variables(
        &self,
        stream: &Stream,
        config: LaunchConfig,
        arguments: &Arguments<'_>,
    ) -> Result<Ticket> {
        let variables = self.variables(stream)?;
        let mut all: SmallVec<[_; 8]> = arguments.operands.iter().cloned().collect();
        let mut uses = Vec::with_capacity(variables.len());
        for (variable, access) in &variables {
            let operand = Operand::new(variable, 0..variable.bytes(), *access);
            uses.push(variable.region(0).used(variable.bytes(), *access));
            // One submission claims an allocation once: a variable may be an argument too.
            match all.iter_mut().find(|operand| operand.allocation.id() == variable.id()) {
                Some(argument) if *access == Access::Write => *argument = operand,
                Some(argument) => argument.range = operand.range,
                None => all.push(operand),
            }
        }
        let work = Work::Launch(self.work(config, arguments, Cow::Owned(uses)));
        // SAFETY: the operands are the buffers among the arguments and the variables that the launch claims. The caller
        // may use the buffers so, and the kernel stays inside all of them. `self` holds the module during this call. A
        // dropped module is unloaded only after all earlier submissions (`DeviceCore::retire_module`).
        unsafe { stream.submit(&work, &all, Attached::default()) }
    }

    /// Checks the limits that every backend has, so that a launch beyond them is the same error everywhere.
    #[inline]
    fn check_shape(&self, config: &LaunchConfig) -> Result<()> {
        let shape = self.shape();
        let fits = !config.is_empty()
            && config.threads_per_block() <= u64::from(shape.max_threads)
            && config.shared_bytes <= shape.max_shared_bytes
            && config.attributes.is_none();
        if fits { Ok(()) } else { self.check_slowly(config) }
    }

    /// Finds the number that is too large, if there is one. Launches with attributes come here too.
    #[cold]
    fn check_slowly(&self, config: &LaunchConfig) -> Result<()> {
        let LaunchConfig { grid, block, shared_bytes, attributes } = config;
        let shape = self.shape();
        let (threads, most) = (config.threads_per_block(), shape.max_threads);
        let detail = if config.is_empty() {
            format!(
                "grid {grid:?} or block {block:?} has a 0; without elements to work on, skip the launch"
            )
        } else if threads > u64::from(most) {
            format!("{threads} threads per block, the limit is {most}; use a smaller block")
        } else if *shared_bytes > shape.max_shared_bytes {
            let most = shape.max_shared_bytes;
            format!("{shared_bytes} bytes of dynamic shared memory, the limit is {most}; use less")
        } else if !attributes.is_none() && !self.device().capabilities().launch_attributes {
            let feature = Feature::LaunchAttributes;
            return Err(Error::unsupported(feature, &self.device().info().address));
        } else if let Some(detail) = attributes.cluster_misfit(*grid) {
            detail
        } else if attributes.cluster_blocks() > 1 && !self.device().info().has_clusters() {
            return Err(Error::unsupported(Feature::Cluster, &self.device().info().address));
        } else {
            return Ok(());
        };
        Err(Error::InvalidLaunch { kernel: self.name().to_owned(), detail })
    }
}

/// Bytes of parameters, aligned as no parameter needs more.
#[repr(align(256))]
struct Aligned<T>(T);

/// Parameters of more bytes are refused: the driver has the same limit.
const MAX_BYTES: usize = 32_764;

impl Arguments<'_> {
    /// Calls `launch` with the raw stream and a pointer to each argument, in the form in which `cuLaunchKernel` takes
    /// them. `launch` enqueues one kernel that foreign code has loaded. The library orders it with other uses of the
    /// buffers among the arguments. `kernel` keeps the kernel's module loaded, and is dropped on a thread of the device
    /// when the kernel has run.
    ///
    /// # Errors
    /// The errors of [`ForeignCall::submit`](crate::ForeignCall::submit), and [`Error::Arguments`] for an argument that
    /// cannot be passed.
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
        // SAFETY: a launch enqueues no other command, stays inside its operands, and may make their accesses. The
        // kernel keeps its module.
        unsafe { submit_foreign_on(stream, &operands, Some(kernel), &mut submit) }
    }
}
