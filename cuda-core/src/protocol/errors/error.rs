//! [`Error`], the cause of a failed call, and its [`Status`] codes.
//!
//! An error is plain data, so that it can cross a link. It states whether a program can repeat the call, and which
//! named operation made the call.

use std::{borrow::Cow, error::Error as StdError, fmt, time::Duration};

use crate::protocol::{
    ExpectedShape, Fault, Feature, Limit, MemoryConflict, Misuse, Name, OtherError, Quantity,
    errors::limit::out_of_range,
};

/// The result of every call that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The cause of a failure. The message says what to do, and the fields have its parts for a program that acts on them.
///
/// ```
/// use cuda_core::{Error, Feature, Limit, Misuse, Quantity};
///
/// /// The length with which a program tries again, or its reason to give up.
/// fn next_length(length: usize, error: &Error) -> Result<usize, &'static str> {
///     match error.root() {
///         Error::OutOfRange { quantity: Quantity::Elements, limit: Limit::AtMost(most), .. } => Ok(*most as usize),
///         Error::Unsupported { feature: Feature::GrowableBuffer, .. } => Err("allocate the whole length at once"),
///         Error::Misuse(Misuse::GraphNotLaunched) => Err("launch the graph first"),
///         error if error.is_retryable() => Ok(length),
///         _ => Err("stop"),
///     }
/// }
/// let error = Limit::AtMost(8).check("a buffer", Quantity::Elements, 9).unwrap_err();
/// assert_eq!(next_length(9, &error), Ok(8));
/// let error = Error::unsupported(Feature::GrowableBuffer, "cuda:0");
/// assert_eq!(next_length(9, &error), Err("allocate the whole length at once"));
/// assert_eq!(next_length(9, &Misuse::GraphNotLaunched.into()), Err("launch the graph first"));
/// ```
#[derive(Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No CUDA driver library was found on this machine.
    #[error(
        "no CUDA driver found ({detail}); install NVIDIA's driver, or use the device `cpu` (feature `cpu` of `cuda-async`), which needs none"
    )]
    NoDriver {
        /// The message of the loader.
        detail: String,
    },
    /// The CUDA driver library is too old, or could not be initialized.
    #[error("the CUDA driver cannot be used: {detail}")]
    DriverUnusable {
        /// The cause, and what to do.
        detail: String,
    },
    /// The address names no device.
    #[error("no device `{address}`; available: {available}")]
    NoDevice {
        /// The requested address.
        address: String,
        /// The devices that exist, in words.
        available: String,
    },
    /// The device has too little free memory, or a memory pool has reached its limit.
    #[error(
        "{}", out_of_memory(*requested, *free, *total, .pool.as_deref())
    )]
    OutOfMemory {
        /// The requested bytes.
        requested: u64,
        /// The bytes that were free at that time, after dropped buffers and idle memory of all pools were reclaimed.
        free: u64,
        /// The total bytes of the device, or the limit of `pool`.
        total: u64,
        /// The name of the memory pool whose limit is the cause. `free` and `total` are then those of the pool. `None`
        /// if the device has too little free memory.
        pool: Option<Name>,
    },
    /// The host has too little memory, or too little that can be pinned.
    #[error("out of host memory: {requested} bytes requested; free host memory, or split the work")]
    OutOfHostMemory {
        /// The requested bytes.
        requested: u64,
    },
    /// The PTX cannot be parsed.
    #[error("the PTX cannot be parsed: {detail}")]
    InvalidPtx {
        /// The problem and its position.
        detail: String,
    },
    /// The PTX is newer than the driver.
    #[error(
        "the PTX needs a newer driver: it is PTX ISA {major}.{minor}, this driver takes {detail}; compile it with an older toolkit or update the driver"
    )]
    PtxTooNew {
        /// The major version of the PTX.
        major: u32,
        /// The minor version of the PTX.
        minor: u32,
        /// The driver's message, or the version that it supports.
        detail: String,
    },
    /// The device's compiler refused the module.
    #[error("the device cannot load the module: {log}")]
    LoadFailed {
        /// The compiler's log.
        log: String,
    },
    /// A module has no kernel of that name.
    #[error("no kernel `{name}` in the module; it has {available}")]
    NoSuchKernel {
        /// The requested name.
        name: String,
        /// The kernels of the module, or its mangled C++ functions of the requested name, in words.
        available: String,
    },
    /// A module has no variable of that name.
    #[error(
        "no variable `{name}` in the module; it has {available}; compilers remove unused variables"
    )]
    NoSuchVariable {
        /// The requested name.
        name: String,
        /// The variables of the module, in words.
        available: String,
    },
    /// The arguments of a launch do not fit the kernel's parameters.
    #[error("wrong arguments for kernel `{kernel}`: {detail}")]
    Arguments {
        /// The kernel.
        kernel: String,
        /// The argument and the mismatch.
        detail: String,
    },
    /// The device cannot run the launch configuration.
    #[error("kernel `{kernel}` has an invalid launch configuration: {detail}")]
    InvalidLaunch {
        /// The kernel.
        kernel: String,
        /// The number and its limit.
        detail: String,
    },
    /// A position, a length or a count is outside its valid range.
    #[error("{}", out_of_range(object, *quantity, *given, *limit))]
    OutOfRange {
        /// The operation or object, in words.
        object: Cow<'static, str>,
        /// The quantity of the object that is invalid.
        quantity: Quantity,
        /// Its value.
        given: u64,
        /// The valid values.
        limit: Limit,
    },
    /// A tensor has a shape that an operation does not take.
    #[error("{operation}: the shape {given:?} {expected}")]
    Shape {
        /// The operation.
        operation: Cow<'static, str>,
        /// The shape.
        given: Box<[usize]>,
        /// The shapes that the operation takes.
        expected: ExpectedShape,
    },
    /// A command names an object that the device does not have.
    #[error(
        "the device has no {object} with the id {id}; create it first, and use it only until it is freed"
    )]
    NoSuchObject {
        /// The kind of the object.
        object: Cow<'static, str>,
        /// The id.
        id: u64,
    },
    /// A buffer, module or stream was used with a device that it does not live on. Every call of
    /// [`Device::open`](crate::Device::open) gives a device of its own, also of the same address; `cuda_async::open`
    /// gives the same one every time.
    #[error("{}", wrong_device(what, lives_on, used_on))]
    WrongDevice {
        /// The object.
        what: Cow<'static, str>,
        /// The device on which the object lives.
        lives_on: String,
        /// The device on which the object was used.
        used_on: String,
    },
    /// A kernel faulted. Work that was in flight fails with this. The device is lost until it is reset, where that can
    /// be done.
    #[error("the device faulted: {0}{advice}", advice = .0.advice())]
    Fault(Box<Fault>),
    /// The device was lost by an earlier error. Later submissions are refused.
    #[error("the device `{address}` is lost: {cause}")]
    DeviceLost {
        /// The device.
        address: String,
        /// The earlier error, and how to go on.
        cause: String,
    },
    /// Work reads memory whose contents were lost: the work that should have written it failed or was skipped.
    #[error(
        "the contents of a buffer were lost: {}; overwrite the whole buffer (upload, fill or copy) or drop it",
        without_advice(cause)
    )]
    ContentsLost {
        /// The root cause.
        cause: Box<Error>,
    },
    /// The device does not support a feature.
    #[error("{feature} is not supported on `{device}`; {}", .feature.advice())]
    Unsupported {
        /// The feature.
        feature: Feature,
        /// The device.
        device: String,
    },
    /// An op that waits for host data was submitted without waiting, or recorded.
    #[error("{}", needs_host_data(step, .operation.as_deref()))]
    NeedsHostData {
        /// The step that waits, such as `to_host` or `settled`.
        step: &'static str,
        /// The names of the operations that the step belongs to, outermost first, separated by `/`.
        operation: Option<Name>,
    },
    /// An op needs kernels that are not loaded on the device, and was submitted without waiting, or recorded.
    #[error(
        "the kernels of this operation are not loaded on the device, and an operation that is recorded or submitted without waiting cannot wait until they are; first run `{by}` on the device"
    )]
    NotLoaded {
        /// The operation that loads them, such as `Tensor::<f32>::warm_up()`.
        by: Cow<'static, str>,
    },
    /// A step of a named operation failed. [`root`](Error::root) is the error of the step.
    #[error("operation \"{operation}\": {cause}")]
    InOperation {
        /// The names of the operations that the step belongs to, outermost first, separated by `/`.
        operation: Name,
        /// The error of the step.
        cause: Box<Error>,
    },
    /// A stream has too much in flight for an operation that was submitted without waiting. Nothing was submitted.
    #[error(
        "the stream has {in_flight} {unit} in flight, and the limit is {limit}; try again when some of that work has run, or use `.await`, `.sync()` or `.sync_on(&stream)`, which wait"
    )]
    Busy {
        /// The unit of the limit: submissions, or bytes of host memory that copies use.
        unit: &'static str,
        /// The number of units in flight.
        in_flight: u64,
        /// The limit of the device.
        limit: u64,
    },
    /// A mistake of the program in the composition or the run of an operation. The same call fails again.
    #[error(transparent)]
    Misuse(#[from] Misuse),
    /// An operation was polled again after its end.
    #[error("this operation has already ended and cannot run again; build a new one")]
    AlreadyEnded,
    /// Code of the program panicked while an operation ran, so it has no result.
    #[error(
        "{what} panicked and has no result; fix the cause of the panic, and build a new operation"
    )]
    Panicked {
        /// The operation.
        what: Cow<'static, str>,
    },
    /// An operation was not complete within its time limit.
    #[error(
        "the operation was not complete within {after:?}; submitted work runs on, and keeps its memory until it ends; allow more time, or have less work in flight"
    )]
    TimedOut {
        /// The time limit.
        after: Duration,
    },
    /// An operation was run through the context of a script, but outside of that script.
    #[error(
        "this operation was awaited outside of the script whose context runs it; await it in the closure of that script, or run it with `.await`"
    )]
    OutsideScript,
    /// The `Arc` in an output has other owners, so its value cannot be taken out.
    #[error(
        "the value has {others} more owners; drop the other clones first (a `shared()` operation holds one too), or use the `Arc`"
    )]
    StillShared {
        /// The number of other owners.
        others: usize,
    },
    /// The operating system refused a resource that the library needs, such as a thread.
    #[error("{what}: {detail}")]
    Host {
        /// The failed attempt with its object, and the advice if there is any.
        what: Cow<'static, str>,
        /// The message of the system.
        detail: String,
    },
    /// A driver call failed in a way that no other variant names.
    #[error("{call} failed: {name} ({code}); see NVIDIA's documentation of `{call}`")]
    Driver {
        /// The driver call.
        call: Cow<'static, str>,
        /// The status that the call returned.
        code: i32,
        /// The name and the text of the status.
        name: String,
    },
    /// A node refused a request, or ended a lease. [`Status`] states the action to take.
    #[error("the node `{address}`: {status}: {detail}")]
    Remote {
        /// The address of the node.
        address: String,
        /// The reason.
        status: Status,
        /// The node's message.
        detail: String,
    },
    /// No node answers at an address.
    #[error(
        "no node answers at `{address}`: {cause}; check that `cuda-node` runs there, with its UDP port open"
    )]
    Unreachable {
        /// The address.
        address: String,
        /// The cause.
        cause: String,
    },
    /// The connection to a node was lost and could not be resumed, or the worker of the lease ended.
    #[error(
        "the lease on `{address}` is disconnected: {cause}; {run}; acquire a new lease",
        run = if *.may_have_run { "the operation may have run, and is not replayed" } else { "the operation has not run" }
    )]
    Disconnected {
        /// The address of the node.
        address: String,
        /// The cause.
        cause: String,
        /// Whether the operation may have run on the device.
        may_have_run: bool,
    },
    /// An error of the program itself, which [`Error::other`] has wrapped.
    #[error(transparent)]
    Other(OtherError),
}

