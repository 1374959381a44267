//! The features of a client, of a node and of a leased device: one bit each.
//!
//! [`Hello`](super::Hello) states the features of the client, and [`Welcome`](super::Welcome) those that client and
//! node both have. [`Granted`](super::Granted) states those of the device. A client uses a feature only if all of them
//! have it.

use cuda_core::protocol::Capabilities;

/// Graphs: commands that create, launch and drop them.
pub const GRAPHS: u64 = 1;

/// Loops inside graphs.
pub const LOOPS: u64 = 2;

/// Launches with attributes, and the query for occupancy.
pub const ATTRIBUTES: u64 = 4;

/// Memory pools beside the default one: commands that create, change and drop them, and queries about them.
pub const POOLS: u64 = 8;

/// Detached leases that last without a connection only once the client has confirmed the grant
/// ([`Confirm`](super::Confirm)). Not a feature of devices.
pub const CONFIRM: u64 = 16;

/// The command that cancels submissions.
pub const CANCEL: u64 = 32;

/// The maximum number of memory pools of a session beside the default one.
pub const MAX_POOLS: u32 = 64;

/// The features that this crate implements.
pub const ALL: u64 = GRAPHS | LOOPS | ATTRIBUTES | POOLS | CONFIRM | CANCEL;

/// Returns the features that a client can use, from those of its connection ([`Welcome`](super::Welcome)) and of its
/// device ([`Granted`](super::Granted)).
pub fn usable(connection: u64, device: Option<u64>) -> u64 {
    let device = device.unwrap_or(0);
    let usable = connection & device & ALL;
    // Loops are parts of graphs.
    if usable & GRAPHS == 0 { usable & !LOOPS } else { usable }
}

/// Returns the features of a device.
pub fn of_device(capabilities: &Capabilities) -> u64 {
    let bit = |has: bool, bit| if has { bit } else { 0 };
    bit(capabilities.graphs, GRAPHS)
        | bit(capabilities.loops, LOOPS)
        | bit(capabilities.launch_attributes, ATTRIBUTES)
        | bit(capabilities.pools >= MAX_POOLS, POOLS)
        | bit(capabilities.cancels, CANCEL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_uses_features_that_node_and_device_both_have() {
        assert_eq!(usable(ALL, Some(ALL)), ALL);
        assert_eq!(usable(ALL, Some(GRAPHS | 1 << 40)), GRAPHS);
        assert_eq!(usable(ALL, Some(POOLS | LOOPS)), POOLS);
        for (connection, device) in [(ALL, None), (0, Some(ALL)), (LOOPS, Some(ALL))] {
            assert_eq!(usable(connection, device), 0);
        }
        assert_eq!(usable(LOOPS | ATTRIBUTES, Some(ALL)), ATTRIBUTES);
        let mut capabilities = Capabilities::local(0);
        assert_eq!(of_device(&capabilities), ATTRIBUTES);
        capabilities.launch_attributes = false;
        assert_eq!(of_device(&capabilities), 0);
        capabilities.graphs = true;
        assert_eq!(of_device(&capabilities), GRAPHS);
        capabilities.pools = MAX_POOLS;
        assert_eq!(of_device(&capabilities), GRAPHS | POOLS);
        capabilities.cancels = true;
        assert_eq!(of_device(&capabilities), GRAPHS | POOLS | CANCEL);
    }
}
