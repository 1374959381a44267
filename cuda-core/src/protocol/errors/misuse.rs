//! Mistakes in the use of the library, and the features that some devices do not have.

use std::{borrow::Cow, fmt};

use crate::protocol::OtherError;

/// A mistake of the program, in [`Error::Misuse`](crate::Error::Misuse). Nothing was done, and the same call fails
/// again. The message says what to do instead.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Misuse {
    /// Memory of this kind cannot be used for an operation.
    #[error("{operation}: the memory {conflict}; {}", conflict.advice())]
    Memory {
        /// The operation, or the use of the memory.
        operation: Cow<'static, str>,
        /// The reason.
        conflict: MemoryConflict,
    },
    /// An id that names an object was given to another one.
    #[error("the id {id} names a {object} already; choose an id that was never used")]
    IdInUse {
        /// The kind of the object.
        object: Cow<'static, str>,
        /// The id.
        id: u64,
    },
    /// A list names something twice.
    #[error("{object}: {name} is named twice; name each one once")]
    NamedTwice {
        /// The list.
        object: Cow<'static, str>,
        /// The name.
        name: String,
    },
    /// The elements are not in row-major order.
    #[error(
        "{object}: its elements are not in row-major order without gaps; copy it in that order first (ndarray: \
         `as_standard_layout`)"
    )]
    NotRowMajor {
        /// The array or tensor.
        object: Cow<'static, str>,
    },
    /// A fill with a value that is not a repetition of one, two or four bytes.
    #[error(
        "filling with a {element}: the value is not a repetition of one, two or four bytes; upload it"
    )]
    FillPattern {
        /// The type of the elements.
        element: &'static str,
    },
    /// A setting, an address or a file with settings is invalid.
    /// [`downcast_ref`](crate::Error::downcast_ref) finds the cause.
    #[error("{object}: {cause}")]
    Setting {
        /// The request or the program with the setting.
        object: Cow<'static, str>,
        /// The mistake.
        cause: OtherError,
    },

    /// The output function of a device waits for the device.
    #[error(
        "a wait for the device: it is inside the output function of the device, whose kernel ends only after the function; \
         wait on another thread"
    )]
    WaitInOutput,
    /// A blocking run inside a waker.
    #[error(
        "a blocking run: it runs in a waker, on the thread that would have to wake it; wake a task and run the operation \
         there"
    )]
    BlockingWaker,
    /// Too many `boxed` operations inside each other.
    #[error(
        "nested `boxed` operations: more than {limit} boxes are nested in one operation; use `iterate`, `in_order` or \
         `script` for loops and long chains"
    )]
    NestedBoxes {
        /// The limit.
        limit: usize,
    },
    /// A `shared` operation waits for itself.
    #[error(
        "a `shared` operation: it waits for its own result, which never comes; remove the clone of the operation from its \
         own steps"
    )]
    AwaitsItself,
    /// The constructor of a device's policy requests that policy.
    #[error(
        "a device policy: it was requested by its own constructor; use the streams of `{device}` in the closure of \
         `set_device_policy`, not its policy"
    )]
    PolicyRequestsItself {
        /// The address of the device.
        device: String,
    },

    /// A stream belongs to no recording or plan, and the call is for one.
    #[error(
        "a stream: it belongs to no recording or plan of this kind; pass the stream that `Recording::start` or `start_plan` \
         returned"
    )]
    NotRecording,
    /// A stream belongs to a recording that has ended.
    #[error("a stream of a recording: the recording has ended; use a stream of the device")]
    RecordingEnded,
    /// A stream outside of a recording waits for a stream of the recording.
    #[error(
        "joining a stream of a recording from outside: its work runs only when the recording is replayed; use the output of \
         the recording"
    )]
    JoinsRecording,
    /// A graph inside a graph.
    #[error(
        "a launch of a graph inside a graph: a graph cannot contain the launch of another one; record the operations of \
         both in one graph"
    )]
    GraphInGraph,
    /// A copy to another device in a recording.
    #[error(
        "a copy to another device inside a recording: no graph contains one; copy before or after the launch of the graph"
    )]
    PeerCopyInRecording,
    /// Memory comes from foreign code, or goes to it, in a recording.
    #[error(
        "an exchange of memory with foreign code inside a recording: a graph keeps the memory that it has recorded; \
         exchange it before or after the recording"
    )]
    ExchangeInRecording,
    /// A module was unloaded before the launch of its kernel was recorded.
    #[error(
        "a launch inside a recording: its module was unloaded; keep the module until the launch is recorded"
    )]
    UnloadedModule,
    /// Foreign work in a plan.
    #[error(
        "foreign work in a plan: a plan submits no work, and foreign work is known only once it is submitted; record a \
         graph instead"
    )]
    ForeignWorkInPlan,
    /// Foreign code ended a capture, or enqueued a command that no graph contains.
    #[error(
        "a capture: foreign code ended it or enqueued a command that a graph cannot contain; run this code between two \
         graphs"
    )]
    CaptureEnded,
    /// A sealed pool for recordings was asked for memory.
    #[error(
        "a capture pool: it is sealed, so it gives out no memory; call `unseal`, or allocate before the capture"
    )]
    SealedPool,
    /// Single nodes of a graph whose loops or foreign work run only with the whole graph.
    #[error(
        "single nodes of a graph: it has a loop or foreign work, which runs only with the whole graph; launch the graph as \
         a whole, time that with `timed`, or record a graph of the other work"
    )]
    WholeGraphOnly,
    /// A graph with a loop or foreign work was launched before it was prepared.
    #[error(
        "a launch of a graph: it has a loop or foreign work and is not prepared; prepare it with `upload` first"
    )]
    GraphNotPrepared,
    /// The output of a graph that was not launched.
    #[error(
        "the output of a graph: it was not launched, so its output has no values; launch it first"
    )]
    GraphNotLaunched,
    /// An upload from a host slot in a loop of a graph.
    #[error(
        "an upload from a host slot: it is inside a loop of a graph; upload before the loop, and pass the buffer into the \
         loop"
    )]
    HostSlotInLoop,
    /// A pass of a loop gave memory of another shape than it took.
    #[error(
        "a loop: its pass took memory of shape {taken:?} and gave memory of shape {given:?} back; write the result into the \
         state, with `memory::copy` for buffers and `memcpy` for tensors"
    )]
    LoopShape {
        /// The shape that the pass took.
        taken: Box<[usize]>,
        /// The shape that it gave.
        given: Box<[usize]>,
    },
    /// A pass of a loop gave other memory than it took.
    #[error(
        "a loop: its pass gave other memory back than it took, another view of it, or the same in another order; write the \
         results into the state, with `memory::copy` for buffers and `memcpy` for tensors"
    )]
    LoopMemory,

    /// The stream of a thread (`CU_STREAM_PER_THREAD`).
    #[error(
        "the stream of a thread (`CU_STREAM_PER_THREAD`): it names another stream on each thread; create a stream and pass that one"
    )]
    ThreadStream,
    /// A stream of foreign code that is being captured.
    #[error("a stream of foreign code: it is being captured; end the capture first")]
    StreamInCapture,
}

