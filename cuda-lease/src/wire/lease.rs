//! Requests about leases and devices, and their replies. They travel on the request stream of a connection.

use bytes::Bytes;
use cuda_core::{DeviceInfo, protocol::Status};

use super::{
    Field, Limits, Reader, TraceContext, WireError, Writer,
    codec::{fields, message, variants},
    opcode,
};

message! {
    /// Requests a lease.
    Allocate = opcode::LEASE_ALLOC; {
        /// Random bytes that name the request. A repeated request with the same bytes gives the same lease.
        nonce: [u8; 16],
        /// The device memory of the lease in bytes.
        min_vram: u64,
        /// The duration of the lease in seconds.
        lease_secs: u32,
        /// The exclusivity class.
        exclusivity: Exclusivity,
        /// The device, such as `cuda:0`; any device of the node if it is absent.
        device: Option<String>,
        /// The maximum wait for free capacity, in milliseconds.
        wait_ms: u32,
        /// The priority. Higher numbers come first.
        priority: i32,
        /// Whether the lease lasts until it expires or is freed, without a connection of its client.
        detached: bool,
    } + {
        /// The span of the client that the lease belongs to.
        trace: TraceContext = TraceContext::TAG,
    }

    /// The reply to [`Allocate`].
    Granted = opcode::LEASE_ALLOC | opcode::REPLY; {
        /// The id of the lease.
        lease: u64,
        /// The token that gives access to it.
        token: Bytes,
        /// The generation of the lease.
        generation: u32,
        /// The time until the lease expires, in milliseconds.
        expires_in_ms: u64,
        /// The device.
        device: DeviceInfo,
        /// The limits of the session.
        limits: Limits,
    } + {
        /// The features of the device, one bit each. `None` from a node of an earlier version.
        features: u64 = FEATURES,
    }

    /// Extends a lease from now on.
    Renew = opcode::LEASE_RENEW; {
        /// The lease.
        lease: u64,
        /// Its token.
        token: Bytes,
        /// The new duration from now on, in seconds.
        lease_secs: u32,
    }

    /// The reply to [`Renew`].
    Renewed = opcode::LEASE_RENEW | opcode::REPLY; {
        /// The token of the new generation. The old one stays valid for a while.
        token: Bytes,
        /// The new generation.
        generation: u32,
        /// The time until the lease expires, in milliseconds.
        expires_in_ms: u64,
    }

    /// Ends a lease. The reply is an empty frame with the opcode of the request and [`REPLY`](opcode::REPLY).
    Free = opcode::LEASE_FREE; {
        /// The lease.
        lease: u64,
        /// Its token.
        token: Bytes,
    }

    /// Lists the devices of a node and the leases of the client's tenant.
    Inventory = opcode::INVENTORY; {}

    /// The reply to [`Inventory`].
    InventoryReply = opcode::INVENTORY | opcode::REPLY; {
        /// The devices.
        devices: Vec<DeviceEntry>,
    } + {
        /// The leases of the tenant that asks. `None` if there are none.
        leases: Vec<LeaseEntry> = LEASES,
    }

    /// The reply to a request that the node does not carry out.
    Refused = opcode::REFUSED; {
        /// The reason.
        status: Status,
        /// The reason in words, and what to do.
        detail: String,
    }
}

/// The tag of the additional field of a [`Granted`] with the features of the device.
const FEATURES: u16 = 1;

/// The tag of the additional field of an [`InventoryReply`] with the leases.
const LEASES: u16 = 1;

/// A lease of the tenant that asks for the inventory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseEntry {
    /// The id.
    pub lease: u64,
    /// The device, such as `cuda:0`.
    pub device: String,
    /// The memory quota in bytes.
    pub memory: u64,
    /// The exclusivity class.
    pub exclusivity: Exclusivity,
    /// The time until the lease expires, in milliseconds. 0 once its end has begun.
    pub expires_in_ms: u64,
    /// Whether its client is connected, or it is detached and needs none.
    pub connected: bool,
    /// Whether its end has begun or was announced.
    pub ending: bool,
}

