//! Spans of client, node and worker have one trace id.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{
    collections::BTreeMap,
    fmt::Debug,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use cuda_cpu::CpuProvider;
use cuda_lease::{LeaseBuilder, NodeClient, TraceContext, authority::ClientTls};
use cuda_node::supervisor::{DeviceOptions, Node, NodeOptions};
use tracing::{
    Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};
use tracing_subscriber::{
    layer::{Context, Layer, SubscriberExt},
    registry::LookupSpan,
};

/// The longest wait for a state. A test that waits longer has found a bug.
const LONG: Duration = Duration::from_secs(60);

const KERNEL: &str = include_str!("../../kernels/iota.ptx");

/// A span: its place in the program, and its fields.
#[derive(Debug, Clone, Default)]
struct Seen {
    id: u64,
    target: String,
    name: &'static str,
    parent: Option<&'static str>,
    fields: BTreeMap<&'static str, String>,
}

impl Visit for Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }
}

/// Keeps all spans.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<Seen>>>);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let parent = context.span(id).and_then(|span| Some(span.parent()?.name()));
        let metadata = attributes.metadata();
        let (target, name, id) = (metadata.target().to_owned(), metadata.name(), id.into_u64());
        let mut seen = Seen { id, target, name, parent, ..Seen::default() };
        attributes.record(&mut seen);
        self.0.lock().unwrap().push(seen);
    }

    fn on_record(&self, id: &Id, record: &Record<'_>, _: Context<'_, S>) {
        // The registry uses the id of a closed span again.
        if let Some(seen) = self.0.lock().unwrap().iter_mut().rfind(|seen| seen.id == id.into_u64())
        {
            record.record(seen);
        }
    }
}

impl Spans {
    /// Waits for a span of a folder with the id of a trace.
    fn wait(&self, folder: &str, name: &str, trace: &str) -> Seen {
        let started = Instant::now();
        loop {
            let is_it = |seen: &&Seen| {
                seen.target.starts_with(folder)
                    && seen.name == name
                    && seen.fields.get("trace_id").is_some_and(|id| id == trace)
            };
            let found = self.0.lock().unwrap().iter().find(is_it).cloned();
            if let Some(seen) = found {
                return seen;
            }
            let all = self.0.lock().unwrap().clone();
            assert!(started.elapsed() < LONG, "no span {name:?} of {folder} in {all:#?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// One test: the subscriber sees all threads, so it is that of the whole process.
#[test]
fn spans_of_client_and_node_join() {
    let spans = Spans::default();
    let subscriber = tracing_subscriber::registry().with(spans.clone());
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let device = DeviceOptions::in_process(CpuProvider::default());
    let node = Node::start(NodeOptions::loopback(vec![device])).unwrap();
    let address = node.address().to_string();

    // A lease in a trace of its own.
    let program = tracing::info_span!("program");
    let lease = program.in_scope(|| LeaseBuilder::new(&address).acquire_blocking()).unwrap();
    let trace = lease.trace().unwrap().trace_id().to_string();
    let client = spans.wait("cuda_lease::client", "lease", &trace);
    assert_eq!(
        (client.parent, &client.fields["lease"]),
        (Some("program"), &lease.id().to_string())
    );
    let on_node = spans.wait("cuda_node::supervisor", "lease", &trace);
    assert_eq!(on_node.fields["parent_span_id"], client.fields["span_id"]);
    assert_ne!(on_node.fields["span_id"], client.fields["span_id"]);
    assert_eq!(on_node.fields["tenant"], "local");
    let session = spans.wait("cuda_node::supervisor", "session", &trace);
    assert_eq!(session.parent, Some("lease"));
    assert_eq!(session.fields["parent_span_id"], on_node.fields["span_id"]);
    assert_eq!(
        spans.wait("cuda_node::worker", "worker", &trace).fields["lease"],
        lease.id().to_string()
    );

    // A stateless submit is a span of its own in the trace of its lease.
    lease.submit("iota", KERNEL).block(4).arg(&4u32).max_output(16).launch_blocking().unwrap();
    let client = spans.wait("cuda_lease::client", "submit", &trace);
    let on_node = spans.wait("cuda_node::supervisor", "submit", &trace);
    assert_eq!(on_node.fields["parent_span_id"], client.fields["span_id"]);

    // A lease in a trace of the program.
    let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0b9902b7-01";
    let parent = TraceContext::parse(text).unwrap();
    let lease = LeaseBuilder::new(&address).trace_parent(parent).acquire_blocking().unwrap();
    let trace = parent.trace_id().to_string();
    assert_eq!(lease.trace().unwrap().trace_id(), parent.trace_id());
    let client = spans.wait("cuda_lease::client", "lease", &trace);
    assert_ne!(client.fields["span_id"], parent.span_id().to_string());
    let on_node = spans.wait("cuda_node::supervisor", "lease", &trace);
    assert_eq!(on_node.fields["parent_span_id"], client.fields["span_id"]);

    // A detached lease, and a submit in a trace that the program chooses.
    let client = NodeClient::connect(&address, ClientTls::loopback()).unwrap();
    let other = TraceContext::from_random([1; 16], [2; 8]);
    let detached = client.allocate(&LeaseBuilder::new(&address).trace_parent(other)).unwrap();
    spans.wait("cuda_node::supervisor", "lease", &"01".repeat(16));
    let submit = client.submit(detached.id, detached.token, cuda_lease::Job::new("iota", KERNEL));
    let own = TraceContext::from_random([3; 16], [4; 8]);
    submit.trace_parent(own).block(4).arg(&4u32).max_output(16).launch_blocking().unwrap();
    let sent = spans.wait("cuda_lease::client", "submit", &"03".repeat(16));
    let on_node = spans.wait("cuda_node::supervisor", "submit", &"03".repeat(16));
    assert_eq!(on_node.fields["parent_span_id"], sent.fields["span_id"]);
}

#[test]
fn logs_of_node_and_worker_processes_have_the_trace_id() {
    let mut node = Command::new(env!("CARGO_BIN_EXE_cuda-node"))
        .args(["--listen", "127.0.0.1:0", "--device", "cpu", "--insecure"])
        .env("RUST_LOG", "info")
        .env("NO_COLOR", "1")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(node.stdout.take().unwrap()).read_line(&mut first).unwrap();
    let address = first.trim().strip_prefix("listening on ").unwrap();
    let lease = LeaseBuilder::new(address).acquire_blocking().unwrap();
    let trace = format!("trace_id={}", lease.trace().unwrap().trace_id());
    let lines: Arc<Mutex<Vec<String>>> = Arc::default();
    let (all, log) = (lines.clone(), BufReader::new(node.stderr.take().unwrap()));
    let reader = std::thread::spawn(move || {
        log.lines().map_while(Result::ok).for_each(|line| all.lock().unwrap().push(line));
    });
    let has = |message: &str| {
        let is_it = |line: &String| line.contains(message) && line.contains(&trace);
        lines.lock().unwrap().iter().any(is_it)
    };
    let started = Instant::now();
    let are_there = || has("a lease was granted") && has("the worker has a lease");
    while !are_there() && started.elapsed() < LONG {
        std::thread::sleep(Duration::from_millis(5));
    }
    let found = are_there();
    drop(lease);
    node.kill().unwrap();
    node.wait().unwrap();
    reader.join().unwrap();
    assert!(found, "{trace} is not in {:#?}", lines.lock().unwrap());
}