/// The reason for which memory cannot be used, in [`Misuse::Memory`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemoryConflict {
    /// The memory is a variable of a module.
    Variable,
    /// The memory belongs to a buffer that grows.
    Growable,
    /// A plan allocated the memory, so it does not exist on the device.
    Planned,
    /// The memory belongs to foreign code.
    Foreign,
    /// The memory is a part of a larger buffer.
    Part,
    /// The memory has no elements.
    Empty,
    /// A recording uses the memory.
    Recorded,
    /// Work in flight on its own device uses the memory.
    InFlight,
    /// Several elements have the same address, as in a broadcast tensor.
    Overlapping,
    /// The graph does not use the memory.
    NotInGraph,
    /// The graph also uses the memory in another place.
    ElsewhereInGraph,
    /// The graph writes the memory, and another handle may share it.
    SharedInGraph,
}

impl MemoryConflict {
    fn texts(self) -> [&'static str; 2] {
        match self {
            Self::Variable => [
                "is a variable of a module, and other handles share its memory",
                "copy it into another buffer, and use that",
            ],
            Self::Growable => {
                ["belongs to a buffer that grows", "copy it into another buffer, and use that"]
            }
            Self::Planned => [
                "was allocated by a plan and does not exist on the device",
                "allocate outside of the plan",
            ],
            Self::Foreign => {
                ["belongs to foreign code", "copy it into another buffer, and use that"]
            }
            Self::Part => [
                "is a part of a larger buffer",
                "use a buffer with an allocation of its own, for example a copy",
            ],
            Self::Empty => ["has no elements", "use a buffer that has some"],
            Self::Recorded => ["is used by a recording", "use other memory, for example a copy"],
            Self::InFlight => ["has work left to run on its own device", "wait for that first"],
            Self::Overlapping => [
                "is broadcast: several of its elements are the same memory",
                "copy it first, with `dup()` or in its own framework",
            ],
            Self::NotInGraph => {
                ["is not used by the graph", "pass a buffer that an operation of the graph uses"]
            }
            Self::ElsewhereInGraph => ["is used elsewhere by the graph", "use another buffer"],
            Self::SharedInGraph => [
                "is written by the graph, so no other handle may share it",
                "pass the `DeviceBuffer` itself to `replace`",
            ],
        }
    }

