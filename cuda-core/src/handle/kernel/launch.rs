//! Launches of kernels, with their arguments.
//!
//! [`Arguments`] holds the bytes of the arguments, the places of the addresses that the backend fills in, and the
//! buffers that the kernel reads and writes. [`Function::launch`] checks them against the parameters of the kernel.
//! [`Arguments::launch_foreign`] launches a kernel that foreign code has loaded, whose parameters are unknown.

use std::{any::Any, borrow::Cow, ffi::c_void, ops::Deref, sync::Arc};

use arrayvec::ArrayVec;
use smallvec::SmallVec;

use crate::{
    handle::{
        kernel::module::Function,
        memory::{DeviceBuffer, Slice, SliceMut, View},
        stream::{Attached, Operand, Stream, submit_foreign_on, trace_launched},
    },
    protocol::{
        Access, Element, Error, Feature, Launch, LaunchConfig, MAX_GRID, ParamInfo, ParamType,
        RawStream, Relocation, Result, ScalarKind, Ticket, Use, Work,
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
            trace_launched(ticket, self.name(), &config);
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
            && has_valid_grid(config.grid)
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
        } else if !has_valid_grid(*grid) {
            format!(
                "grid {grid:?} is too large, the limit is {MAX_GRID:?}; use fewer blocks, and a loop in the kernel"
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

#[inline]
const fn has_valid_grid([x, y, z]: [u32; 3]) -> bool {
    x <= MAX_GRID[0] && y <= MAX_GRID[1] && z <= MAX_GRID[2]
}

/// Bytes of arguments that need no heap.
const INLINE_BYTES: usize = 128;

/// No parameter is aligned to more.
const MAX_ALIGN: usize = 256;

/// The maximum number of bytes of the arguments of a launch. CUDA takes 32,764.
const MAX_BYTES: usize = 1 << 16;

/// The arguments of a launch, in the order of the kernel's parameters. Buffers are borrowed.
pub struct Arguments<'a> {
    bytes: List<u8, INLINE_BYTES>,
    places: List<Place, 16>,
    relocations: List<Relocation, 6>,
    operands: List<Operand<'a>, 6>,
    /// The reason why the launch cannot take an argument.
    refusal: Option<Box<str>>,
    /// Whether memory that safe code can name twice must not be written through one of its names.
    unaliased: bool,
}

impl Default for Arguments<'_> {
    #[inline]
    fn default() -> Self {
        Self {
            bytes: List::new(),
            places: List::new(),
            relocations: List::new(),
            operands: List::new(),
            refusal: None,
            unaliased: false,
        }
    }
}

impl<'a> Arguments<'a> {
    /// Creates an empty list of arguments.
    #[inline]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a number.
    #[inline]
    pub fn number<T: Element>(&mut self, value: &T, kind: ArgumentKind) -> &mut Self {
        self.push(bytemuck::bytes_of(value), align_of::<T>(), kind);
        self
    }

    /// Adds a struct, passed by value.
    #[inline]
    pub fn value<T: Element>(&mut self, value: &T) -> &mut Self {
        self.raw(bytemuck::bytes_of(value), align_of::<T>())
    }

    /// Adds the bytes of a struct that is passed by value. `align` is its alignment in bytes, 256 at most.
    #[inline]
    pub fn raw(&mut self, bytes: &[u8], align: usize) -> &mut Self {
        self.push(bytes, align, ArgumentKind::Bytes);
        self
    }

    /// Returns the offset of the argument, or refuses the launch if the arguments have more than [`MAX_BYTES`] bytes.
    #[inline(always)] // the size is known at every call, so this compiles to a few stores
    fn push(&mut self, bytes: &[u8], align: usize, kind: ArgumentKind) -> Option<u32> {
        // `raw` may pass an alignment that is not a power of two. The check against the kernel then returns an error.
        let mask = align.clamp(1, MAX_ALIGN) - 1;
        let start = (self.bytes.len() + mask) & !mask;
        if bytes.len() > MAX_BYTES || start > MAX_BYTES - bytes.len() {
            self.refuse_bytes(start, bytes.len());
            return None;
        }
        while self.bytes.len() < start {
            self.bytes.push(0);
        }
        self.bytes.extend(bytes);
        // Both are at most `MAX_BYTES`.
        let (start, size) = (start as u32, bytes.len() as u32);
        self.places.push(Place::new(start, size, kind));
        Some(start)
    }

    #[cold]
    fn refuse_bytes(&mut self, start: usize, size: usize) {
        let count = self.places.len();
        self.refuse(format!(
            "argument {count} has {size} bytes behind {start} bytes of other arguments, and the limit of all is {MAX_BYTES}; pass large data in a buffer"
        ));
    }

    /// Adds the address of a buffer.
    #[inline]
    pub fn buffer<T>(&mut self, buffer: &'a DeviceBuffer<T>, access: Access) -> &mut Self {
        self.view(buffer.view(), access)
    }

    /// Adds the address of a slice that the kernel reads.
    #[inline]
    pub fn slice<T>(&mut self, slice: Slice<'a, T>) -> &mut Self {
        self.part(slice, Access::Read)
    }

    /// Adds the address of a part of a buffer. Takes a shared borrow for every access, as [`buffer`](Arguments::buffer)
    /// does. With [`Access::Write`], the caller of the launch must ensure that no other code uses the part.
    #[inline]
    pub fn part<T>(&mut self, slice: Slice<'a, T>, access: Access) -> &mut Self {
        self.view(slice.view(), access)
    }

    /// Adds the address of a slice that the kernel reads and writes.
    #[inline]
    pub fn slice_mut<T>(&mut self, slice: &'a SliceMut<'_, T>) -> &mut Self {
        self.view(slice.view(), Access::Write)
    }

    /// Makes the launch fail with [`Error::Arguments`] and this reason. A type of argument calls this if its value
    /// cannot be passed, because the methods that add an argument return no error.
    #[cold]
    pub fn refuse(&mut self, reason: String) -> &mut Self {
        self.refusal.get_or_insert_with(|| reason.into());
        self
    }

    /// Makes the launch fail with [`Error::Arguments`] if the kernel may write memory of an argument through another
    /// name:
    /// - The kernel writes a scalar, and another argument is the same scalar.
    /// - The kernel writes an argument that is a variable of a module.
    /// - The kernel reads an argument that is a variable of its own module, and may write that variable.
    ///
    /// Safe code can pass such arguments, because all handles of a scalar or of a variable are the same memory.
    #[inline]
    pub fn require_unaliased(&mut self) -> &mut Self {
        self.unaliased = true;
        self
    }

    #[inline]
    fn view(&mut self, view: View<'a>, access: Access) -> &mut Self {
        let Some(at) = self.push(&[0; 8], 8, ArgumentKind::Integer) else { return self };
        self.relocations.push(Relocation { at, region: view.region(), bytes: view.bytes, access });
        self.operands.push(view.operand(access));
        self
    }

    /// The reason why the launch cannot take an argument.
    pub(super) fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// The byte offsets of the arguments.
    pub(super) fn starts(&self) -> impl Iterator<Item = usize> {
        self.places.iter().map(Place::start)
    }

    /// Returns the number of arguments.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns whether there are no arguments.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Checks number, sizes and kinds against the kernel's parameters.
    #[inline]
    pub(super) fn check(&self, function: &Function) -> Result<()> {
        let expected = &function.shape().expected;
        let fit = expected.len() == self.places.len()
            && self.refusal.is_none()
            && !(self.unaliased && self.has_marked() && self.alias(function).is_some())
            && expected
                .iter()
                .zip(self.places.iter())
                .all(|(expected, place)| expected.takes(place));
        if fit { Ok(()) } else { Err(self.misfit(function)) }
    }

    /// Whether submissions with the memory of an argument take turns. Scalars and variables do from the start.
    #[inline]
    fn has_marked(&self) -> bool {
        self.operands.iter().any(|operand| operand.allocation.takes_turns())
    }

    /// Finds memory of an argument that the kernel may write through another name. Returns the reason for the error.
    #[cold]
    fn alias(&self, function: &Function) -> Option<String> {
        let operands = || self.operands.iter().enumerate();
        operands().find_map(|(at, operand)| {
            let memory = operand.allocation;
            let name = self.parameter(function, at);
            match operand.access {
                Access::Write if memory.is_scalar() => {
                    let is_other = |(other, of): &(usize, &Operand<'_>)| {
                        *other != at && of.allocation.id() == memory.id()
                    };
                    let (other, _) = operands().find(is_other)?;
                    let other = self.parameter(function, other);
                    Some(format!(
                        "the kernel writes {name}, and {other} is the same scalar; pass another scalar"
                    ))
                }
                Access::Write => memory.is_variable().then(|| {
                    format!(
                        "the kernel writes {name}, which is a variable of a module, and other handles share its memory; pass a buffer, and copy it into the variable with `memory::copy`"
                    )
                }),
                Access::Read => {
                    let variable = function.writes_variable(memory.id())?;
                    Some(format!(
                        "{name} is the variable `{variable}`, which the kernel may write; copy the variable into a buffer, and pass that"
                    ))
                }
            }
        })
    }

    /// The parameter of an operand, in words. Its argument is the one with its relocation.
    fn parameter(&self, function: &Function, operand: usize) -> String {
        let at = self.relocations[operand].at as usize;
        let index = self.places.iter().position(|place| place.start() == at).unwrap_or(operand);
        let name = function.info().params.get(index).map_or("", |param| &param.name);
        format!("parameter {index} (`{name}`)")
    }

    /// The error for arguments that do not fit. Names the first of them, and the reason.
    #[cold]
    fn misfit(&self, function: &Function) -> Error {
        let params = &function.info().params;
        let wrong = |detail| Error::Arguments { kernel: function.name().to_owned(), detail };
        if let Some(reason) = &self.refusal {
            return wrong(reason.to_string());
        }
        let (want, have) = (params.len(), self.places.len());
        let pairs = params.iter().zip(self.places.iter()).enumerate();
        let mut misfits = pairs.filter_map(|(index, (param, place))| {
            let why = place.misfit(param)?;
            Some(format!("parameter {index} (`{}`) {why}", param.name))
        });
        let counts = (want != have).then(|| {
            let types: Vec<_> = params.iter().map(|param| param.ty.to_string()).collect();
            format!("it takes {want} arguments ({}), the launch has {have}", types.join(", "))
        });
        let aliased = || if self.unaliased { self.alias(function) } else { None };
        let reason = counts.or_else(|| misfits.next()).or_else(aliased);
        wrong(reason.unwrap_or_default())
    }
}

/// Parameters of more bytes are refused: the driver has the same limit.
const MAX_FOREIGN_BYTES: usize = 32_764;

/// Bytes of parameters, aligned as no parameter needs more.
#[repr(align(256))]
struct Aligned<T>(T);

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
        if self.bytes.len() > MAX_FOREIGN_BYTES {
            let detail = format!("{} bytes, the limit is {MAX_FOREIGN_BYTES}", self.bytes.len());
            return Err(refused(detail));
        }
        let mut bytes = Box::new(Aligned([0u8; MAX_FOREIGN_BYTES + 4]));
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

/// The kind of an argument, which is checked against the type in the kernel's PTX.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArgumentKind {
    /// An integer, or an address.
    Integer,
    /// A floating-point number.
    Float,
    /// Bytes without a known type, such as a struct.
    Bytes,
}