/// Implements `variant`.
macro_rules! variants {
    ($($variant:ident),*) => {
        impl Error {
            /// The name of the variant.
            fn variant(&self) -> &'static str {
                match self {
                    $(Self::$variant { .. } => stringify!($variant),)*
                }
            }
        }
    };
}

variants! {
    NoDriver, DriverUnusable, NoDevice, OutOfMemory, OutOfHostMemory, InvalidPtx, PtxTooNew,
    LoadFailed, NoSuchKernel, NoSuchVariable, Arguments, InvalidLaunch, OutOfRange, Shape, NoSuchObject,
    WrongDevice, Fault, DeviceLost, ContentsLost, Unsupported, NeedsHostData, NotLoaded,
    InOperation, Busy, Misuse, AlreadyEnded, Panicked, TimedOut, OutsideScript, StillShared,
    Host, Driver, Remote, Unreachable, Disconnected, Other
}

impl Error {
    /// Returns the error for a feature that `device` does not support.
    #[cold]
    pub fn unsupported(feature: Feature, device: &str) -> Self {
        Error::Unsupported { feature, device: device.into() }
    }

    /// Returns the error for a `quantity` of `object` that is `given`, outside of `limit`. [`Limit::check`] compares
    /// them.
    #[cold]
    pub fn out_of_range(
        object: impl Into<Cow<'static, str>>,
        quantity: Quantity,
        given: u64,
        limit: Limit,
    ) -> Self {
        Error::OutOfRange { object: object.into(), quantity, given, limit }
    }

