//! The bytes of one example of each message, which the chapter "The wire protocol" of the book quotes.
//!
//! `GOLDEN_WRITE=1` writes the file anew. A change of the bytes breaks clients in other languages.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::{fmt::Write, path::PathBuf, sync::Arc};

use cuda_core::{
    Access, Error, Feature, FunctionAttributes, LaunchConfig, Limit, Occupancy, Quantity, Ticket,
    protocol::{
        AllocId, Control, FunctionId, Graph, GraphId, GraphNode, Launch, ModuleId, NodeChange,
        Notice, Pattern, PoolChange, PoolId, PoolMemory, PoolSpec, Region, Relocation, Repeat,
        Reply, Request, Status, StreamId, Work,
    },
};
use cuda_lease::wire::{
    Ack, Allocate, Attach, Attached, Chunk, Command, Confirm, Content, Event, Exclusivity, Free,
    Hello, ImageKind, Inventory, Lane, PutBlob, Refused, Renew, Renewed, Step, Submit, Submitted,
    TransferId, VERSION, Welcome, decode_graph, encode_changes, encode_graph, frames_in, put_frame,
};

/// The epoch of the session in the examples.
const EPOCH: u32 = 0x11;

type Decode = Box<dyn Fn(&[u8]) -> bool>;

/// An example: its name, its frame, and a test that the body has the values again.
struct Example(String, Vec<u8>, Decode);

fn frame(
    name: &str,
    opcode: u16,
    epoch: u32,
    number: u64,
    body: Vec<u8>,
    decode: Decode,
) -> Example {
    let mut out = Vec::new();
    put_frame(&mut out, opcode, epoch, number, |out| out.extend_from_slice(&body));
    Example(name.into(), out, decode)
}

macro_rules! message {
    ($out:ident, $number:expr, $ty:ident { $($field:ident: $value:expr),* $(,)? }) => {{
        let message = $ty { $($field: $value),* };
        let mut body = Vec::new();
        message.encode(&mut body);
        let decode = Box::new(move |body: &[u8]| $ty::decode(body).unwrap() == message);
        $out.push(frame(stringify!($ty), $ty::OPCODE, 0, $number, body, decode));
    }};
}

fn command(name: &str, number: u64, command: impl Into<Command<'static>>) -> Example {
    let command = command.into();
    let (mut body, opcode) = (Vec::new(), command.opcode().unwrap());
    command.encode(&mut body);
    let decode = Box::new(move |body: &[u8]| Command::decode(opcode, body).unwrap() == command);
    frame(name, opcode, EPOCH, number, body, decode)
}

fn event(name: &str, number: u64, event: impl Into<Event>) -> Example {
    let event = event.into();
    let (mut body, opcode) = (Vec::new(), event.opcode());
    event.encode(&mut body);
    let decode = Box::new(move |body: &[u8]| Event::decode(opcode, body).unwrap() == event);
    frame(name, opcode, EPOCH, number, body, decode)
}

fn examples() -> Vec<Example> {
    let mut out = Vec::new();
    let token = || "token".as_bytes().to_vec().into();
    message!(out, 1, Hello { oldest: VERSION, newest: VERSION, features: 0, program: "me".into() });
    let node = || "node".into();
    message!(
        out,
        1,
        Welcome { version: VERSION, features: 0, node: node(), certificate_ends_in_ms: None }
    );
    message!(
        out,
        1,
        Welcome {
            version: VERSION,
            features: 0,
            node: node(),
            certificate_ends_in_ms: Some(3_600_000)
        }
    );
    message!(
        out,
        2,
        Allocate {
            nonce: [0xaa; 16],
            min_vram: 1 << 30,
            lease_secs: 60,
            exclusivity: Exclusivity::Shared,
            device: Some("cuda:0".into()),
            wait_ms: 500,
            priority: -1,
            detached: false,
            trace: None,
        }
    );
    message!(out, 3, Renew { lease: 7, token: token(), lease_secs: 60 });
    message!(out, 3, Renewed { token: token(), generation: 2, expires_in_ms: 60_000 });
    message!(out, 4, Free { lease: 7, token: token() });
    message!(out, 5, Inventory {});
    message!(out, 6, Refused { status: Status::CapacityExceeded, detail: "full".into() });
    message!(
        out,
        0,
        Attach {
            lease: 7,
            token: token(),
            lane: Lane::Commands,
            epoch: EPOCH,
            is_resumed: false,
            received: 0,
        }
    );
    message!(out, 0, Attached { received: 0 });
    message!(out, 0, Ack { received: 9 });
    message!(out, 0, PutBlob { lease: 7, token: token(), hash: [0xbb; 32], bytes: 4096 });
    message!(
        out,
        0,
        Submit {
            lease: 7,
            token: token(),
            kind: ImageKind::Ptx,
            hash: [0xbb; 32],
            image: None,
            kernel: "iota".into(),
            grid: [1, 1, 1],
            block: [256, 1, 1],
            shared_bytes: 0,
            arguments: vec![256u32.to_le_bytes().to_vec().into()],
            region_bytes: 0,
            input_bytes: 0,
            output_offset: 0,
            max_output: 1024,
            trace: None,
            id: None,
        }
    );
    message!(
        out,
        0,
        Submitted {
            status: Status::Ok,
            text: String::new(),
            output: 1.0f32.to_le_bytes().to_vec().into(),
            following_bytes: 0,
        }
    );
    message!(out, 7, Confirm { lease: 7, token: token() });
    session(&mut out);
    out
}

