//! The opcodes. A reply has the opcode of its request and the highest bit set.

/// Set in the opcode of a reply.
pub const REPLY: u16 = 0x8000;

/// Client to node, first frame of a request stream: versions and features.
pub const HELLO: u16 = 0x0001;
/// The reply to a request that was refused.
pub const REFUSED: u16 = 0x8000;

/// Requests a lease.
pub const LEASE_ALLOC: u16 = 0x0200;
/// Extends a lease.
pub const LEASE_RENEW: u16 = 0x0201;
/// Ends a lease.
pub const LEASE_FREE: u16 = 0x0202;
/// Confirms a grant.
pub const LEASE_CONFIRM: u16 = 0x0203;

/// Lists the devices of a node and the leases of the client's tenant.
pub const INVENTORY: u16 = 0x0300;

/// First frame of a lane: attaches it to the session of a lease.
pub const ATTACH: u16 = 0x0500;
/// Acknowledges frames of the opposite direction.
pub const ACK: u16 = 0x0501;
/// Sends the bytes of a blob that the node does not have.
pub const PUT_BLOB: u16 = 0x0502;

/// Runs one kernel and returns its output.
pub const SUBMIT: u16 = 0x0600;

/// Allocates device memory.
pub const MEM_ALLOC: u16 = 0x0601;
/// Frees device memory.
pub const MEM_FREE: u16 = 0x0602;
/// Writes device memory, with the bytes in the frame.
pub const MEM_WRITE: u16 = 0x0603;
/// Writes device memory, with the bytes on the bulk lane.
pub const MEM_WRITE_BULK: u16 = 0x0604;
/// Reads device memory.
pub const MEM_READ: u16 = 0x0605;
/// Copies device memory.
pub const MEM_COPY: u16 = 0x0606;
/// Fills device memory with a pattern.
pub const MEM_FILL: u16 = 0x0607;
/// Loads a module.
pub const MODULE_LOAD: u16 = 0x0608;
/// Unloads a module.
pub const MODULE_UNLOAD: u16 = 0x0609;
/// Names a variable of a module.
pub const MODULE_VARIABLE: u16 = 0x060a;
/// Launches a kernel.
pub const LAUNCH: u16 = 0x060b;
/// Requests a report when a submission is complete.
pub const SYNC: u16 = 0x060c;
/// Creates a stream.
pub const STREAM_CREATE: u16 = 0x060d;
/// Retires a stream.
pub const STREAM_RETIRE: u16 = 0x060e;
/// Orders a stream after submissions of other streams.
pub const JOIN: u16 = 0x060f;
/// Writes the time of the device to its memory.
pub const TIMESTAMP: u16 = 0x0610;
/// A query: a command with a reply.
pub const QUERY: u16 = 0x0611;
/// Creates a graph.
pub const GRAPH_CREATE: u16 = 0x0612;
/// Drops a graph.
pub const GRAPH_DROP: u16 = 0x0613;
/// Launches a graph.
pub const GRAPH_LAUNCH: u16 = 0x0614;
/// Launches a kernel with attributes.
pub const LAUNCH_WITH: u16 = 0x0615;
/// Creates a memory pool.
pub const POOL_CREATE: u16 = 0x0616;
/// Changes a memory pool.
pub const POOL_CHANGE: u16 = 0x0617;
/// Drops a memory pool.
pub const POOL_DROP: u16 = 0x0618;
/// Allocates device memory from a pool.
pub const MEM_ALLOC_IN: u16 = 0x0619;
/// Cancels submissions that no caller waits for.
pub const CANCEL: u16 = 0x061a;
/// The highest opcode of a command.
pub const LAST_COMMAND: u16 = CANCEL;

/// A loop. Only the content of a graph has it.
pub const REPEAT: u16 = 0x0640;

/// A stream has progressed.
pub const PROGRESS: u16 = 0x0680;
/// A submission failed.
pub const FAILED: u16 = 0x0681;
/// A kernel faulted.
pub const FAULTED: u16 = 0x0682;
/// A kernel printed text.
pub const OUTPUT: u16 = 0x0683;
/// The reply to a query.
pub const QUERY_REPLY: u16 = 0x0684;
/// The node needs the bytes of a blob that it does not have.
pub const NEED_BLOB: u16 = 0x0685;
/// The lease will end soon.
pub const ENDING: u16 = 0x0686;
/// The device is lost, and the session ends.
pub const LOST: u16 = 0x0687;

/// Bytes of an upload or of a download.
pub const CHUNK: u16 = 0x06c0;