    /// Returns the error for a command that names a missing `object`, a noun such as "stream".
    #[cold]
    pub fn no_such_object(object: impl Into<Cow<'static, str>>, id: u64) -> Self {
        Error::NoSuchObject { object: object.into(), id }
    }

    /// Returns the error for memory that `operation` cannot use.
    #[cold]
    pub fn memory(operation: impl Into<Cow<'static, str>>, conflict: MemoryConflict) -> Self {
        Misuse::Memory { operation: operation.into(), conflict }.into()
    }

    /// Returns the error for an invalid setting of `object`. `cause` is an error or a text.
    #[cold]
    pub fn setting(
        object: impl Into<Cow<'static, str>>,
        cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Misuse::Setting { object: object.into(), cause: OtherError::new(cause.into()) }.into()
    }

    /// Returns the error for an attempt `what` that the operating system refused with `error`.
    #[cold]
    pub fn host(what: impl Into<Cow<'static, str>>, error: &impl std::fmt::Display) -> Self {
        Error::Host { what: what.into(), detail: error.to_string() }
    }

    /// Wraps an error of the program itself, such as one from a closure of `then`, `try_map` or `script`. `cuda_async`
    /// gives it back unchanged: [`downcast_ref`](Error::downcast_ref) finds it.
    ///
    /// Many errors of `std` convert by `?`. So does a type of your own for which you implement `From`:
    ///
    /// ```
    /// use cuda_core::Error;
    ///
    /// #[derive(Debug, PartialEq, thiserror::Error)]
    /// #[error("layer {0} has no weights")]
    /// struct NoWeights(usize);
    ///
    /// impl From<NoWeights> for Error {
    ///     fn from(error: NoWeights) -> Self {
    ///         Error::other(error)
    ///     }
    /// }
    ///
    /// fn load(layer: usize) -> Result<f32, Error> {
    ///     let scale: f32 = "0.5".parse()?;
    ///     if layer == 0 { Ok(scale) } else { Err(NoWeights(layer))? }
    /// }
    /// assert_eq!(load(1).unwrap_err().downcast_ref(), Some(&NoWeights(1)));
    /// ```
    #[cold]
    pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        match error.into().downcast::<Error>() {
            Ok(own) => *own,
            Err(other) => Error::Other(OtherError::new(other)),
        }
    }

    /// Returns the error that [`Error::other`] or [`Error::setting`] wrapped, if it has the type `E`.
    pub fn downcast_ref<E: std::error::Error + 'static>(&self) -> Option<&E> {
        match self.root() {
            Error::Other(other) | Error::Misuse(Misuse::Setting { cause: other, .. }) => {
                other.get().downcast_ref()
            }
            _ => None,
        }
    }

    /// Returns the error of work that reads memory which this error has poisoned.
    pub fn poison(self) -> Self {
        match self {
            Error::ContentsLost { .. } => self,
            cause => Error::ContentsLost { cause: Box::new(cause) },
        }
    }

    /// Returns the status of this error, so that a program can treat errors of leases and of local devices alike.
    ///
    /// An error of a node has the status that the node gave. Errors of any device have the status that fits: too little
    /// free device memory is [`Status::CapacityExceeded`], more than the device has [`Status::TooLarge`], code that
    /// cannot be loaded [`Status::LoadFailed`], a refused launch or a fault [`Status::LaunchFailed`], and a lost
    /// connection [`Status::Disconnected`]. Other errors have none.
    pub fn status(&self) -> Option<Status> {
        Some(match self.root() {
            Error::Remote { status, .. } => *status,
            Error::OutOfMemory { requested, total, .. } => Status::of_shortage(*requested, *total),
            Error::InvalidPtx { .. } | Error::PtxTooNew { .. } | Error::LoadFailed { .. } => {
                Status::LoadFailed
            }
            Error::Arguments { .. } | Error::InvalidLaunch { .. } | Error::Fault(_) => {
                Status::LaunchFailed
            }
            Error::Disconnected { .. } | Error::Unreachable { .. } => Status::Disconnected,
            _ => return None,
        })
    }

    /// Returns whether this error makes the device unusable until it is reset. Not every device can be reset.
    pub fn is_sticky(&self) -> bool {
        match self.root() {
            Error::Fault(_) | Error::DeviceLost { .. } | Error::Disconnected { .. } => true,
            Error::Remote { status, .. } => status.ends_lease(),
            _ => false,
        }
    }

    /// Returns whether the same call can succeed later without any change to it.
    pub fn is_retryable(&self) -> bool {
        match self.root() {
            Error::OutOfHostMemory { .. } | Error::Busy { .. } | Error::Unreachable { .. } => true,
            _ => self.status().is_some_and(Status::is_retryable),
        }
    }

    /// Returns the error for a `step` that waits for host data where no step may wait. `step` is its kind, such as
    /// `to_host`.
    #[cold]
    pub fn needs_host_data(step: &'static str) -> Self {
        Error::NeedsHostData { step, operation: None }
    }

    /// Replaces the step of [`Error::NeedsHostData`], for a caller that knows the step more exactly. Other errors stay
    /// as they are.
    #[cold]
    pub fn of_step(self, step: &'static str) -> Self {
        match self {
            Error::NeedsHostData { operation, .. } => Error::NeedsHostData { step, operation },
            other => other,
        }
    }

    /// Adds the name of the operation in which the error occurred. If the error already names an operation, that
    /// operation is inside this one: `attention` turns `read` into `attention/read`.
    ///
    /// [`Error::NeedsHostData`] stays that variant. Every other error becomes [`Error::InOperation`], whose
    /// [`root`](Self::root) is the error itself.
    ///
    /// ```
    /// use cuda_core::Error;
    /// let error = Error::OutOfHostMemory { requested: 8 }.in_operation("read").in_operation("attention");
    /// assert!(error.to_string().starts_with("operation \"attention/read\": out of host memory"));
    /// assert_eq!(error.root(), &Error::OutOfHostMemory { requested: 8 });
    /// ```
    #[cold]
    pub fn in_operation(self, name: &str) -> Self {
        match self {
            Error::NeedsHostData { step, operation } => {
                let operation = Some(joined(name, operation.as_deref()));
                Error::NeedsHostData { step, operation }
            }
            Error::InOperation { operation, cause } => {
                Error::InOperation { operation: joined(name, Some(&operation)), cause }
            }
            cause => Error::InOperation { operation: name.into(), cause: Box::new(cause) },
        }
    }

    /// Returns the error without the names of operations: the cause of an [`Error::InOperation`], or else this error.
    pub fn root(&self) -> &Error {
        match self {
            Error::InOperation { cause, .. } => cause.root(),
            error => error,
        }
    }

    /// Returns the names of the operations in which the error occurred, outermost first and separated by `/`, if it
    /// names any.
    pub fn operation(&self) -> Option<&str> {
        match self {
            Error::InOperation { operation, .. } => Some(operation),
            Error::NeedsHostData { operation, .. } => operation.as_deref(),
            _ => None,
        }
    }

    /// Replaces the [root](Self::root) and keeps the names.
    pub fn map_root(self, map: impl FnOnce(Error) -> Error) -> Self {
        match self {
            Error::InOperation { operation, cause } => {
                Error::InOperation { operation, cause: Box::new(cause.map_root(map)) }
            }
            error => map(error),
        }
    }
}