/// The commands and events of a session that uploads, launches and reads back.
fn session(out: &mut Vec<Example>) {
    let (stream, alloc) = (StreamId(1), AllocId(5));
    let ticket = |number| Ticket { stream, number };
    let region = Region { alloc, offset: 0 };
    let submit = |number, step| Command::Submit { ticket: ticket(number), after: Vec::new(), step };
    let launch = Launch {
        function: FunctionId { module: ModuleId(3), entry: 0 },
        config: LaunchConfig::new(1, 256),
        params: [&[0u8; 8][..], &4u32.to_le_bytes()].concat().into(),
        relocations: vec![Relocation { at: 0, region, bytes: 16, access: Access::Write }].into(),
        variables: Vec::new().into(),
    };
    let with_attributes =
        Launch { config: launch.config.cluster(2, 1, 1).cooperative(), ..launch.clone() };
    let mut change = Vec::new();
    let work = Work::Fill { to: region, pattern: Pattern::Word(3), count: 4 };
    encode_changes(&[NodeChange { node: 0, work }], &[], "lease", &mut change).unwrap();
    out.extend([
        command("CreateStream", 1, Control::CreateStream { id: stream, priority: 0 }),
        command("Allocate memory", 2, Control::Allocate { id: alloc, bytes: 16, at: ticket(1) }),
        command("Write", 3, submit(2, Step::Write { to: region, bytes: &[1, 2, 3, 4] })),
        command(
            "Write in bulk",
            4,
            submit(3, Step::WriteBulk { to: region, transfer: TransferId(1), bytes: 16 }),
        ),
        command(
            "Fill",
            5,
            submit(4, Work::Fill { to: region, pattern: Pattern::Word(7), count: 4 }.into()),
        ),
        command(
            "LoadModule",
            6,
            Command::LoadModule {
                id: ModuleId(3),
                kind: ImageKind::Ptx,
                hash: [0xbb; 32],
                bytes: 4096,
            },
        ),
        command(
            "Loaded?",
            7,
            Command::Request { id: 1, request: Request::Loaded { module: ModuleId(3) } },
        ),
        command("Launch", 8, submit(5, Work::Launch(launch.clone()).into())),
        command(
            "Read",
            9,
            submit(6, Step::Read { from: region, transfer: TransferId(2), bytes: 16 }),
        ),
        command("Sync", 10, Control::Want { ticket: ticket(6) }),
        command("Free memory", 11, Control::Free { id: alloc, stream, after: Vec::new() }),
        command(
            "CreateGraph",
            12,
            Command::CreateGraph {
                id: GraphId(9),
                nodes: Content::Inline(nodes(launch.clone()).leak()),
            },
        ),
        command(
            "GraphReady?",
            13,
            Command::Request { id: 2, request: Request::GraphReady { graph: GraphId(9) } },
        ),
        command(
            "Launch a graph",
            14,
            submit(7, Step::Graph { graph: GraphId(9), changes: Content::NO_CHANGES }),
        ),
        command(
            "Launch a graph with one change",
            15,
            submit(8, Step::Graph { graph: GraphId(9), changes: Content::Inline(change.leak()) }),
        ),
        command("DropGraph", 16, Control::DropGraph { id: GraphId(9) }),
        command("Launch with attributes", 17, submit(9, Work::Launch(with_attributes).into())),
        command(
            "Occupancy?",
            18,
            Command::Request {
                id: 3,
                request: Request::Occupancy {
                    function: FunctionId { module: ModuleId(3), entry: 0 },
                    config: LaunchConfig::new(1, 256),
                },
            },
        ),
        command(
            "CreatePool",
            19,
            Control::CreatePool { id: PoolId(10), spec: PoolSpec::new(1 << 20) },
        ),
        command(
            "Allocate from a pool",
            20,
            Control::AllocateIn { pool: PoolId(10), id: AllocId(11), bytes: 16, at: ticket(9) },
        ),
        command(
            "ChangePool",
            21,
            Control::ChangePool { id: PoolId(10), change: PoolChange::ReleaseThreshold(0) },
        ),
        command("DropPool", 22, Control::DropPool { id: PoolId(10) }),
        command(
            "Memory of a pool?",
            23,
            Command::Request { id: 3, request: Request::PoolMemory { pool: PoolId(10) } },
        ),
        command(
            "TrimPool",
            24,
            Command::Request {
                id: 4,
                request: Request::TrimPool { pool: PoolId(10), keep: 1 << 10 },
            },
        ),
        command("Cancel", 25, Control::Cancel { stream, first: 5, last: 6, downloads: true }),
        event(
            "Memory of a pool",
            5,
            Event::Reply {
                id: 3,
                reply: Ok(Reply::Pool(PoolMemory {
                    reserved: 16,
                    reserved_peak: 32,
                    release_threshold: 1 << 20,
                })),
            },
        ),
        event("NeedBlob", 1, Event::NeedBlob { hash: [0xbb; 32] }),
        event(
            "Occupancy",
            5,
            Event::Reply {
                id: 3,
                reply: Ok(Reply::Occupancy(Occupancy {
                    blocks_per_multiprocessor: 8,
                    max_cooperative_blocks: 1056,
                    max_cluster_blocks: 16,
                    suggested_block: 1024,
                    kernel: FunctionAttributes {
                        registers: 16,
                        local_bytes: 0,
                        static_shared_bytes: 0,
                        max_threads: 1024,
                    },
                })),
            },
        ),
        event("Progress", 2, Notice::Progress { stream, accepted: 6, complete: 6 }),
        event(
            "Failed",
            3,
            Notice::Failed { ticket: ticket(5), error: Error::OutOfHostMemory { requested: 16 } },
        ),
        event(
            "Ending",
            4,
            Event::Ending {
                status: Status::LeaseExpired,
                grace_ms: 0,
                detail: "lease 7 has expired".into(),
            },
        ),
        event(
            "Failed with a limit",
            5,
            Notice::Failed {
                ticket: ticket(6),
                error: Error::out_of_range("a buffer", Quantity::End, 24, Limit::AtMost(16)),
            },
        ),
        event(
            "Failed with a feature",
            6,
            Notice::Failed {
                ticket: ticket(7),
                error: Error::unsupported(Feature::GraphLoop, "cuda:0"),
            },
        ),
    ]);
    let chunk = Chunk { transfer: TransferId(1), offset: 0, bytes: &[1, 2, 3, 4] };
    let mut body = Vec::new();
    chunk.encode(&mut body);
    let decode = Box::new(move |body: &[u8]| Chunk::decode(body).unwrap() == chunk);
    out.push(frame("Chunk", Chunk::OPCODE, EPOCH, 1, body, decode));
}

