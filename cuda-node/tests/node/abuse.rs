//! Clients that take all they can get of a node without a lease, or after its end: connections, handshakes, requests,
//! buffers. Other clients do not notice, and the memory of the node is bounded.

use std::{
    collections::HashSet,
    io::Write,
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use cuda_core::protocol::Status;
use cuda_lease::{
    authority::ClientTls,
    wire::{
        Allocate, Free, Hello, ImageKind, Inventory, PutBlob, Submit, VERSION, Writer,
        opcode::REPLY,
    },
};
use quinn::{Endpoint, TransportConfig};
use relay::{Relay, RelayOptions};
use tempfile::NamedTempFile;

use crate::{
    harness::{LONG, Node, check, processor_time, wait_until},
    hostile::{attack, memory},
    raw::{RawClient, Stream, block_on, refusal, request},
};

/// A node with these quotas.
fn node_with(quotas: &str, arguments: &[&str]) -> (Node, NamedTempFile) {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(quotas.as_bytes()).unwrap();
    let path = file.path().to_str().unwrap();
    (Node::start(&[&["--quotas", path], arguments].concat()), file)
}

/// Passes packets to a node, from the address `own`, and of its replies only requests to show the address (Retry). So handshakes begin, and
/// never end. After `limit` handshakes whose clients have shown their address, passes nothing. Returns its address, and
/// the number of these handshakes.
pub fn black_hole(node: SocketAddr, own: &str, limit: usize) -> (SocketAddr, Arc<AtomicUsize>) {
    let begun = Arc::new(AtomicUsize::new(0));
    let clients = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to_node = UdpSocket::bind((own, 0)).unwrap();
    to_node.connect(node).unwrap();
    let address = clients.local_addr().unwrap();
    let (clients_too, to_node_too, count) =
        (clients.try_clone().unwrap(), to_node.try_clone().unwrap(), begun.clone());
    let (client, from) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let (mut packet, mut seen) = ([0; 65536], HashSet::new());
        while let Ok((length, sender)) = clients.recv_from(&mut packet) {
            if seen.len() == limit {
                continue;
            }
            _ = client.send(sender);
            _ = to_node.send(&packet[..length]);
            let (id, token) = first_packet(&packet);
            if token > 0 && seen.insert(id.to_vec()) {
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    std::thread::spawn(move || {
        let (mut packet, mut client) = ([0; 65536], None);
        while let Ok(length) = to_node_too.recv(&mut packet) {
            client = from.try_iter().last().or(client);
            // The type of a long header is in the bits 4 and 5; 3 is Retry.
            if let Some(client) = client
                && packet[0] & 0xf0 == 0xf0
            {
                _ = clients_too.send_to(&packet[..length], client);
            }
        }
    });
    (address, begun)
}

/// The identifier that a client chose for its connection, and the first byte of the length of its token: 0 without a
/// token. They are behind the version (RFC 9000, section 17.2.2).
fn first_packet(packet: &[u8]) -> (&[u8], u8) {
    let (length, rest) = packet[5..].split_first().unwrap();
    let (id, rest) = rest.split_at((*length).min(20).into());
    (id, rest[1 + usize::from(rest[0])])
}

#[test]
fn handshakes_that_do_not_end_keep_no_client_out() {
    const BEGUN: usize = 600;
    attack(async |node| {
        let (hole, begun) = black_hole(node.address.parse().unwrap(), "127.0.0.1", BEGUN);
        let endpoint = Endpoint::client(([127, 0, 0, 1], 0).into()).unwrap();
        let tls = ClientTls::loopback();
        let (config, name) = (tls.config_for(hole).unwrap(), tls.server_name_for("127.0.0.1"));
        let name = name.unwrap();
        let handshakes: Vec<_> =
            (0..700).map(|_| endpoint.connect_with(config.clone(), hole, &name).unwrap()).collect();
        let started = Instant::now();
        while begun.load(Ordering::Relaxed) < BEGUN {
            assert!(started.elapsed() < LONG, "{begun:?} handshakes have begun");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // A busy machine takes a while for so many handshakes. A client that is refused would know it at once.
        let lease = node.lease();
        let acquire = move || loop {
            match lease.clone().acquire_blocking() {
                Ok(lease) => return lease,
                Err(error) => {
                    let error = error.to_string();
                    let is_slow =
                        ["has not answered", "timed out"].iter().any(|text| error.contains(text));
                    assert!(is_slow && started.elapsed() < LONG, "{error}");
                }
            }
        };
        drop((tokio::task::spawn_blocking(acquire).await.unwrap(), handshakes));
    });
}

#[test]
fn connection_beyond_the_limit_of_a_tenant_is_refused_with_the_reason() {
    let (node, _file) = node_with("[defaults]\nmax_connections = 2\n", &[]);
    block_on(async {
        let _first = RawClient::connect(&node.address).await;
        let _second = RawClient::connect(&node.address).await;
        let address = node.address.clone();
        let refused = tokio::task::spawn_blocking(move || {
            cuda_lease::LeaseBuilder::new(address).acquire_blocking().unwrap_err()
        });
        let refused = refused.await.unwrap();
        assert_eq!(refused.status(), Some(Status::QuotaExceeded), "{refused}");
        assert!(refused.to_string().contains("2 connections"), "{refused}");
        assert!(refused.to_string().contains("max_connections"), "{refused}");
    });
    wait_until("a connection has ended", || node.lease().acquire_blocking().is_ok());
}

#[test]
fn connection_has_one_request_stream() {
    attack(async |node| {
        let client = RawClient::connect(&node.address).await;
        let mut second = Stream::open(&client.connection).await;
        let hello = Hello { oldest: VERSION, newest: VERSION, features: 0, program: "test".into() };
        second.frame(Hello::OPCODE, 0, 1, |out| hello.encode(out)).await;
        assert_eq!(refusal(&second.reply().await), Status::BadRequest);
    });
}

#[test]
fn request_that_is_too_long_ends_the_connection_before_it_has_arrived() {
    attack(async |node| {
        let mut client = RawClient::connect(&node.address).await;
        let mut header = Vec::new();
        Writer::new(&mut header).put(5000u32).put(Allocate::OPCODE).put(0u16).put(0u32).put(2u64);
        client.control.bytes(&header).await;
        let error = client.control.reply().await.unwrap_err();
        assert!(error.contains("5000") && error.contains("4096"), "{error}");
    });
}

/// `quinn` keeps the buffers of a connection for three probe timeouts after its end. The client makes them long.
#[test]
fn connection_counts_until_its_memory_is_free() {
    let (node, _file) =
        node_with("[defaults]\nmax_connections = 1\n", &["--metrics", "127.0.0.1:0"]);
    let slow = RelayOptions::with_delay(Duration::from_millis(500));
    let relay = Relay::start(node.address.parse().unwrap(), slow).unwrap();
    block_on(async {
        let connect = async |address: &str| {
            RawClient::connect_as(address, ClientTls::loopback(), TransportConfig::default()).await
        };
        let relay = relay.address().to_string();
        // The first gives its place to the second, a moment after its end.
        for _ in 0..2 {
            let started = Instant::now();
            let slow = loop {
                match connect(&relay).await {
                    Ok(slow) => break slow,
                    Err(error) => assert!(started.elapsed() < LONG, "{error}"),
                }
            };
            wait_until("it is served", || node.metric("cuda_node_connections") == 1.0);
            slow.connection.close(0u32.into(), b"");
            wait_until("it has ended", || node.metric("cuda_node_connections") == 0.0);
        }
        // The refusal may arrive before the first stream is open.
        let reason = match connect(&node.address).await {
            Err(error) => error.to_string(),
            Ok(mut third) => {
                let program = "test".into();
                let hello = Hello { oldest: VERSION, newest: VERSION, features: 0, program };
                third.control.frame(Hello::OPCODE, 0, 1, |out| hello.encode(out)).await;
                third.control.reply().await.expect_err("the third connection is served")
            }
        };
        assert!(reason.contains("max_connections"), "{reason}");
    });
    wait_until("its memory is free", || node.lease().acquire_blocking().is_ok());
}

/// Clients fill everything that a node buffers for a connection without a lease: frames that do not end, on all
/// streams.
#[test]
fn connections_without_leases_occupy_bounded_memory() {
    attack(async |node| {
        let before = memory(node);
        let mut clients = Vec::new();
        let mut streams = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let client = RawClient::connect(&node.address).await;
            for _ in 0..60 {
                let connection = client.connection.clone();
                streams.spawn(async move {
                    let length = 1 << 20;
                    let mut frame = Vec::new();
                    Writer::new(&mut frame).put(length).put(Submit::OPCODE).put(0u16).put(0u32);
                    Writer::new(&mut frame).put(0u64);
                    frame.resize(length as usize - 1, 0);
                    let write = async { Stream::open(&connection).await.bytes(&frame).await };
                    // The node stops reading, and closes the stream after 5 s.
                    _ = tokio::time::timeout(Duration::from_secs(4), write).await;
                });
            }
            clients.push(client);
        }
        while streams.join_next().await.is_some() {}
        let grown = memory(node).saturating_sub(before);
        assert!(grown < 24 << 20, "the memory has grown by {grown} bytes");
    });
}

/// Sends the same frame on seven streams of each of 32 connections. Returns the memory by which the node has grown when all
/// frames have arrived.
async fn memory_for_frames(node: &Node, opcode: u16, body: Vec<u8>) -> u64 {
    let mut clients = Vec::new();
    for _ in 0..32 {
        clients.push(RawClient::connect(&node.address).await);
    }
    let before = memory(node);
    let body = Bytes::from(body);
    let mut connections = tokio::task::JoinSet::new();
    for client in clients {
        let body = body.clone();
        connections.spawn(async move {
            let mut streams = Vec::new();
            for _ in 0..7 {
                let mut stream = Stream::open(&client.connection).await;
                stream.frame(opcode, 0, 0, |out| out.extend_from_slice(&body)).await;
                _ = stream.send.finish();
                // Until the node has acknowledged all bytes.
                _ = stream.send.stopped().await;
                streams.push(stream);
            }
            (client, streams)
        });
    }
    let open = connections.join_all().await;
    let grown = memory(node).saturating_sub(before);
    drop(open);
    grown
}

/// Uploads that the node refuses wait for their answers. Of their frames nothing stays meanwhile.
#[test]
fn refused_uploads_that_wait_for_their_answers_occupy_bounded_memory() {
    let (node, _file) = node_with("[defaults]\nrequests_per_second = 5\n", &["--spares", "0"]);
    block_on(async {
        let token = Bytes::from(vec![0; (1 << 20) - 100]);
        let mut body = Vec::new();
        PutBlob { lease: 1, token, hash: [1; 32], bytes: 1 }.encode(&mut body);
        let grown = memory_for_frames(&node, PutBlob::OPCODE, body).await;
        assert!(grown < 140 << 20, "the memory has grown by {grown} bytes");
    });
}

fn submit(lease: u64, token: Bytes) -> Submit {
    Submit {
        lease,
        token,
        kind: ImageKind::Ptx,
        hash: [0; 32],
        image: None,
        kernel: "run_forever".into(),
        grid: [1; 3],
        block: [1; 3],
        shared_bytes: 0,
        arguments: Vec::new(),
        region_bytes: 64,
        input_bytes: 0,
        output_offset: 0,
        max_output: 0,
        trace: None,
        id: None,
    }
}

/// Submits that are repeated wait for the first one, which never ends. Of their frames nothing stays meanwhile.
#[test]
fn repeated_submits_that_wait_for_the_first_one_occupy_bounded_memory() {
    let node = Node::start(&["--spares", "0"]);
    block_on(async {
        let mut client = RawClient::connect(&node.address).await;
        let granted = client.allocate().await;
        let submit = Submit { id: Some([7; 16]), ..submit(granted.lease, granted.token) };
        let image = Bytes::from_static(include_bytes!("../../../kernels/faults.ptx"));
        let first =
            Submit { hash: *blake3::hash(&image).as_bytes(), image: Some(image), ..submit.clone() };
        let worker = node.wait_for_workers(1)[0];
        let before = processor_time(worker);
        let mut stream = Stream::open(&client.connection).await;
        stream.frame(Submit::OPCODE, 0, 0, |out| first.encode(out)).await;
        wait_until("the worker has the submit", || {
            processor_time(worker) > before + Duration::from_millis(20)
        });
        let mut body = Vec::new();
        let image = Some(Bytes::from(vec![0; (1 << 20) - 1000]));
        Submit { image, ..submit }.encode(&mut body);
        let grown = memory_for_frames(&node, Submit::OPCODE, body).await;
        assert!(grown < 140 << 20, "the memory has grown by {grown} bytes");
    });
}

/// A submit is repeated on many streams, whose client takes nothing of the answer.
#[test]
fn answers_of_repeated_submits_occupy_bounded_memory() {
    attack(async |node| {
        let mut client = RawClient::connect(&node.address).await;
        let granted = client.allocate().await;
        let image = Bytes::from_static(RETURNS);
        let submit = Submit {
            hash: *blake3::hash(&image).as_bytes(),
            image: Some(image),
            kernel: "k".into(),
            region_bytes: 512 << 10,
            max_output: 512 << 10,
            id: Some([7; 16]),
            ..submit(granted.lease, granted.token)
        };
        let mut open = Vec::new();
        for _ in 0..32 {
            let mut transport = TransportConfig::default();
            transport.stream_receive_window(1024u32.into());
            open.push((RawClient::connect_tuned(&node.address, transport).await, Vec::new()));
        }
        let before = memory(node);
        for (client, streams) in &mut open {
            for _ in 0..7 {
                let mut stream = Stream::open(&client.connection).await;
                stream.frame(Submit::OPCODE, 0, 0, |out| submit.encode(out)).await;
                assert_eq!(stream.read(1).await, 1);
                streams.push(stream);
            }
        }
        let grown = memory(node).saturating_sub(before);
        assert!(grown < 48 << 20, "the memory has grown by {grown} bytes");
    });
}

/// A kernel that does nothing.
const RETURNS: &[u8] =
    b".version 8.0 .target sm_80 .address_size 64 .visible .entry k(.param .u64 p) { ret; }";

/// A client takes the output of a submit slowly, also after the end of the lease.
#[test]
fn outputs_do_not_outlive_their_lease() {
    attack(async |node| {
        let mut transport = TransportConfig::default();
        transport.stream_receive_window((64u32 << 10).into());
        let mut client = RawClient::connect_tuned(&node.address, transport).await.greet(0).await;
        client.send(&Allocate { min_vram: 128 << 20, ..request() }).await;
        let granted = client.granted().await;
        let image = Bytes::from_static(RETURNS);
        let submit = Submit {
            hash: *blake3::hash(&image).as_bytes(),
            image: Some(image),
            kernel: "k".into(),
            region_bytes: 64 << 20,
            max_output: 64 << 20,
            ..submit(granted.lease, granted.token.clone())
        };
        let mut stream = Stream::open(&client.connection).await;
        stream.frame(Submit::OPCODE, 0, 0, |out| submit.encode(out)).await;
        assert_eq!(stream.reply().await.unwrap().0, Submit::OPCODE | REPLY);
        let free = Free { lease: granted.lease, token: granted.token };
        client.control.frame(Free::OPCODE, 0, 3, |out| free.encode(out)).await;
        client.control.reply().await.unwrap();
        let freed = Instant::now();
        let mut pause = 0;
        loop {
            match stream.read(64 << 10).await {
                0 => break,
                bytes => pause += bytes,
            }
            assert!(freed.elapsed() < LONG, "the output is still being sent");
            if pause > 16 << 10 {
                pause = 0;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        // The connection goes on.
        client.send(&request()).await;
        client.granted().await;
    });
}

/// Submits wait for their input, each with another image.
#[test]
fn images_of_submits_that_wait_for_their_input_occupy_bounded_memory() {
    attack(async |node| {
        let mut client = RawClient::connect(&node.address).await;
        let granted = client.allocate().await;
        let before = memory(node);
        let mut submits: Vec<Stream> = Vec::new();
        for number in 0..12 {
            let mut image = vec![0; 64 << 20];
            image[0] = number;
            let (hash, bytes) = (*blake3::hash(&image).as_bytes(), image.len() as u64);
            let (lease, token) = (granted.lease, granted.token.clone());
            let sent = async || {
                let mut put = Stream::open(&client.connection).await;
                let blob = PutBlob { lease, token: token.clone(), hash, bytes };
                put.frame(PutBlob::OPCODE, 0, 0, |out| blob.encode(out)).await;
                put.bytes(&image).await;
                put.reply().await.unwrap().0
            };
            let mut attempts = 1;
            // On a busy machine an upload may be slow, and give way to another one.
            while sent().await != PutBlob::OPCODE | REPLY {
                attempts += 1;
                assert!(attempts <= 8, "the node takes no image");
            }
            let submit = Submit { hash, input_bytes: 8 << 20, ..submit(lease, token) };
            let mut stream = Stream::open(&client.connection).await;
            stream.frame(Submit::OPCODE, 0, 0, |out| submit.encode(out)).await;
            submits.push(stream);
            // Some bytes within each 10 seconds.
            for stream in &mut submits {
                stream.bytes(&[0]).await;
            }
        }
        let grown = memory(node).saturating_sub(before);
        // 256 MiB of the tenant, and 128 MiB of the lease.
        assert!(grown < 520 << 20, "the memory has grown by {grown} bytes");
    });
}

/// A client sends requests, and takes no reply.
#[test]
fn client_that_takes_no_replies_is_disconnected() {
    attack(async |node| {
        let mut transport = TransportConfig::default();
        transport.stream_receive_window(8u8.into());
        let mut client = RawClient::connect_tuned(&node.address, transport).await;
        let hello = Hello { oldest: VERSION, newest: VERSION, features: 0, program: "test".into() };
        client.control.frame(Hello::OPCODE, 0, 1, |out| hello.encode(out)).await;
        let reason = tokio::time::timeout(LONG, client.connection.closed()).await.unwrap();
        assert!(reason.to_string().contains("nothing for 10 s"), "{reason}");
    });
}

/// A client announces images, sends nothing of them, and frees the lease.
#[test]
fn silent_uploads_of_an_ended_lease_keep_no_memory() {
    attack(async |node| {
        let mut client = RawClient::connect(&node.address).await;
        let granted = client.allocate().await;
        let put = async |lease, token: Bytes, hash, bytes| {
            let mut put = Stream::open(&client.connection).await;
            let blob = PutBlob { lease, token, hash, bytes };
            put.frame(PutBlob::OPCODE, 0, 0, |out| blob.encode(out)).await;
            put
        };
        let mut silent = Vec::new();
        for _ in 0..8 {
            silent.push(put(granted.lease, granted.token.clone(), [1; 32], 64 << 20).await);
        }
        let another = RawClient::connect(&node.address).await.allocate().await;
        let code = b".version 8.0 .target sm_80 .address_size 64";
        let hash = *blake3::hash(code).as_bytes();
        let free = Free { lease: granted.lease, token: granted.token };
        let mut uploaded = put(another.lease, another.token, hash, code.len() as u64).await;
        uploaded.bytes(code).await;
        client.control.frame(Free::OPCODE, 0, 3, |out| free.encode(out)).await;
        client.control.reply().await.unwrap();
        let reply = tokio::time::timeout(LONG, uploaded.reply()).await.unwrap();
        assert_eq!(reply.unwrap().0, PutBlob::OPCODE | REPLY);
    });
}

/// Requests that the node refuses wait as others do, so they cost little time, and few lines of the logs.
#[test]
fn refusals_are_limited_by_the_rate_of_the_tenant() {
    let audit = NamedTempFile::new().unwrap();
    let path = audit.path().to_str().unwrap();
    let (node, _file) = node_with("[defaults]\nrequests_per_second = 20\n", &["--audit", path]);
    block_on(async {
        let started = Instant::now();
        let mut client = RawClient::connect(&node.address).await;
        let refused = Allocate { min_vram: 0, ..request() };
        for _ in 0..60 {
            client.send(&refused).await;
            assert_eq!(refusal(&client.control.reply().await), Status::BadRequest);
        }
        // 20 at once, and the connection is one of the requests.
        assert!(started.elapsed() > Duration::from_millis(1950), "{:?}", started.elapsed());
    });
    check(&node.lease().acquire_blocking().unwrap());
}

/// Requests beyond those that may wait are refused, but not faster than the rate.
#[test]
fn flood_of_requests_is_answered_at_the_rate_of_the_tenant() {
    let (node, _file) = node_with("[defaults]\nrequests_per_second = 50\n", &[]);
    block_on(async {
        let started = Instant::now();
        let mut client = RawClient::connect(&node.address).await;
        for _ in 0..200 {
            client.control.frame(Inventory::OPCODE, 0, 2, |_| {}).await;
        }
        for _ in 0..200 {
            client.control.reply().await.unwrap();
        }
        assert!(started.elapsed() > Duration::from_millis(2900), "{:?}", started.elapsed());
    });
}

/// A module whose variables are larger than the lease.
#[test]
fn variables_of_modules_are_limited_on_a_cpu_device() {
    let node = Node::start(&[]);
    if crate::harness::device() != "cpu" {
        return;
    }
    let lease = node.lease().acquire_blocking().unwrap();
    let ptx = ".version 8.0 .target sm_80 .address_size 64 .visible .global .b8 large[3221225472];";
    let error = lease.device().load_ptx_blocking(ptx).unwrap_err();
    assert!(error.to_string().contains("memory"), "{error}");
    check(&lease);
}
