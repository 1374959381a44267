//! Controls: changes to a device that are not work and have no reply.

use std::sync::Arc;

use super::{
    AllocId, Graph, GraphId, ModuleId, PoolChange, PoolId, PoolSpec, Region, StreamId, Ticket,
    TransferId,
};

/// A change to a device. It takes its place in the device's order of submissions and controls.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Control {
    /// Creates a stream.
    CreateStream {
        /// The new stream. Its id is larger than those of all earlier streams of the device.
        id: StreamId,
        /// The priority; 0 is the default. Lower numbers run first, if the device supports priorities.
        priority: i32,
    },
    /// Destroys a stream when all its submissions are complete. Nothing is submitted to it afterwards.
    RetireStream {
        /// The stream.
        id: StreamId,
    },
    /// Allocates memory from the default pool in the order of a stream. It takes a ticket, so that other streams can be
    /// ordered after it. The contents are unspecified.
    ///
    /// If the device has too little free memory, the backend returns the free memory of all pools to the system and
    /// tries once more.
    Allocate {
        /// The new allocation.
        id: AllocId,
        /// Its size. An allocation of 0 bytes has an address, at which no work may use a byte.
        bytes: u64,
        /// The ticket that the allocation takes on its stream.
        at: Ticket,
    },
    /// Allocates memory from a pool, under the rules of [`Allocate`](Control::Allocate).
    AllocateIn {
        /// The pool.
        pool: PoolId,
        /// The new allocation.
        id: AllocId,
        /// Its size.
        bytes: u64,
        /// The ticket that the allocation takes on its stream.
        at: Ticket,
    },
    /// Reserves addresses for an allocation that grows. Its bytes may be used only after a
    /// [`Request::Commit`](super::Request::Commit) of them. [`Free`](Control::Free) frees it. A backend takes this if
    /// [`Capabilities::growable`](super::Capabilities::growable) says so.
    Reserve {
        /// The new allocation.
        id: AllocId,
        /// The largest size that it can have, at least 1.
        bytes: u64,
    },
    /// Creates a pool of device memory. A client has at most [`Capabilities::pools`](super::Capabilities::pools).
    CreatePool {
        /// The new pool. Not [`PoolId::DEFAULT`].
        id: PoolId,
        /// Its properties.
        spec: PoolSpec,
    },
    /// Changes a pool, which may be [`PoolId::DEFAULT`].
    ChangePool {
        /// The pool.
        id: PoolId,
        /// The change.
        change: PoolChange,
    },
    /// Drops a pool. The free of every allocation of it was sent before.
    DropPool {
        /// The pool.
        id: PoolId,
    },
    /// Frees an allocation after all earlier submissions to `stream` and after the tickets in `after`.
    Free {
        /// The allocation.
        id: AllocId,
        /// The stream whose order the free follows.
        stream: StreamId,
        /// The tickets of other streams that the free comes after.
        after: Vec<Ticket>,
    },
    /// Loads a module. [`Request::Loaded`](super::Request::Loaded) asks for the result.
    LoadModule {
        /// The new module.
        id: ModuleId,
        /// Its code.
        image: ModuleImage,
    },
    /// Gives a variable of a loaded module an id, as an allocation. The memory belongs to the module, so unloading the
    /// module ends the id. [`Free`](Control::Free) is not used.
    NameVariable {
        /// The new allocation.
        id: AllocId,
        /// The module. It is loaded.
        module: ModuleId,
        /// The name of the variable in the PTX.
        name: String,
        /// The size in bytes.
        bytes: u64,
    },
    /// Unloads a module. No work in flight uses the module or its variables.
    UnloadModule {
        /// The module.
        id: ModuleId,
    },
    /// Prepares a graph. [`Request::GraphReady`](super::Request::GraphReady) asks for the result. The memory and the
    /// modules that its nodes name exist until it is dropped.
    CreateGraph {
        /// The new graph.
        id: GraphId,
        /// Its nodes.
        graph: Arc<Graph>,
    },
    /// Drops a graph. No launch of it is in flight.
    DropGraph {
        /// The graph.
        id: GraphId,
    },
    /// Announces memory that another device of the process will send to.
    Receive {
        /// The transfer, named by [`Work::Send`](super::Work::Send) on the other device.
        transfer: TransferId,
        /// Destination.
        to: Region,
        /// Length of the copy.
        bytes: u64,
    },
    /// Requests a [`Notice::Progress`](super::Notice::Progress) that covers a ticket, as soon as possible. A caller
    /// waits for it.
    Want {
        /// The ticket.
        ticket: Ticket,
    },
    /// States that no caller waits for some submissions of a stream any more. It is a hint: the backend may skip those
    /// of them that have not begun and whose results cannot be seen, because the memory that they write is freed before
    /// any other work reads it. A skipped submission completes in its place in the stream, without a failure. A backend
    /// takes this if [`Capabilities::cancels`](super::Capabilities::cancels) or
    /// [`Capabilities::discards_held`](super::Capabilities::discards_held) says so.
    Cancel {
        /// The stream.
        stream: StreamId,
        /// The number of the first submission.
        first: u64,
        /// The number of the last submission.
        last: u64,
        /// Whether no caller reads the host memory that the downloads among them write. If false, those downloads run.
        downloads: bool,
    },
}

/// Code for a device.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModuleImage {
    /// PTX text.
    Ptx(String),
    /// A cubin or a fatbin. The sender promises that it is complete, because drivers do not check its lengths.
    Cubin(Vec<u8>),
}
