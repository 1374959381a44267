//! The features of a client, of a node and of a leased device: one bit each.
//!
//! [`Hello`](super::Hello) states the features of the client, and [`Welcome`](super::Welcome) those that client and node
//! both have. [`Granted`](super::Granted) states those of the device. A client uses a feature only if all of them have it.

use cuda_core::protocol::Capabilities;

/// Graphs: commands that create, launch and drop them.
pub const GRAPHS: u64 = 1;

/// Loops inside graphs.
pub const LOOPS: u64 = 2;

/// The features that this crate implements.
pub const ALL: u64 = GRAPHS | LOOPS;

/// Returns the features of a device.
pub fn of_device(capabilities: &Capabilities) -> u64 {
    let bit = |has: bool, bit| if has { bit } else { 0 };
    bit(capabilities.graphs, GRAPHS) | bit(capabilities.loops, LOOPS)
}