/// Writes the variant and the message: `OutOfHostMemory: out of host memory: ..`. [`Error::InOperation`] is followed by
/// the variant of its root in parentheses. A `main` that returns an error prints this.
impl std::fmt::Debug for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.variant())?;
        if let Error::InOperation { .. } = self {
            write!(f, "({})", self.root().variant())?;
        }
        write!(f, ": {self}")
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        Error::Fault(Box::new(fault))
    }
}

/// The message of a cause. The advice of a fault is left out: the device may have been reset since.
fn without_advice(cause: &Error) -> String {
    match cause {
        Error::Fault(fault) => format!("the device faulted: {fault}"),
        other => other.to_string(),
    }
}

/// The message of [`Error::OutOfMemory`].
fn out_of_memory(requested: u64, free: u64, total: u64, pool: Option<&str>) -> String {
    let (event, advice) = match (pool, requested > total) {
        (Some(pool), true) => (
            format!("the memory pool \"{pool}\" has a smaller limit than the request"),
            "create the pool with a larger limit, or split the work",
        ),
        (Some(pool), false) => (
            format!("the memory pool \"{pool}\" has reached its limit"),
            "drop buffers of the pool, or create it with a larger limit",
        ),
        (None, true) => ("out of device memory".into(), "the device has less: split the work"),
        (None, false) => ("out of device memory".into(), "drop buffers or split the work"),
    };
    format!("{event}: {requested} bytes requested, {free} of {total} bytes free; {advice}")
}

