//! Nodes that break the protocol, or answer nothing.

use std::{
    net::SocketAddr,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

use cuda_core::DeviceInfo;
use cuda_lease::{
    DeviceEntry, LeaseBuilder, Status,
    authority::{Claims, Fingerprint, ServerTls, TokenKey},
    internals::transport,
    wire::{
        Allocate, FrameBuffer, Free, Granted, Hello, Inventory, InventoryReply, Limits, PutBlob,
        Refused, Submit, Submitted, VERSION, Welcome,
        opcode::{MODULE_LOAD, NEED_BLOB, REPLY},
        put_frame,
    },
};
use tokio::runtime::Runtime;

use crate::support::{LONG, Place};

/// A reply: its opcode and its body.
type Reply = (u16, Vec<u8>);

/// A node whose replies a function makes. For `None` it sends nothing, and goes on.
struct FalseNode {
    address: SocketAddr,
    _runtime: Runtime,
}

impl FalseNode {
    fn start(answer: fn(u16) -> Option<Reply>) -> Self {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
        let listen = ([127, 0, 0, 1], 0).into();
        let (mut config, _) = ServerTls::insecure().config_for(listen).unwrap();
        config.transport_config(transport::connection());
        let entered = runtime.enter();
        let endpoint =
            transport::endpoint(listen, Some((config, transport::ResetKey::derive(&[0; 32]))))
                .unwrap();
        drop(entered);
        let address = endpoint.local_addr().unwrap();
        runtime.spawn(async move {
            while let Some(incoming) = endpoint.accept().await {
                tokio::spawn(async move {
                    let connection = incoming.await.unwrap();
                    while let Ok(stream) = connection.accept_bi().await {
                        tokio::spawn(serve(stream, answer));
                    }
                });
            }
        });
        Self { address, _runtime: runtime }
    }

    /// Runs the program with the words of `line` and this node.
    fn run(&self, line: &str) -> crate::support::Run {
        Place::new().run_without_node(&format!("{line} --node {}", self.address))
    }
}

async fn serve(
    (mut send, mut receive): (quinn::SendStream, quinn::RecvStream),
    answer: fn(u16) -> Option<Reply>,
) {
    let mut buffer = FrameBuffer::default();
    while let Ok(Some(chunk)) = receive.read_chunk(usize::MAX, true).await {
        buffer.extend(&chunk.bytes);
        // Raw bytes behind a frame are no frames.
        while let Ok(Some(frames)) = buffer.take_first() {
            let header = frames.iter().next().unwrap().header;
            let Some((opcode, body)) = answer(header.opcode) else { continue };
            // Events of the node itself have no number.
            let sequence = if opcode & REPLY == 0 { 0 } else { header.sequence };
            let mut out = Vec::new();
            put_frame(&mut out, opcode, 0, sequence, |out| out.extend_from_slice(&body));
            send.write_all(&out).await.unwrap();
        }
    }
}

macro_rules! reply {
    ($message:expr, $opcode:expr) => {{
        let mut body = Vec::new();
        $message.encode(&mut body);
        Some(($opcode | REPLY, body))
    }};
}

fn welcome(version: u16) -> Option<Reply> {
    let (node, certificate_ends_in_ms) = ("false".into(), None);
    reply!(Welcome { version, features: 0, node, certificate_ends_in_ms }, Hello::OPCODE)
}

fn refused(status: Status, detail: &str) -> Option<Reply> {
    let mut body = Vec::new();
    Refused { status, detail: detail.into() }.encode(&mut body);
    Some((Refused::OPCODE, body))
}

fn granted() -> Option<Reply> {
    granted_with("cpu", "a processor")
}

fn granted_with(address: &str, name: &str) -> Option<Reply> {
    let limits = Limits {
        submissions_in_flight: 1,
        host_bytes_in_flight: 1,
        memory: 1 << 20,
        streams: 1,
        module_bytes: 1 << 20,
    };
    let device = DeviceInfo::new(address, name);
    let claims =
        Claims { lease: 1, generation: 1, serial: 1, client: Fingerprint::UNAUTHENTICATED };
    let token = TokenKey::from_bytes([7; 32]).issue(&claims).as_bytes().to_vec().into();
    let granted = Granted {
        lease: 1,
        token,
        generation: 1,
        expires_in_ms: 60_000,
        device,
        limits,
        features: None,
    };
    reply!(granted, Allocate::OPCODE)
}

#[test]
fn node_that_never_answers_is_status_4() {
    let silent = FalseNode::start(|_| None);
    let greeting = "has not answered the greeting within 5 s; check --node";
    silent.run("inventory").failed(4, greeting);
    let iota = "submit --ptx K/iota.ptx --kernel iota --arg u32=1";
    silent.run(iota).failed(4, greeting);
    let greets = FalseNode::start(|opcode| (opcode == Hello::OPCODE).then(|| welcome(VERSION))?);
    greets.run("inventory").failed(4, "has not answered a request within 10 s");
}

#[test]
fn reply_of_another_version_is_refused() {
    let newer = FalseNode::start(|_| welcome(7));
    newer.run("inventory").failed(4, "the node speaks version 7 of the protocol");
}

#[test]
fn reply_to_another_request_is_refused() {
    let confused = FalseNode::start(|opcode| match opcode {
        Hello::OPCODE => welcome(VERSION),
        _ => Some((Free::OPCODE | REPLY, vec![0; 4])),
    });
    confused.run("inventory").failed(4, "the node broke the protocol");
    let greeting = FalseNode::start(|_| Some((Free::OPCODE | REPLY, Vec::new())));
    greeting.run("inventory").failed(4, "the node broke the protocol");
}

#[test]
fn output_that_was_not_requested_is_refused() {
    let iota = "submit --ptx K/iota.ptx --kernel iota --arg u32=1 --output-bytes 4";
    fn submitted(output: usize, following_bytes: u64) -> Option<Reply> {
        let (status, text, output) = (Status::Ok, String::new(), vec![0; output].into());
        reply!(Submitted { status, text, output, following_bytes }, Submit::OPCODE)
    }
    let inline = FalseNode::start(|opcode| match opcode {
        Hello::OPCODE => welcome(VERSION),
        Allocate::OPCODE => granted(),
        Submit::OPCODE => submitted(8, 0),
        _ => None,
    });
    inline.run(iota).failed(4, "an output has 8 bytes, the limit is 4");
    let following = FalseNode::start(|opcode| match opcode {
        Hello::OPCODE => welcome(VERSION),
        Allocate::OPCODE => granted(),
        Submit::OPCODE => submitted(0, 8),
        _ => None,
    });
    following.run(iota).failed(4, "an output has 8 bytes, the limit is 4");
}

#[test]
fn control_characters_of_a_node_are_escaped() {
    let hostile = FalseNode::start(|opcode| match opcode {
        Hello::OPCODE => welcome(VERSION),
        Inventory::OPCODE => {
            let info = DeviceInfo::new("cpu", "\u{1b}[2Ja\nb\u{9b}31m");
            let (capacity, free) = (1, 1);
            let device =
                DeviceEntry { info, capacity, free, leases: 0, max_leases: 1, fenced: false };
            reply!(InventoryReply { devices: vec![device], leases: None }, Inventory::OPCODE)
        }
        _ => None,
    });
    for line in ["inventory", "inventory --json", "top"] {
        let printed = hostile.run(line).done();
        let is_raw = |c: char| c.is_control() && c != '\n';
        assert!(!printed.contains(is_raw), "{line}: {printed:?}");
        assert!(printed.contains("\\u001b[2Ja") && printed.contains("\\u009b31m"), "{printed:?}");
    }
    // A line break in a name does not begin another row.
    assert_eq!(hostile.run("inventory").done().lines().count(), 2);
}

#[test]
fn line_breaks_in_the_name_of_an_allocated_device_are_escaped() {
    let hostile = FalseNode::start(|opcode| match opcode {
        Hello::OPCODE => welcome(VERSION),
        Allocate::OPCODE => granted_with("cpu\ntoken    none", "a\nb\u{9b}31m"),
        _ => None,
    });
    let printed = hostile.run("alloc").done();
    // The lease, its device, memory, expiry and token.
    assert_eq!(printed.lines().count(), 5, "{printed}");
    assert!(printed.contains("cpu\\u000atoken    none (a\\u000ab\\u009b31m)"), "{printed}");
}

/// The images of other submits take the place of one that the node has just got, more than once.
#[test]
fn image_that_the_node_drops_again_is_sent_again() {
    static SUBMITS: AtomicUsize = AtomicUsize::new(0);
    let forgetful = FalseNode::start(|opcode| match opcode {
        Hello::OPCODE => welcome(VERSION),
        Allocate::OPCODE => granted(),
        Submit::OPCODE if SUBMITS.fetch_add(1, Ordering::Relaxed) < 3 => {
            refused(Status::NotFound, "the node does not have the image")
        }
        Submit::OPCODE => {
            let (text, output) = (String::new(), vec![7; 4].into());
            let status = Status::Ok;
            reply!(Submitted { status, text, output, following_bytes: 0 }, Submit::OPCODE)
        }
        _ => None,
    });
    let iota = "submit --ptx K/iota.ptx --kernel iota --arg u32=1 --output-bytes 4 --format hex";
    assert!(forgetful.run(iota).done().contains("07 07 07 07"));
    assert_eq!(SUBMITS.load(Ordering::Relaxed), 4);
}

#[test]
fn image_that_the_node_never_keeps_is_sent_four_times() {
    static SUBMITS: AtomicUsize = AtomicUsize::new(0);
    let forgetful = FalseNode::start(|opcode| match opcode {
        Hello::OPCODE => welcome(VERSION),
        Allocate::OPCODE => granted(),
        Submit::OPCODE => {
            SUBMITS.fetch_add(1, Ordering::Relaxed);
            refused(Status::NotFound, "the node does not have the image")
        }
        _ => None,
    });
    let iota = "submit --ptx K/iota.ptx --kernel iota --arg u32=1";
    forgetful.run(iota).failed(4, "the node does not have the image");
    // The first one is without the image.
    assert_eq!(SUBMITS.load(Ordering::Relaxed), 5);
}

/// The module would never load, and its launches would wait for ever.
#[test]
fn session_whose_module_the_node_refuses_ends_with_the_reason() {
    const IOTA: &str = include_str!("../../../kernels/iota.ptx");
    let refuses = FalseNode::start(|opcode| match opcode {
        Hello::OPCODE => welcome(VERSION),
        Allocate::OPCODE => granted(),
        MODULE_LOAD => Some((NEED_BLOB, blake3::hash(IOTA.as_bytes()).as_bytes().to_vec())),
        PutBlob::OPCODE => refused(Status::TooLarge, "it does not fit"),
        _ => None,
    });
    let lease = LeaseBuilder::new(refuses.address.to_string()).acquire_blocking().unwrap();
    let (sender, loaded) = mpsc::channel();
    let load = move || sender.send(lease.device().load_ptx_blocking(IOTA).map(drop));
    let loading = thread::spawn(load);
    let error = loaded.recv_timeout(LONG).expect("the load waits for ever").unwrap_err();
    assert!(error.to_string().contains("it does not fit"), "{error}");
    loading.join().unwrap().unwrap();
}

/// Padding of all rows to the longest name would take gigabytes, and a width of 65,536 characters ends a program.
#[test]
fn long_names_of_a_node_are_cut_in_tables() {
    let hostile = FalseNode::start(|opcode| match opcode {
        Hello::OPCODE => welcome(VERSION),
        Inventory::OPCODE => {
            let device = |name: &str| {
                let info = DeviceInfo::new("cpu", name);
                let (capacity, free) = (1, 1);
                DeviceEntry { info, capacity, free, leases: 0, max_leases: 1, fenced: false }
            };
            let mut devices = vec![device("short"); 5000];
            devices.push(device(&"é".repeat(100_000)));
            reply!(InventoryReply { devices, leases: None }, Inventory::OPCODE)
        }
        _ => None,
    });
    for line in ["inventory", "top"] {
        let printed = hostile.run(line).done();
        assert!(printed.contains("short") && printed.contains("éé…"), "{line}");
        assert!(printed.len() < 2 << 20, "{line}: {} bytes", printed.len());
    }
}
