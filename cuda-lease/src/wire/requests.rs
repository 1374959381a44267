//! The messages outside of sessions: the first frames of streams, requests about leases and devices, blobs, the
//! stateless submit, and their replies.

use bytes::Bytes;
use cuda_core::{DeviceInfo, protocol::Status};

use super::{
    Field, Hash, ImageKind, Reader, TraceContext, WireError, Writer,
    codec::{fields, message, variants},
    opcode,
};

/// The version of the protocol that this crate speaks.
pub const VERSION: u16 = 1;

message! {
    /// The first frame of a client on its request stream.
    Hello = opcode::HELLO; {
        /// The oldest version that the client speaks.
        oldest: u16,
        /// The newest version that the client speaks.
        newest: u16,
        /// The features of the client, one bit each ([`features`](super::features)).
        features: u64,
        /// The name and version of the client program, for logs.
        program: String,
    }

    /// The reply to [`Hello`].
    Welcome = opcode::HELLO | opcode::REPLY; {
        /// The version that both sides use from now on.
        version: u16,
        /// The features that both sides have.
        features: u64,
        /// The name of the node, for messages.
        node: String,
    } + {
        /// The time until the certificate of the client expires, in milliseconds, by the clock of the node. Then the
        /// node closes the connection. `None` if the client has no certificate.
        certificate_ends_in_ms: u64 = CERTIFICATE_END,
    }

    /// The first frame of a lane: a bidirectional stream of a session.
    Attach = opcode::ATTACH; {
        /// The lease.
        lease: u64,
        /// Its token.
        token: Bytes,
        /// The lane.
        lane: Lane,
        /// The epoch of the session, which the client chooses, not 0.
        epoch: u32,
        /// Whether the lane existed on an earlier connection. If not, the client may send frames at once.
        is_resumed: bool,
        /// The sequence number of the last frame that the client received on this lane.
        received: u64,
    }

    /// The reply to [`Attach`]. The frames of the lane follow it.
    Attached = opcode::ATTACH | opcode::REPLY; {
        /// The sequence number of the last frame that the node received on this lane.
        received: u64,
    }
}

message! {
    /// Acknowledges the frames of the opposite direction of a lane. It has no sequence number.
    Ack = opcode::ACK; {
        /// The sequence number of the last frame that was received.
        received: u64,
    }
}

/// A lane of a session. The frames of a lane are ordered in each direction; those of different lanes are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lane {
    /// Commands from the client, events from the node.
    Commands,
    /// Bulk data.
    Bulk,
}

/// The limits of a session, which the node enforces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of submissions in flight on a stream.
    pub submissions_in_flight: u64,
    /// The maximum number of bytes of host copies in flight on a stream.
    pub host_bytes_in_flight: u64,
    /// The maximum number of bytes of device memory.
    pub memory: u64,
    /// The maximum number of streams.
    pub streams: u32,
    /// The maximum number of bytes of a module.
    pub module_bytes: u64,
}

variants! {
    Lane: u8 = "a lane" {
        0 => Commands,
        1 => Bulk,
    }
}

fields! {
    Limits { submissions_in_flight, host_bytes_in_flight, memory, streams, module_bytes }
}

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
        /// Whether the lease lasts until it expires or is freed, without a connection of its client, once the grant is
        /// confirmed.
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
        /// Its token. It may have been issued for another key of the same tenant: the new token is for the key of the
        /// client that sends this.
        token: Bytes,
        /// The new duration from now on, in seconds; 0 requests that of the lease's [`Allocate`] again. A lease never
        /// expires earlier than before.
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
        /// Its token. If it is empty, the client has to have the tenant and the key that acquired or last renewed the
        /// lease.
        token: Bytes,
    }

    /// Confirms that the client has the token of a detached lease. Until then the lease ends as others do, when its
    /// client has no connection. Any other use of the token confirms the grant too. The reply is an empty frame with
    /// the opcode of the request and [`REPLY`](opcode::REPLY). For connections with the feature
    /// [`CONFIRM`](super::features::CONFIRM) only: without it, a detached lease counts as confirmed.
    Confirm = opcode::LEASE_CONFIRM; {
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

/// Random bytes that name a stateless submit.
pub type SubmitId = [u8; 16];

/// The tag of the additional field of a [`Submit`] with its id.
const SUBMIT_ID: u16 = 2;

/// The tag of the additional field of a [`Welcome`] with the end of the client's certificate.
const CERTIFICATE_END: u16 = 1;

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

impl Exclusivity {
    /// All classes.
    pub const ALL: [Self; 3] = [Self::Shared, Self::Session, Self::Device];

    /// The name of the class in addresses, on the command line and in files: `shared`, `session` or `device`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Session => "session",
            Self::Device => "device",
        }
    }

    /// The class with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.name() == name)
    }
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
    /// Confirms a grant.
    Confirm(Confirm),
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
            Confirm::OPCODE => Self::Confirm(Confirm::decode(body)?),
            Inventory::OPCODE => {
                Inventory::decode(body)?;
                Self::Inventory
            }
            opcode => return Err(WireError::UnexpectedOpcode { opcode }),
        })
    }
}