/// The message of [`Error::WrongDevice`]. Two opened devices may have the same address, so it then says more.
fn wrong_device(what: &str, lives_on: &str, used_on: &str) -> String {
    if lives_on == used_on {
        return format!(
            "{what} was made with another handle of `{lives_on}`: each `Device::open` gives a device of its own; \
             use the `Device` that made it, or `cuda_async::open`, which gives the same one every time; a buffer gets to \
             another device with `to_device`, an operation with `.on(&device)`"
        );
    }
    let advice = match what {
        "a buffer" => {
            "copy it there first, with `to_device` (`cuda_tensor::to_device` for tensors) or through the host"
        }
        "a kernel" => {
            "run the operation on the kernel's device, with `.on(&device)`, `.sync_on(&stream)` or \
             `cuda_async::set_default_device`; or load its module on that device too"
        }
        pool if pool.contains("memory pool") => "create a pool on that device",
        "a DLPack tensor" | "a tensor of candle" => {
            "run the operation on its own device, with `.on(&device)`"
        }
        _ => "use one of that device",
    };
    format!("{what} lives on `{lives_on}` and was used on `{used_on}`; {advice}")
}

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $text:literal;)*) => {
        /// The reason for which a node refused a request or ended a lease. Each variant states the action that the
        /// caller should take.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        #[repr(u16)]
        pub enum Status {
            $($(#[$doc])* $name = $code,)*
        }

        impl Status {
            /// Returns the code on the wire.
            pub const fn code(self) -> u16 {
                self as u16
            }

            /// Returns the status of a code. A code that this version does not know is [`Status::Internal`].
            pub const fn from_code(code: u16) -> Self {
                match code {
                    $($code => Self::$name,)*
                    _ => Self::Internal,
                }
            }
        }

        impl fmt::Display for Status {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$name => $text,)*
                })
            }
        }
    };
}