impl ArgumentKind {
    /// Returns whether an argument of this kind fits a parameter that the PTX declares as `ty`. Every kind fits a
    /// parameter of plain bits. Compilers declare structs so, and from CUDA 13 on also many numbers.
    pub fn fits(self, ty: ParamType) -> bool {
        use ScalarKind::{Bfloat, Float, Signed, Unsigned};
        match self {
            ArgumentKind::Integer => !matches!(ty.kind(), Float | Bfloat),
            ArgumentKind::Float => !matches!(ty.kind(), Unsigned | Signed),
            ArgumentKind::Bytes => true,
        }
    }
}

/// The position of an argument, and its kind.
#[derive(Clone, Copy)]
struct Place {
    at: Span,
    kind: ArgumentKind,
}

/// A byte offset and a size in bytes, in one word: stored and compared at once.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Span(u64);

impl Span {
    #[inline]
    fn new(offset: u32, size: u32) -> Self {
        Self(u64::from(offset) << 32 | u64::from(size))
    }
}

impl Place {
    #[inline]
    pub(super) fn new(offset: u32, size: u32, kind: ArgumentKind) -> Self {
        Self { at: Span::new(offset, size), kind }
    }

    /// The byte offset.
    pub(super) fn start(&self) -> usize {
        (self.at.0 >> 32) as usize
    }