message! {
    /// The first frame of a stream that carries the bytes of a blob. They follow the frame as raw bytes, without
    /// headers, up to the end of the stream. The reply is an empty frame with the opcode of the request and
    /// [`REPLY`](opcode::REPLY).
    PutBlob = opcode::PUT_BLOB; {
        /// The lease.
        lease: u64,
        /// Its token.
        token: Bytes,
        /// The BLAKE3 hash of the bytes.
        hash: Hash,
        /// Their number.
        bytes: u64,
    }

    /// Runs one kernel in the region of a lease, and returns bytes of the region. It has a stream of its own. The input
    /// follows the frame as raw bytes. If the node does not have the image, it refuses with [`Status::NotFound`]; the
    /// client repeats the request with the image, or sends [`PutBlob`] first.
    ///
    /// Before the launch, the node writes the input to the start of the region and zeros to the rest, and variables of
    /// the image have their initial values. The output therefore depends only on the request, and a request can be
    /// repeated. The requests of a lease run one after the other.
    Submit = opcode::SUBMIT; {
        /// The lease.
        lease: u64,
        /// Its token.
        token: Bytes,
        /// The form of the image.
        kind: ImageKind,
        /// The hash of the image.
        hash: Hash,
        /// The image, if it travels with the request. At most [`IMAGE_LIMIT`](Self::IMAGE_LIMIT) bytes.
        image: Option<Bytes>,
        /// The name of the kernel.
        kernel: String,
        /// The number of blocks.
        grid: [u32; 3],
        /// The number of threads of a block.
        block: [u32; 3],
        /// The dynamic shared memory of a block in bytes.
        shared_bytes: u32,
        /// The bytes of the arguments after the pointer to the region.
        arguments: Vec<Bytes>,
        /// The size of the region in bytes; 0 for the smallest one that holds input and output. The lease keeps the
        /// region until a request states another size.
        region_bytes: u64,
        /// The number of bytes of the input, at most [`INPUT_LIMIT`](Self::INPUT_LIMIT).
        input_bytes: u64,
        /// The offset of the output in the region.
        output_offset: u64,
        /// The maximum number of bytes of the output. The output ends at the end of the region, and has at most
        /// [`OUTPUT_LIMIT`](Self::OUTPUT_LIMIT) bytes.
        max_output: u64,
    } + {
        /// The span of the client that the submit belongs to.
        trace: TraceContext = TraceContext::TAG,
        /// Random bytes that name the submit. If the lease has the answer of a submit with these bytes, the node repeats
        /// the answer and runs nothing. It keeps answers until the client has acknowledged their stream, up to a limit
        /// in bytes.
        id: SubmitId = SUBMIT_ID,
    }

    /// The reply to [`Submit`].
    Submitted = opcode::SUBMIT | opcode::REPLY; {
        /// [`Status::Ok`], or the step that failed.
        status: Status,
        /// The error in words, or the text that the kernel printed.
        text: String,
        /// The output, if it has at most [`INLINE_LIMIT`](Self::INLINE_LIMIT) bytes.
        output: Bytes,
        /// The number of bytes of a longer output. They follow the frame as raw bytes, up to the end of the stream.
        following_bytes: u64,
    }
}

impl Submit {
    /// The maximum number of bytes of an image inside of the frame. A longer one is sent with [`PutBlob`].
    pub const IMAGE_LIMIT: usize = 512 << 10;

    /// The maximum number of bytes of the input: 64 MiB.
    pub const INPUT_LIMIT: u64 = 64 << 20;

    /// The maximum number of bytes of the output: 64 MiB.
    pub const OUTPUT_LIMIT: u64 = 64 << 20;
}

impl Submitted {
    /// The maximum number of bytes of an output inside of the frame.
    pub const INLINE_LIMIT: usize = 512 << 10;
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
    fn id_of_a_submit_is_an_additional_field() {
        let submit = |id| Submit {
            lease: 1,
            token: Bytes::new(),
            kind: ImageKind::Ptx,
            hash: [0; 32],
            image: None,
            kernel: "k".into(),
            grid: [1; 3],
            block: [1; 3],
            shared_bytes: 0,
            arguments: Vec::new(),
            region_bytes: 0,
            input_bytes: 0,
            output_offset: 0,
            max_output: 0,
            trace: None,
            id,
        };
        let encoded = |id| {
            let mut out = Vec::new();
            submit(id).encode(&mut out);
            out
        };
        let (without, with) = (encoded(None), encoded(Some([7; 16])));
        assert_eq!(with[..without.len()], without);
        assert_eq!(with[without.len()..][..6], [2, 0, 16, 0, 0, 0]);
        assert_eq!(Submit::decode(&with), Ok(submit(Some([7; 16]))));
        assert_eq!(Submit::decode(&without), Ok(submit(None)));
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
