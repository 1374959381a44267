//! Clients that break the rules. Each gets a clear refusal, and disturbs no other client.

use std::time::Duration;

use bytes::Bytes;
use cuda_core::{
    Error, Ticket,
    protocol::{
        AllocId, Control, ModuleId, Notice, PoolId, PoolSpec, Region, Request, Status, StreamId,
        Work,
    },
};
use cuda_lease::{
    Lease,
    wire::{
        Attached, Chunk, Command, Event, FRAME_LIMIT, Free, Hello, ImageKind, Lane, PutBlob,
        Refused, Renew, Renewed, Step, TransferId, Writer, opcode,
    },
};

use crate::{
    harness::{Node, check, processor_time},
    raw::{RawClient, Stream, block_on, refusal},
};

/// Runs an attack beside a client that keeps the rules, and that must not notice.
pub fn attack(attack: impl AsyncFnOnce(&Node)) {
    // A spare worker that starts meanwhile would count as memory.
    let node = Node::start(&["--spares", "0"]);
    let neighbor: Lease = node.lease().acquire_blocking().unwrap();
    node.wait_for_workers(1);
    block_on(attack(&node));
    check(&neighbor);
    check(&node.lease().acquire_blocking().unwrap());
}

/// The resident memory of a node and its workers, in bytes.
pub fn memory(node: &Node) -> u64 {
    let mut processes = node.workers();
    processes.push(node.pid());
    let resident = |pid: &u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find(|line| line.starts_with("VmRSS"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    processes.iter().filter_map(resident).sum::<u64>() << 10
}

/// The processor time that a node uses for what `send` sends.
pub fn processor_time_of(node: &Node, send: impl FnOnce()) -> Duration {
    let used = || processor_time(node.pid());
    let before = used();
    send();
    let mut last = used();
    loop {
        std::thread::sleep(Duration::from_millis(300));
        let now = used();
        if now - last <= Duration::from_millis(20) {
            return now - before;
        }
        last = now;
    }
}

const CRYPTO: u8 = 0x06;

/// The frames of a packet: one CRYPTO frame behind a gap, and padding.
pub fn plain_part(length: usize) -> Vec<u8> {
    let mut frames = vec![CRYPTO, 0x40, 0x40, 0x40, 200];
    frames.resize(length, 0);
    frames
}

/// The frames of a packet: CRYPTO frames of one byte, with gaps of one byte between them. Each takes 5 bytes.
pub fn small_parts(length: usize) -> Vec<u8> {
    let (mut frames, mut offset) = (Vec::new(), 1u16);
    while frames.len() < length {
        let [high, low] = (offset | 0x4000).to_be_bytes();
        frames.extend([CRYPTO, high, low, 1, 0]);
        offset = if offset > 1900 { 1 } else { offset + 2 };
    }
    frames
}

pub fn ticket(number: u64) -> Ticket {
    Ticket { stream: StreamId(1), number }
}

pub async fn command(stream: &mut Stream, sequence: u64, command: impl Into<Command<'_>>) {
    let command = command.into();
    stream.frame(command.opcode().unwrap(), 1, sequence, |out| command.encode(out)).await;
}

/// The error that ended a session.
pub async fn lost(stream: &mut Stream) -> String {
    loop {
        match stream.reply().await {
            Ok((opcode, body)) => match Event::decode(opcode, &body) {
                Ok(Event::Notice(Notice::Lost { error })) => return error.to_string(),
                _ => continue,
            },
            Err(error) => return error,
        }
    }
}

pub async fn session(client: &mut RawClient) -> (u64, Bytes, Stream) {
    let granted = client.allocate().await;
    let (stream, reply) = client.attach(granted.lease, granted.token.clone(), Lane::Commands).await;
    assert_eq!(reply.unwrap().0, Attached::OPCODE);
    (granted.lease, granted.token, stream)
}

#[test]
fn unsupported_protocol_version_is_refused() {
    attack(async |node| {
        let mut client = RawClient::connect_silently(&node.address).await;
        let hello = Hello { oldest: 7, newest: 9, features: 0, program: "later".into() };
        client.control.frame(Hello::OPCODE, 0, 1, |out| hello.encode(out)).await;
        assert_eq!(refusal(&client.control.reply().await), Status::UnsupportedVersion);
    });
}

#[test]
fn stolen_and_stale_and_forged_tokens_are_refused() {
    attack(async |node| {
        let mut owner = RawClient::connect(&node.address).await;
        let first = owner.allocate().await;
        let second = owner.allocate().await;
        // The token of another lease, none, and one with a flipped bit.
        let mut forged = first.token.to_vec();
        forged[20] ^= 1;
        for token in [second.token.clone(), Bytes::new(), forged.into()] {
            let (_, reply) = owner.attach(first.lease, token, Lane::Commands).await;
            assert_eq!(refusal(&reply), Status::Unauthorized);
        }
        let free = Free { lease: first.lease, token: second.token.clone() };
        owner.control.frame(Free::OPCODE, 0, 3, |out| free.encode(out)).await;
        assert_eq!(refusal(&owner.control.reply().await), Status::Unauthorized);
        let renew = Renew { lease: 999, token: first.token.clone(), lease_secs: 10 };
        owner.control.frame(Renew::OPCODE, 0, 4, |out| renew.encode(out)).await;
        assert_eq!(refusal(&owner.control.reply().await), Status::Unauthorized);
        // A lease that has ended.
        let free = Free { lease: first.lease, token: first.token.clone() };
        owner.control.frame(Free::OPCODE, 0, 5, |out| free.encode(out)).await;
        owner.control.reply().await.unwrap();
        let (_, reply) = owner.attach(first.lease, first.token, Lane::Commands).await;
        assert_eq!(refusal(&reply), Status::NotFound);
    });
}

#[test]
fn malformed_frames_end_the_connection() {
    attack(async |node| {
        let mut too_long = Vec::new();
        Writer::new(&mut too_long).put(FRAME_LIMIT + 1).put(Hello::OPCODE).put(0u16).put(0u32);
        Writer::new(&mut too_long).put(1u64);
        let mut truncated = Vec::new();
        cuda_lease::wire::put_frame(&mut truncated, Hello::OPCODE, 0, 1, |out| out.push(1));
        let mut unknown = Vec::new();
        cuda_lease::wire::put_frame(&mut unknown, 0x7777, 0, 1, |_| {});
        for (bytes, reason) in
            [(too_long, "the limit is"), (truncated, "is truncated"), (unknown, "0x7777")]
        {
            let mut client = RawClient::connect_silently(&node.address).await;
            client.control.bytes(&bytes).await;
            let error = client.control.reply().await.unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    });
}

#[test]
fn protocol_violation_ends_only_its_session() {
    attack(async |node| {
        let create = || Command::Control(Control::CreateStream { id: StreamId(1), priority: 0 });
        let join = |number| Command::Submit {
            ticket: ticket(number),
            after: Vec::new(),
            step: Step::Work(Work::Join),
        };
        let after =
            |after| Command::Submit { ticket: ticket(1), after, step: Step::Work(Work::Join) };
        let later = Ticket { stream: StreamId(1), number: 5 };
        let allocate =
            || Command::Control(Control::Allocate { id: AllocId(7), bytes: 1, at: ticket(1) });
        let again =
            || Command::Control(Control::Allocate { id: AllocId(7), bytes: 1, at: ticket(2) });
        let module = || Command::LoadModule {
            id: ModuleId(1),
            kind: ImageKind::Ptx,
            hash: [0; 32],
            bytes: u64::MAX,
        };
        let pool = |id| {
            Command::Control(Control::CreatePool { id: PoolId(id), spec: PoolSpec::new(u64::MAX) })
        };
        let drop_pool = |id| Command::Control(Control::DropPool { id: PoolId(id) });
        let in_pool = |pool| {
            let (pool, id) = (PoolId(pool), AllocId(7));
            Command::Control(Control::AllocateIn { pool, id, bytes: 1, at: ticket(1) })
        };
        let trim = |pool| {
            let request = Request::TrimPool { pool: PoolId(pool), keep: 0 };
            Command::Request { id: 1, request }
        };
        let cases: Vec<(Vec<Command<'_>>, &str)> = vec![
            (vec![join(1)], "does not exist"),
            (vec![create(), create()], "ids of streams must rise"),
            (vec![create(), join(2)], "out of order"),
            (vec![create(), after(vec![later])], "may only name earlier submissions"),
            (vec![create(), allocate(), again()], "already in use"),
            (vec![module()], "the limit is"),
            ((0..65).map(|id| pool(100 + id)).collect(), "more than 64 memory pools exist"),
            (vec![pool(100), pool(100)], "already in use"),
            (vec![create(), in_pool(100)], "memory pool 100 does not exist"),
            (vec![pool(100), drop_pool(100), drop_pool(100)], "memory pool 100 does not exist"),
            (vec![drop_pool(0)], "the default memory pool cannot be dropped"),
            (vec![trim(100)], "memory pool 100 does not exist"),
        ];
        for (commands, reason) in cases {
            let mut client = RawClient::connect(&node.address).await;
            let (_, _, mut stream) = session(&mut client).await;
            for (at, frame) in commands.into_iter().enumerate() {
                command(&mut stream, at as u64 + 1, frame).await;
            }
            let error = lost(&mut stream).await;
            assert!(error.contains(reason), "{error}");
        }
    });
}

#[test]
fn frames_out_of_order_and_of_other_sessions_end_the_connection() {
    attack(async |node| {
        for (epoch, sequence, reason) in [(1, 2, "rise by 1"), (9, 1, "epoch 9")] {
            let mut client = RawClient::connect(&node.address).await;
            let (_, _, mut stream) = session(&mut client).await;
            let create = Command::Control(Control::CreateStream { id: StreamId(1), priority: 0 });
            stream.frame(create.opcode().unwrap(), epoch, sequence, |out| create.encode(out)).await;
            let error = lost(&mut stream).await;
            assert!(error.contains(reason), "{error}");
        }
    });
}

/// A client sends messages that only a supervisor may send to a worker, or commands on the lane of bulk data.
#[test]
fn opcode_on_the_wrong_stream_ends_the_connection() {
    attack(async |node| {
        let create = opcode::STREAM_CREATE;
        let places = [(Lane::Commands, 0x0701), (Lane::Commands, 0x06c0), (Lane::Bulk, create)];
        for (lane, opcode) in places {
            let mut client = RawClient::connect(&node.address).await;
            let granted = client.allocate().await;
            let (mut stream, reply) = client.attach(granted.lease, granted.token, lane).await;
            assert_eq!(reply.unwrap().0, Attached::OPCODE);
            stream.frame(opcode, 1, 1, |out| out.resize(64, 0)).await;
            let error = stream.reply().await.unwrap_err();
            assert!(error.contains(&format!("{opcode:#06x}")), "{error}");
        }
    });
}

/// Lengths and sizes that no memory can hold.
#[test]
fn huge_sizes_are_refused_without_an_allocation() {
    attack(async |node| {
        let mut client = RawClient::connect(&node.address).await;
        let (lease, token, mut stream) = session(&mut client).await;
        let before = memory(node);
        let mut put = Stream::open(&client.connection).await;
        let blob = PutBlob { lease, token, hash: [1; 32], bytes: u64::MAX };
        put.frame(PutBlob::OPCODE, 0, 0, |out| blob.encode(out)).await;
        assert_eq!(refusal(&put.reply().await), Status::TooLarge);
        command(
            &mut stream,
            1,
            Command::Control(Control::CreateStream { id: StreamId(1), priority: 0 }),
        )
        .await;
        let all =
            Command::Control(Control::Allocate { id: AllocId(1), bytes: u64::MAX, at: ticket(1) });
        command(&mut stream, 2, all).await;
        let region = Region { alloc: AllocId(1), offset: 0 };
        let read = Step::Read { from: region, transfer: TransferId(1), bytes: u64::MAX };
        let read = Command::Submit { ticket: ticket(2), after: Vec::new(), step: read };
        command(&mut stream, 3, read).await;
        let (opcode, body) = stream.reply().await.unwrap();
        match Event::decode(opcode, &body).unwrap() {
            Event::Notice(Notice::Failed { ticket: failed, error }) => {
                assert_eq!(failed, ticket(1));
                assert!(matches!(error, Error::Remote { status: Status::TooLarge, .. }));
            }
            other => panic!("{other:?}"),
        }
        command(&mut stream, 4, Command::Control(Control::Want { ticket: ticket(2) })).await;
        while !matches!(
            stream.reply().await.map(|(opcode, body)| Event::decode(opcode, &body)),
            Ok(Ok(Event::Notice(Notice::Progress { complete: 2, .. })))
        ) {}
        assert!(memory(node) < before + (64 << 20), "{before} bytes before");
    });
}

/// A client sends bytes of uploads that it has not announced, and floods its session.
#[test]
fn bulk_bytes_without_an_upload_are_bounded() {
    attack(async |node| {
        let mut client = RawClient::connect(&node.address).await;
        let (lease, token, _commands) = session(&mut client).await;
        let (mut bulk, _) = client.attach(lease, token, Lane::Bulk).await;
        let before = memory(node);
        let bytes = vec![0; Chunk::LIMIT];
        let flood = async {
            for sequence in 1..=1024 {
                let chunk = Chunk { transfer: TransferId(5), offset: 0, bytes: &bytes };
                bulk.frame(Chunk::OPCODE, 1, sequence, |out| chunk.encode(out)).await;
            }
        };
        // The node stops reading, so the flood does not end.
        let ended = tokio::time::timeout(std::time::Duration::from_secs(3), flood).await;
        assert!(ended.is_err(), "the node took 256 MiB");
        assert!(memory(node) < before + (96 << 20), "{before} bytes before");
    });
}

/// A client requests downloads and never reads them.
#[test]
fn slow_reader_occupies_bounded_memory() {
    attack(async |node| {
        let mut client = RawClient::connect(&node.address).await;
        let (lease, token, mut commands) = session(&mut client).await;
        let (_bulk, _) = client.attach(lease, token, Lane::Bulk).await;
        command(
            &mut commands,
            1,
            Command::Control(Control::CreateStream { id: StreamId(1), priority: 0 }),
        )
        .await;
        let bytes = 1 << 20;
        let allocate = Command::Control(Control::Allocate { id: AllocId(1), bytes, at: ticket(1) });
        command(&mut commands, 2, allocate).await;
        let before = memory(node);
        for transfer in 1..=512u64 {
            let region = Region { alloc: AllocId(1), offset: 0 };
            let step = Step::Read { from: region, transfer: TransferId(transfer), bytes };
            let read = Command::Submit { ticket: ticket(transfer + 1), after: Vec::new(), step };
            command(&mut commands, transfer + 2, read).await;
        }
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
        assert!(memory(node) < before + (256 << 20), "{before} bytes before");
    });
}

/// A client requests many small downloads, whose bytes travel with the events, and never reads them.
#[test]
fn slow_reader_of_small_downloads_occupies_bounded_memory() {
    attack(async |node| {
        let mut client = RawClient::connect(&node.address).await;
        let (_, _, mut commands) = session(&mut client).await;
        command(
            &mut commands,
            1,
            Command::Control(Control::CreateStream { id: StreamId(1), priority: 0 }),
        )
        .await;
        let bytes = 16 << 10;
        let allocate = Command::Control(Control::Allocate { id: AllocId(1), bytes, at: ticket(1) });
        command(&mut commands, 2, allocate).await;
        let before = memory(node);
        for transfer in 1..=40_000u64 {
            let region = Region { alloc: AllocId(1), offset: 0 };
            let step = Step::Read { from: region, transfer: TransferId(transfer), bytes };
            let read = Command::Submit { ticket: ticket(transfer + 1), after: Vec::new(), step };
            command(&mut commands, transfer + 2, read).await;
        }
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
        assert!(memory(node) < before + (256 << 20), "{before} bytes before");
    });
}

#[test]
fn modules_that_wait_for_their_code_are_limited() {
    attack(async |node| {
        let mut client = RawClient::connect(&node.address).await;
        let (_, _, mut stream) = session(&mut client).await;
        for number in 1..10_000u64 {
            let mut hash = [0; 32];
            hash[..8].copy_from_slice(&number.to_le_bytes());
            let (id, kind) = (ModuleId(number), ImageKind::Ptx);
            let load = Command::LoadModule { id, kind, hash, bytes: 1 };
            command(&mut stream, 2 * number - 1, load).await;
            command(&mut stream, 2 * number, Command::Control(Control::UnloadModule { id })).await;
            // The node asks for the code, until it ends the session.
            let (opcode, body) = stream.reply().await.unwrap();
            if let Ok(Event::Notice(Notice::Lost { error })) = Event::decode(opcode, &body) {
                assert!(error.to_string().contains("wait for their code"), "{error}");
                return;
            }
        }
        panic!("no load was refused");
    });
}

/// The next request for code.
async fn needed(stream: &mut Stream) -> [u8; 32] {
    loop {
        let (opcode, body) = stream.reply().await.unwrap();
        if let Ok(Event::NeedBlob { hash }) = Event::decode(opcode, &body) {
            return hash;
        }
    }
}

/// A client that cancels a load forgets the code, and does not answer the request for it.
#[test]
fn code_of_a_cancelled_load_is_asked_for_again() {
    attack(async |node| {
        let mut client = RawClient::connect(&node.address).await;
        let (lease, token, mut stream) = session(&mut client).await;
        let code = b".version 8.0 .target sm_80 .address_size 64";
        let (hash, bytes) = (*blake3::hash(code).as_bytes(), code.len() as u64);
        let load = |id| Command::LoadModule { id, kind: ImageKind::Ptx, hash, bytes };
        command(&mut stream, 1, load(ModuleId(1))).await;
        assert_eq!(needed(&mut stream).await, hash);
        command(&mut stream, 2, Command::Control(Control::UnloadModule { id: ModuleId(1) })).await;
        command(&mut stream, 3, load(ModuleId(2))).await;
        assert_eq!(needed(&mut stream).await, hash);
        let request = Request::Loaded { module: ModuleId(2) };
        command(&mut stream, 4, Command::Request { id: 7, request }).await;
        let mut put = Stream::open(&client.connection).await;
        let blob = PutBlob { lease, token, hash, bytes };
        put.frame(PutBlob::OPCODE, 0, 0, |out| blob.encode(out)).await;
        put.bytes(code).await;
        let reply = loop {
            let (opcode, body) = stream.reply().await.unwrap();
            if let Event::Reply { id: 7, reply } = Event::decode(opcode, &body).unwrap() {
                break reply;
            }
        };
        assert!(reply.is_ok(), "{reply:?}");
    });
}

/// A client loads and unloads one module, whose code the node has, again and again.
#[test]
fn loads_of_the_same_code_occupy_bounded_memory() {
    attack(async |node| {
        let mut client = RawClient::connect(&node.address).await;
        let (lease, token, mut stream) = session(&mut client).await;
        let code = vec![b' '; 1 << 20];
        let hash = *blake3::hash(&code).as_bytes();
        let mut put = Stream::open(&client.connection).await;
        let blob = PutBlob { lease, token, hash, bytes: code.len() as u64 };
        put.frame(PutBlob::OPCODE, 0, 0, |out| blob.encode(out)).await;
        put.bytes(&code).await;
        put.reply().await.unwrap();
        let before = memory(node);
        for number in 1..=50_000u64 {
            let (id, kind) = (ModuleId(number), ImageKind::Ptx);
            let load = Command::LoadModule { id, kind, hash, bytes: code.len() as u64 };
            command(&mut stream, 2 * number - 1, load).await;
            command(&mut stream, 2 * number, Command::Control(Control::UnloadModule { id })).await;
        }
        assert!(memory(node) < before + (64 << 20), "{before} bytes before");
    });
}

#[test]
fn lease_is_not_ended_by_an_old_token() {
    attack(async |node| {
        let mut client = RawClient::connect(&node.address).await;
        let granted = client.allocate().await;
        let mut token = granted.token.clone();
        for sequence in [3, 4] {
            let renew = Renew { lease: granted.lease, token, lease_secs: 60 };
            client.control.frame(Renew::OPCODE, 0, sequence, |out| renew.encode(out)).await;
            token = Renewed::decode(&client.control.reply().await.unwrap().1).unwrap().token;
        }
        for (sequence, token, status) in
            [(5, granted.token, Some(Status::Unauthorized)), (6, token, None)]
        {
            let free = Free { lease: granted.lease, token };
            client.control.frame(Free::OPCODE, 0, sequence, |out| free.encode(out)).await;
            let reply = client.control.reply().await;
            let refused = matches!(reply, Ok((Refused::OPCODE, _))).then(|| refusal(&reply));
            assert_eq!(refused, status);
        }
    });
}

#[test]
fn half_open_connections_and_streams_are_closed() {
    attack(async |node| {
        let mut silent = Vec::new();
        for _ in 0..50 {
            silent.push(RawClient::connect_silently(&node.address).await);
        }
        // A stream without a first frame is refused after a while.
        let first = &mut silent[0];
        first.control.bytes(&[1, 2, 3]).await;
        assert_eq!(refusal(&first.control.reply().await), Status::BadRequest);
        assert!(first.control.reply().await.is_err());
    });
}