    /// The reason why it does not fit a parameter.
    #[cold]
    pub(super) fn misfit(&self, param: &ParamInfo) -> Option<String> {
        let Place { at: Span(at), kind } = *self;
        let (offset, size) = ((at >> 32) as u32, at as u32);
        let ty = param.ty;
        if param.size != size {
            let advice = advice(param);
            return Some(format!(
                "has type {ty} ({} bytes), the argument has {size}; {advice}",
                param.size
            ));
        }
        if !kind.fits(ty) {
            let given = if kind == ArgumentKind::Float { "a float" } else { "an integer" };
            return Some(format!("has type {ty}, the argument is {given}; {}", advice(param)));
        }
        let advice = "give the struct the alignment that the kernel declares";
        (param.offset != offset)
            .then(|| format!("is at byte {}, the argument at {offset}; {advice}", param.offset))
    }
}

/// Returns an argument that fits the parameter, in words.
#[cold]
fn advice(param: &ParamInfo) -> String {
    let ty = param.ty.to_string();
    match ty.as_str() {
        "f32" | "f64" => format!("pass an `{ty}`: `1.0{ty}`, or `x as {ty}`"),
        "u64" => "pass a `u64` or a buffer".into(),
        "u8" | "u16" | "u32" => format!("pass a `{ty}`: `1{ty}`, or `n as {ty}`"),
        "s8" | "s16" | "s32" | "s64" => {
            let ty = format!("i{}", &ty[1..]);
            format!("pass an `{ty}`: `1{ty}`, or `n as {ty}`")
        }
        _ if matches!(param.ty.kind(), ScalarKind::Float | ScalarKind::Bfloat) => {
            format!("pass floating-point data of {} bytes", param.size)
        }
        _ => format!("pass a value of {} bytes", param.size),
    }
}