statuses! {
    /// The request was carried out.
    Ok = 0, "ok";
    /// The request is malformed or states an impossible value. Correct it.
    BadRequest = 1, "bad request";
    /// The certificate or the token gives no access. Use the certificate that the lease was made with, or ask the
    /// operator of the node for one.
    Unauthorized = 2, "unauthorized";
    /// The module could not be loaded. The message has the compiler's log. Correct the module.
    LoadFailed = 3, "load failed";
    /// The launch was refused, or the kernel faulted. Correct the kernel or its arguments. After a fault, acquire a new
    /// lease.
    LaunchFailed = 4, "launch failed";
    /// Device memory could not be written. Check the ranges.
    WriteFailed = 5, "write failed";
    /// Device memory could not be read. Check the ranges.
    ReadFailed = 6, "read failed";
    /// The lease has expired. Acquire a new lease, and renew it in time.
    LeaseExpired = 7, "lease expired";
    /// The node ended the lease: its operator revoked it, a request of higher priority preempted it, or its worker used
    /// more memory than the lease has. The message has the reason. Acquire a new lease.
    Revoked = 8, "revoked";
    /// The device is out of service, because memory of an ended lease was not freed. Use another device or node.
    Fenced = 9, "fenced";
    /// The device or the lease has too little free memory, or the node has no free capacity for another lease. Request
    /// less, or wait.
    CapacityExceeded = 10, "capacity exceeded";
    /// The connection or the worker of the lease is gone. Acquire a new lease.
    Disconnected = 11, "disconnected";
    /// Client and node have no common version of the protocol. Update the older one.
    UnsupportedVersion = 12, "unsupported version";
    /// A limit of the tenant is reached. Free a lease, or ask the operator of the node for a higher limit.
    QuotaExceeded = 13, "quota exceeded";
    /// The lease or device does not exist. Check the name.
    NotFound = 14, "not found";
    /// The node failed for a reason of its own. Report it to the operator of the node.
    Internal = 15, "internal error";
    /// The request exceeds the whole memory of the device or of the lease, or a limit of the node or of the tenant.
    /// Request less, or ask the operator of the node for a higher limit.
    TooLarge = 16, "too large";
}