/// A device of a node.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceEntry {
    /// The description.
    pub info: DeviceInfo,
    /// The bytes of memory that leases may use.
    pub capacity: u64,
    /// The bytes of memory that no lease uses.
    pub free: u64,
    /// The number of leases.
    pub leases: u32,
    /// The maximum number of leases.
    pub max_leases: u32,
    /// Whether the device is out of service.
    pub fenced: bool,
}

/// The exclusivity class of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Exclusivity {
    /// Other shared leases run on the device at the same time.
    #[default]
    Shared,
    /// Other session leases may be on the device; one session runs at a time.
    Session,
    /// No other lease is on the device.
    Device,
}

variants! {
    Exclusivity: u8 = "a class" {
        0 => Shared,
        1 => Session,
        2 => Device,
    }
}

fields! {
    DeviceEntry { info, capacity, free, leases, max_leases, fenced }
    LeaseEntry { lease, device, memory, exclusivity, expires_in_ms, connected, ending }
}

impl Field<'_> for DeviceInfo {
    fn put(&self, w: &mut Writer<'_>) {
        w.put_text(&self.address).put_text(&self.name).put(self.memory).put(self.multiprocessors);
        w.put(self.compute_capability).put(self.max_threads_per_block).put(self.max_shared_bytes);
        w.put(self.driver);
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let mut info = DeviceInfo::new(r.get::<String>()?, r.get::<String>()?);
        info.memory = r.get()?;
        info.multiprocessors = r.get()?;
        info.compute_capability = r.get()?;
        info.max_threads_per_block = r.get()?;
        info.max_shared_bytes = r.get()?;
        info.driver = r.get()?;
        Ok(info)
    }
}

/// A request about leases, as the node receives it.
#[derive(Debug, Clone, PartialEq)]
pub enum LeaseRequest {
    /// Requests a lease.
    Allocate(Allocate),
    /// Extends a lease from now on.
    Renew(Renew),
    /// Ends a lease.
    Free(Free),
    /// Lists the devices and the client's leases.
    Inventory,
}

impl LeaseRequest {
    /// Decodes the body of a frame with this opcode.
    ///
    /// # Errors
    /// [`WireError::UnexpectedOpcode`] for an opcode that is no request about leases, and the errors of a body that
    /// does not fit the opcode.
    pub fn decode(opcode: u16, body: &[u8]) -> Result<Self, WireError> {
        Ok(match opcode {
            Allocate::OPCODE => Self::Allocate(Allocate::decode(body)?),
            Renew::OPCODE => Self::Renew(Renew::decode(body)?),
            Free::OPCODE => Self::Free(Free::decode(body)?),
            Inventory::OPCODE => {
                Inventory::decode(body)?;
                Self::Inventory
            }
            opcode => return Err(WireError::UnexpectedOpcode { opcode }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(leases: &[LeaseEntry]) -> Vec<u8> {
        let mut out = Vec::new();
        let leases = (!leases.is_empty()).then(|| leases.to_vec());
        InventoryReply { devices: Vec::new(), leases }.encode(&mut out);
        out
    }

    #[test]
    fn leases_of_an_inventory_are_an_additional_field() {
        assert_eq!(encoded(&[]), [0; 4]);
        let lease = LeaseEntry {
            lease: 7,
            device: "cpu".into(),
            memory: 1 << 20,
            exclusivity: Exclusivity::Device,
            expires_in_ms: 1500,
            connected: true,
            ending: false,
        };
        let bytes = encoded(std::slice::from_ref(&lease));
        assert_eq!(bytes[..10], [0, 0, 0, 0, 1, 0, (bytes.len() - 10) as u8, 0, 0, 0]);
        assert_eq!(InventoryReply::decode(&bytes).unwrap().leases, Some(vec![lease]));
        // A client that does not know the field skips it.
        let mut old = Reader::new(&bytes);
        assert_eq!(old.get::<Vec<DeviceEntry>>(), Ok(Vec::new()));
        assert_eq!(old.finish(), Ok(()));
        assert!(InventoryReply::decode(&bytes[..bytes.len() - 1]).is_err());
    }
}