/// A parameter, as far as an argument is compared with it.
pub(super) struct ExpectedArgument {
    at: Span,
    /// Whether it takes an argument, by the argument's kind.
    takes: [bool; 3],
}

impl ExpectedArgument {
    pub(super) fn new(param: &ParamInfo) -> Self {
        use ArgumentKind::{Bytes, Float, Integer};
        let takes = [Integer, Float, Bytes].map(|kind| kind.fits(param.ty));
        Self { at: Span::new(param.offset, param.size), takes }
    }

    #[inline]
    fn takes(&self, place: &Place) -> bool {
        self.at == place.at && self.takes[place.kind as usize]
    }
}

/// A list that is stored inline and moves to the heap when it grows. A launch fills it and reads it once.
struct List<T, const N: usize> {
    /// Full once the list has spilled, so that `push` checks this field only.
    inline: ArrayVec<T, N>,
    /// All items, once they do not fit in place.
    spilled: Vec<T>,
}

impl<T: Clone, const N: usize> List<T, N> {
    #[inline]
    pub(super) const fn new() -> Self {
        Self { inline: ArrayVec::new_const(), spilled: Vec::new() }
    }

    #[inline]
    pub(super) fn push(&mut self, item: T) {
        if let Err(full) = self.inline.try_push(item) {
            self.spill(&[full.element()]);
        }
    }

    #[cold]
    fn spill(&mut self, items: &[T]) {
        if self.spilled.is_empty() {
            self.spilled.reserve(4 * N);
            self.spilled.extend_from_slice(&self.inline);
        }
        self.spilled.extend_from_slice(items);
        while let (Some(item), false) = (items.first(), self.inline.is_full()) {
            self.inline.push(item.clone());
        }
    }
}

impl<T: Copy, const N: usize> List<T, N> {
    #[inline]
    pub(super) fn extend(&mut self, items: &[T]) {
        if self.inline.try_extend_from_slice(items).is_err() {
            self.spill(items);
        }
    }
}

impl<T, const N: usize> Deref for List<T, N> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        if self.spilled.is_empty() { &self.inline } else { &self.spilled }
    }
}