impl Status {
    /// Returns the status of a request for `requested` bytes that were not free, out of `total`: [`Self::TooLarge`] if
    /// they can never be, or else [`Self::CapacityExceeded`].
    pub const fn of_shortage(requested: u64, total: u64) -> Self {
        if requested > total { Self::TooLarge } else { Self::CapacityExceeded }
    }

    /// Returns whether the same request can succeed later without any change to it.
    pub const fn is_retryable(self) -> bool {
        matches!(self, Self::CapacityExceeded | Self::QuotaExceeded)
    }

    /// Returns whether this status ends a lease.
    pub const fn ends_lease(self) -> bool {
        matches!(self, Self::LeaseExpired | Self::Revoked | Self::Fenced | Self::Disconnected)
    }
}

macro_rules! conversions {
    ($($error:ty)*) => {$(
        impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Error::other(error)
            }
        }
    )*};
}

// A conversion from every error type would conflict with that from `Error` itself, which is an error too.
conversions! {
    Box<dyn StdError + Send + Sync>
    std::io::Error
    std::fmt::Error
    std::array::TryFromSliceError
    std::char::ParseCharError
    std::convert::Infallible
    std::env::VarError
    std::num::ParseFloatError
    std::num::ParseIntError
    std::num::TryFromIntError
    std::str::ParseBoolError
    std::str::Utf8Error
    std::string::FromUtf8Error
    std::sync::mpsc::RecvError
    std::time::SystemTimeError
}

/// The name of an operation inside another one.
fn joined(outer: &str, inner: Option<&str>) -> Name {
    inner.map_or_else(|| outer.into(), |inner| format!("{outer}/{inner}").into())
}

/// The message of [`Error::NeedsHostData`]. An operation without a name is named by its step.
fn needs_host_data(step: &str, operation: Option<&str>) -> String {
    let (name, detail) = match operation {
        Some(operation) => (operation, format!(" (step `{step}`)")),
        None => (step, String::new()),
    };
    let instead = match step {
        "settled" | "or_else" | "retry" | "timeout" | "race" | "timed" => {
            format!(
                "record the operation without it, and write it around `graph.launch()` ({step})"
            )
        }
        "script" => {
            "await only operations of this library, no host data and no other futures, or write the script around \
             `graph.launch()`"
                .into()
        }
        "load_ptx" | "compile" => {
            "load the module before, and record operations that have it".into()
        }
        "to_host_vec" | "item" => {
            format!("end the graph before it and write `graph.launch().{step}()`")
        }
        "to_host_vec_into" => {
            "end the graph before it and write `graph.launch().to_host_vec_into(vec)`".into()
        }
        _ => "end the graph before it and write `graph.launch().then(to_host)`".into(),
    };
    format!(
        "operation \"{name}\" waits for host data{detail}, so it can neither be submitted without waiting nor recorded; \
         inside a graph, {instead}; otherwise use `.await`, `.sync()` or `.sync_on(&stream)`"
    )
}

#[cfg(test)]
mod tests {
    use crate::protocol::{FaultKind, *};