    /// Returns the action that helps.
    fn advice(self) -> &'static str {
        self.texts()[1]
    }
}

impl fmt::Display for MemoryConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.texts()[0])
    }
}

macro_rules! features {
    ($($(#[$doc:meta])* $name:ident = $text:literal $(, $advice:literal)?;)*) => {
        /// The feature that a device lacks, in [`Error::Unsupported`](crate::Error::Unsupported).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Feature {
            $($(#[$doc])* $name,)*
        }

        impl Feature {
            /// Returns the action that helps.
            pub(super) fn advice(self) -> &'static str {
                match self {
                    $($(Self::$name => $advice,)?)*
                    _ => "use another device, or do without it",
                }
            }
        }

        impl fmt::Display for Feature {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$name => $text,)*
                })
            }
        }
    };
}

features! {
    /// A memory pool beside the default one.
    MemoryPool = "a memory pool beside the default one";
    /// A memory pool of managed memory.
    ManagedPool = "a pool of managed memory", "update the driver to CUDA 13.0 or newer, or use a pool of device memory";
    /// A buffer that grows in place.
    GrowableBuffer = "a buffer that grows";
    /// A launch of clusters of blocks.
    Cluster = "a cluster of blocks";
    /// A launch with attributes, such as clusters or a cooperative grid.
    LaunchAttributes = "a launch with attributes", "update the node";
    /// A launch with attributes of a kernel that cudarc has loaded.
    ForeignLaunchAttributes = "a launch with attributes of a kernel of cudarc", "load the kernel with `load_ptx`";
    /// A loop inside a graph.
    GraphLoop = "a loop inside a graph";
    /// Work of foreign code, such as cuBLAS or a caller's driver calls.
    ForeignWork = "work of foreign code";
    /// A direct copy to the memory of another device.
    PeerCopy = "a direct copy to another device", "copy through the host";
    /// Machine code that the driver loads only from CUDA 12.4 on.
    MachineCode = "a cubin with a driver older than CUDA 12.4", "load its PTX, which any driver loads, or update the driver";
    /// The device's clock.
    Timestamp = "the device's time";
    /// A reset after a fault.
    Reset = "a reset", "restart the process: after a fault it cannot use CUDA any more";
    /// Work that no graph can contain: a copy to the host or to another device, or a graph.
    WorkInGraph = "a graph with copies to the host or to another device, or with a graph";
    /// Work that runs only inside a graph: a loop, or captured work.
    WorkOutsideGraph = "a loop or captured work outside a graph";
    /// Work of foreign code that a backend of another kind has captured.
    CapturedElsewhere = "work that another device has captured";
    /// A kind of [`Work`](crate::protocol::Work) that the backend does not know.
    Work = "this kind of work";
    /// A [`Control`](crate::protocol::Control) that the backend does not know.
    Control = "this control";
    /// A [`Request`](crate::protocol::Request) that the backend does not know.
    Request = "this request";
    /// A [`Reply`](crate::protocol::Reply) that cannot cross the link to the device.
    Reply = "this reply of a device";
    /// A kind of [`ModuleImage`](crate::protocol::ModuleImage) that the backend does not know.
    ModuleImage = "this kind of module";
    /// A [`PoolChange`](crate::protocol::PoolChange) that the backend does not know.
    PoolChange = "this change of a memory pool";
}