/// The content of a graph: a fill named `clear`, then a loop around a launch.
fn nodes(launch: Launch<'static>) -> Vec<u8> {
    let region = launch.relocations[0].region;
    let fill = Work::Fill { to: region, pattern: Pattern::Word(7), count: 4 };
    let node = |work, after, name| GraphNode { work, after, name };
    let body = Graph { nodes: vec![node(Work::Launch(launch), vec![], None)], host: Vec::new() };
    let repeat = Repeat { condition: region, body: Arc::new(body), uses: [].into() };
    let nodes =
        vec![node(fill, vec![], Some("clear".into())), node(Work::Repeat(repeat), vec![0], None)];
    let graph = Graph { nodes, host: Vec::new() };
    let mut content = Vec::new();
    encode_graph(&graph, &[], "lease", &mut content).unwrap();
    assert_eq!(decode_graph(&content).unwrap(), graph);
    content
}

/// The examples as text: a line with the name, and lines of 16 bytes. The header has a line of its own.
fn text(examples: &[Example]) -> String {
    let mut text = String::new();
    for Example(name, bytes, _) in examples {
        writeln!(text, "{name}").unwrap();
        for line in std::iter::once(&bytes[..20]).chain(bytes[20..].chunks(16)) {
            let line: Vec<_> = line.iter().map(|byte| format!("{byte:02x}")).collect();
            writeln!(text, "    {}", line.join(" ")).unwrap();
        }
    }
    text
}

#[test]
fn messages_have_the_bytes_of_the_specification() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/frames.txt");
    let examples = examples();
    let text = text(&examples);
    if std::env::var_os("GOLDEN_WRITE").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap();
    for (line, (ours, theirs)) in text.lines().zip(golden.lines()).enumerate() {
        assert_eq!(ours, theirs, "line {} of {}", line + 1, path.display());
    }
    assert_eq!(text.len(), golden.len());
}

#[test]
fn bytes_of_the_specification_give_the_messages() {
    let golden = include_str!("golden/frames.txt");
    let hex = golden.lines().filter_map(|line| line.strip_prefix("    "));
    let bytes: Vec<u8> = hex
        .flat_map(|line| line.split(' '))
        .map(|digits| u8::from_str_radix(digits, 16).unwrap())
        .collect();
    let (examples, mut at) = (examples(), 0);
    for (Example(name, _, decode), frame) in examples.iter().zip(frames_in(&bytes)) {
        assert!(decode(frame.body), "{name}");
        at += frame.bytes.len();
    }
    assert_eq!(at, bytes.len());
}

#[test]
fn book_quotes_the_bytes() {
    let (page, golden) =
        (include_str!("../../book/src/wire.md"), include_str!("golden/frames.txt"));
    let quotes: Vec<_> = page
        .split("```text\n")
        .skip(1)
        .filter_map(|block| block.split("```").next()?.split_once('\n'))
        .map(|(_, bytes)| bytes)
        .collect();
    assert_eq!(quotes.len(), 5);
    assert!(quotes.iter().all(|bytes| golden.contains(bytes)), "{quotes:#?}");
}