    #[test]
    fn debug_text_has_the_variant_and_the_message() {
        let error = Error::OutOfHostMemory { requested: 8 };
        assert_eq!(format!("{error:?}"), format!("OutOfHostMemory: {error}"));
        let ended = Error::AlreadyEnded.in_operation("read");
        assert_eq!(format!("{ended:?}"), format!("InOperation(AlreadyEnded): {ended}"));
        let other = Error::other("no weights");
        assert_eq!(format!("{other:?}"), "Other: no weights");
    }

    #[test]
    fn recovery_advice_appears_once_in_the_message() {
        let fault = Fault::new(FaultKind::Trap, "a trap");
        assert_eq!(Error::from(fault.clone()).to_string(), "the device faulted: a trap");
        let fault = fault.recovery("restart the process");
        assert_eq!(fault.to_string(), "a trap");
        let said = Error::from(fault.clone()).to_string();
        assert_eq!(said, "the device faulted: a trap; restart the process");
        let lost = Error::from(fault).poison().to_string();
        assert!(lost.contains(": a trap; overwrite the whole buffer"), "{lost}");
    }

    #[test]
    fn local_errors_have_the_status_that_fits() {
        let short = |requested| Error::OutOfMemory { requested, free: 1, total: 2, pool: None };
        assert_eq!(short(2).status(), Some(Status::CapacityExceeded));
        assert!(short(2).is_retryable());
        assert_eq!(short(3).status(), Some(Status::TooLarge));
        assert!(!short(3).is_retryable());
        let fault = Error::from(Fault::new(FaultKind::Trap, "a trap"));
        assert_eq!(fault.status(), Some(Status::LaunchFailed));
        assert_eq!(Error::OutOfHostMemory { requested: 1 }.status(), None);
    }

    #[test]
    fn wrong_device_message_distinguishes_handles_of_one_address() {
        let wrong = |lives_on: &str, used_on: &str| Error::WrongDevice {
            what: "a buffer".into(),
            lives_on: lives_on.into(),
            used_on: used_on.into(),
        };
        let other = wrong("cpu", "cuda:0").to_string();
        assert!(
            other.contains("lives on `cpu` and was used on `cuda:0`; copy it there"),
            "{other}"
        );
        let same = wrong("cpu", "cpu").to_string();
        assert!(
            same.contains("another handle of `cpu`") && !same.contains("was used on"),
            "{same}"
        );
    }
}

#[cfg(test)]
mod status_tests {
    use super::*;

    #[test]
    fn codes_round_trip_and_unknown_codes_are_internal_errors() {
        for code in 0..=16 {
            assert_eq!(Status::from_code(code).code(), code);
        }
        assert_eq!(Status::from_code(999), Status::Internal);
    }
}

#[cfg(test)]
mod operation_tests {
    use crate::protocol::*;

    #[test]
    fn names_nest_outermost_first() {
        let error = Error::AlreadyEnded.in_operation("c").in_operation("b").in_operation("a");
        assert_eq!(error.operation(), Some("a/b/c"));
        assert_eq!(error.root(), &Error::AlreadyEnded);
        let mapped = error.map_root(|_| Error::OutsideScript);
        assert_eq!((mapped.operation(), mapped.root()), (Some("a/b/c"), &Error::OutsideScript));
    }

    #[test]
    fn named_error_keeps_the_properties_of_its_root() {
        let lost = Error::DeviceLost { address: "cpu".into(), cause: "a trap".into() };
        assert!(lost.in_operation("a").is_sticky());
        let full =
            Error::OutOfMemory { requested: 1, free: 0, total: 2, pool: None }.in_operation("a");
        assert!(full.is_retryable() && full.status().is_some());
        let own = Error::other(std::fmt::Error).in_operation("a");
        assert_eq!(own.downcast_ref(), Some(&std::fmt::Error));
    }

    #[test]
    fn host_data_error_stays_its_variant_and_names_operation_and_step() {
        let error = Error::needs_host_data("to_host");
        assert!(error.to_string().starts_with("operation \"to_host\" waits for host data, so"));
        let error = error.of_step("read_back").in_operation("read").in_operation("attention");
        assert!(matches!(error, Error::NeedsHostData { .. }));
        let expected = "operation \"attention/read\" waits for host data (step `read_back`), so";
        assert!(error.to_string().starts_with(expected), "{error}");
        assert_eq!(Error::AlreadyEnded.of_step("x"), Error::AlreadyEnded);
    }
}
