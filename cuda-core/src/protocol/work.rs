//! Work: one step on a stream.
//!
//! The CUDA backend turns it into one driver call, the CPU device queues it, and a recording keeps it for replays.

use std::borrow::Cow;

use super::{Access, FunctionId, GraphLaunch, HostRegion, LaunchConfig, Pattern, Region};
use super::{ForeignWork, Repeat, TransferId, Use};
use super::{Relocation, Ticket};

/// Work on a stream, with its position in the order of the device.
#[derive(Debug, Clone, PartialEq)]
pub struct Submission<'a> {
    /// The stream, and the number of this submission on it. Numbers of a stream count up by one.
    pub ticket: Ticket,
    /// The tickets of other streams that this submission comes after. The backend took each of them earlier.
    pub after: &'a [Ticket],
    /// The work. Borrowed, since it is large and the submission is made around it.
    pub work: &'a Work<'a>,
}

/// One step of work on a stream. Steps of one stream run in the order of their tickets.
///
/// Every step states the memory that it uses ([`Work::uses`]), so it has a write set. A step that fails, or that reads
/// poisoned memory, is skipped and poisons its write set with the root cause. A step that overwrites memory ends the
/// poison of what it overwrites.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Work<'a> {
    /// Orders the stream after the tickets in the submission's `after`, and does nothing else.
    Join,
    /// Copies host memory to the device.
    Upload {
        /// Source. The bytes do not change until the upload is accepted.
        from: HostRegion,
        /// Destination.
        to: Region,
        /// Length of the copy.
        bytes: u64,
    },
    /// Copies device memory to the host.
    Download {
        /// Source.
        from: Region,
        /// Destination. The host reads it only after the ticket is complete.
        to: HostRegion,
        /// Length of the copy.
        bytes: u64,
    },
    /// Copies within the device. The regions do not overlap.
    Copy {
        /// Source.
        from: Region,
        /// Destination.
        to: Region,
        /// Length of the copy.
        bytes: u64,
    },
    /// Fills device memory with a repeated pattern.
    Fill {
        /// Destination, aligned to the pattern's size.
        to: Region,
        /// The value.
        pattern: Pattern,
        /// The number of repetitions.
        count: u64,
    },
    /// Copies device memory to another device. The destination was announced there with
    /// [`Control::Receive`](super::Control::Receive). The destination is used for nothing else until the ticket is
    /// complete.
    Send {
        /// Source.
        from: Region,
        /// The announced destination.
        transfer: TransferId,
        /// Length of the copy.
        bytes: u64,
    },
    /// Writes the time at which the stream reaches this step, in nanoseconds of the device's clock. The time is a `u64`
    /// of eight bytes. Only the difference of two times of one device has a meaning.
    Timestamp {
        /// Destination, aligned to eight bytes.
        to: Region,
    },
    /// Runs a kernel.
    Launch(Launch<'a>),
    /// Runs the nodes of a graph, each after those that its `after` names.
    Graph(GraphLaunch<'a>),
    /// Repeats nodes. Only in a graph, and only where [`Capabilities::loops`](super::Capabilities::loops) says so.
    Repeat(Repeat),
    /// Runs commands of foreign code. Only in a graph of the backend that captured them.
    Foreign(ForeignWork),
}

impl Work<'_> {
    /// Converts the work into a form without borrows.
    pub fn into_owned(self) -> Work<'static> {
        match self {
            Work::Join => Work::Join,
            Work::Upload { from, to, bytes } => Work::Upload { from, to, bytes },
            Work::Download { from, to, bytes } => Work::Download { from, to, bytes },
            Work::Copy { from, to, bytes } => Work::Copy { from, to, bytes },
            Work::Fill { to, pattern, count } => Work::Fill { to, pattern, count },
            Work::Send { from, transfer, bytes } => Work::Send { from, transfer, bytes },
            Work::Timestamp { to } => Work::Timestamp { to },
            Work::Launch(launch) => Work::Launch(launch.into_owned()),
            Work::Graph(launch) => Work::Graph(launch.into_owned()),
            Work::Repeat(repeat) => Work::Repeat(repeat),
            Work::Foreign(foreign) => Work::Foreign(foreign),
        }
    }

    /// Returns the work with borrows of this one's parts.
    pub fn borrowed(&self) -> Work<'_> {
        match self {
            Work::Launch(launch) => Work::Launch(launch.borrowed()),
            other => other.clone(),
        }
    }

    /// Calls `each` with every operand on the device.
    pub fn uses(&self, mut each: impl FnMut(Use)) {
        use Access::{Read, Write};
        match self {
            Work::Join => {}
            Work::Foreign(foreign) => foreign.uses().iter().cloned().for_each(each),
            Work::Upload { to, bytes, .. } => each(to.used(*bytes, Write)),
            Work::Download { from, bytes, .. } | Work::Send { from, bytes, .. } => {
                each(from.used(*bytes, Read));
            }
            Work::Copy { from, to, bytes } => {
                each(from.used(*bytes, Read));
                each(to.used(*bytes, Write));
            }
            Work::Fill { to, pattern, count } => {
                each(to.used(count.saturating_mul(pattern.bytes()), Write));
            }
            Work::Timestamp { to } => each(to.used(8, Write)),
            Work::Launch(launch) => {
                launch.relocations.iter().for_each(|relocation| {
                    each(relocation.region.used(relocation.bytes, relocation.access))
                });
                launch.variables.iter().cloned().for_each(each);
            }
            Work::Graph(launch) => launch.uses.iter().cloned().for_each(each),
            Work::Repeat(repeat) => repeat.uses(each),
        }
    }

    /// Returns whether every write replaces all bytes of its operand, so that their earlier contents do not matter.
    /// False for kernels, graphs, loops and foreign work, which may read before they write.
    pub fn overwrites(&self) -> bool {
        !matches!(self, Work::Launch(_) | Work::Graph(_) | Work::Repeat(_) | Work::Foreign(_))
    }
}

/// A kernel launch.
#[derive(Debug, Clone, PartialEq)]
pub struct Launch<'a> {
    /// The kernel.
    pub function: FunctionId,
    /// The grid, the block and the dynamic shared memory.
    pub config: LaunchConfig,
    /// The parameter block in the kernel's layout: each parameter at its own alignment.
    pub params: Cow<'a, [u8]>,
    /// Device addresses that the backend writes into `params`.
    pub relocations: Cow<'a, [Relocation]>,
    /// The variables of the module that the kernel uses without a parameter and that have an allocation id.
    pub variables: Cow<'a, [Use]>,
}

impl Launch<'_> {
    /// Returns the launch with borrows of this one's parts.
    pub fn borrowed(&self) -> Launch<'_> {
        Launch {
            function: self.function,
            config: self.config,
            params: Cow::Borrowed(&self.params),
            relocations: Cow::Borrowed(&self.relocations),
            variables: Cow::Borrowed(&self.variables),
        }
    }

    fn into_owned(self) -> Launch<'static> {
        Launch {
            function: self.function,
            config: self.config,
            params: Cow::Owned(self.params.into_owned()),
            relocations: Cow::Owned(self.relocations.into_owned()),
            variables: Cow::Owned(self.variables.into_owned()),
        }
    }
}
