//! The program `cuda-node`: its options, its log, and the commands of the operator.
#![allow(clippy::unwrap_used)]

use std::{
    fs::File,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use cuda_async::prelude::*;
use cuda_lease::{DetachedLease, LeaseBuilder, NodeClient, authority::ClientTls};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// The longest wait for a state. A test that waits longer has found a bug.
const LONG: Duration = Duration::from_secs(60);

fn command(line: &str, folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cuda-node"));
    command.args(line.split_whitespace()).current_dir(folder);
    command
}

/// Runs the program until it ends. Returns its exit status, stdout and stderr.
fn run(line: &str, folder: &Path) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command(line, folder).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

/// A node in a process of its own, with one CPU device. Its log is the file `log` of its folder.
struct Node {
    child: Child,
    address: String,
    folder: TempDir,
}

impl Node {
    fn start(options: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let log = File::create(folder.path().join("log")).unwrap();
        Self::start_in(folder, options, |command| command.stderr(log))
    }

    fn start_in(
        folder: TempDir,
        options: &str,
        prepare: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Self {
        let line = format!("--insecure --device cpu --listen 127.0.0.1:0 {options}");
        let mut command = command(&line, folder.path());
        let mut child = prepare(command.stdout(Stdio::piped())).spawn().unwrap();
        let first = BufReader::new(child.stdout.take().unwrap()).lines().next().unwrap().unwrap();
        let address = first.strip_prefix("listening on ").unwrap().to_owned();
        Self { child, address, folder }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn client(&self) -> NodeClient {
        NodeClient::connect(&self.address, ClientTls::loopback()).unwrap()
    }

    /// A lease that outlives its connection.
    fn allocate(&self) -> DetachedLease {
        self.client().allocate(&LeaseBuilder::new(&self.address)).unwrap()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

#[test]
fn wrong_options_are_refused_by_their_names() {
    let folder = TempDir::new().unwrap();
    let cpu = "--insecure --listen 127.0.0.1:0 --device cpu";
    for (line, words) in [
        (
            "--device gpu0",
            &["--device", "cpu, cuda, cuda:N, GPU-IDENTIFIER and MIG-IDENTIFIER"][..],
        ),
        ("--device cuda:x", &["--device", "cuda:N"]),
        (&format!("{cpu} --device cpu"), &["--device", "twice"]),
        (&format!("{cpu} --submissions 0"), &["--submissions"]),
        (&format!("{cpu} --max-leases 0"), &["--max-leases"]),
        (&format!("{cpu} --max-lease-secs 0"), &["--max-lease-secs"]),
        (&format!("{cpu} --spares 17"), &["--spares", "--max-leases", "at most 16"]),
        (&format!("{cpu} --capacity 0"), &["--capacity", "at least 1 byte"]),
        (
            &format!("{cpu} --capacity 900TiB"),
            &["bytes is 989560464998400", "memory of device cpu"],
        ),
        (&format!("{cpu} --metrics 6110"), &["--metrics", "write IP:PORT"]),
        ("--device cpu --listen localhost:6120", &["--listen", "write IP:PORT"]),
        (&format!("{cpu} --jit-cache /proc/x"), &["compiled kernels in /proc/x", "--jit-cache"]),
        (&format!("{cpu} --state s --jit-cache ./s"), &["--jit-cache", "folder of `--state`"]),
        (&format!("{cpu} --sandbox maybe"), &["--sandbox", "auto, required, off"]),
        (&format!("{cpu} --worker-uids 0-9"), &["--worker-uids", "write FIRST-LAST"]),
        (&format!("{cpu} --worker-uids 9-5"), &["--worker-uids", "write FIRST-LAST"]),
        (&format!("{cpu} --crl ca.crl"), &["--insecure", "--crl"]),
        (&format!("{cpu} --operator-socket no/op"), &["no/op; create its folder first"]),
    ] {
        let (status, stdout, stderr) = run(line, folder.path());
        assert_eq!((status, &*stdout), (Some(2), ""), "{line}: {stderr}");
        assert!(words.iter().all(|word| stderr.contains(word)), "{line}: {stderr}");
    }
    let (_, version, _) = run("--version", folder.path());
    assert_eq!(version, concat!("cuda-node ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn operator_reads_what_a_command_did() {
    let node = Node::start("--operator-socket op");
    let folder = node.folder.path();
    let lease = node.allocate().id;
    let (status, stdout, stderr) =
        run(&format!("revoke {lease} --notice-secs 60 --socket op"), folder);
    assert_eq!((status, &*stderr), (Some(0), ""));
    assert_eq!(stdout, format!("lease {lease} is revoked, and ends in 60 s\n"));
    // An earlier end holds, whatever a later notice says.
    let again =
        |lease, secs| run(&format!("revoke {lease} --notice-secs {secs} --socket op"), folder).1;
    let (notice, seconds) = ("before the notice period of 999999 s is over", |line: &str| {
        line.split_once(" ends in ").unwrap().1.split(' ').next().unwrap().parse::<u64>().unwrap()
    });
    let stdout = again(lease, 999_999);
    assert!(stdout.contains(notice) && seconds(&stdout) <= 60, "{stdout}");
    // So does the time at which a lease expires.
    let request = LeaseBuilder::new(&node.address).lease_secs(50);
    let expires = node.client().allocate(&request).unwrap().id;
    let stdout = again(expires, 999_999);
    assert!(stdout.contains(notice) && seconds(&stdout) <= 50, "{stdout}");
    // The end is announced.
    let leases = node.client().leases().unwrap();
    assert!(leases[0].ending, "{leases:?}");
    let (status, _, stderr) = run("revoke 4711 --socket op", folder);
    assert_eq!(status, Some(2));
    assert!(stderr.contains("lease 4711") && !stderr.contains("request a new lease"), "{stderr}");
    let (status, stdout, _) = run("unfence cpu --socket op", folder);
    assert_eq!((status, &*stdout), (Some(0), "device cpu was not fenced\n"));
}

#[test]
fn log_in_a_file_has_no_colors_and_tells_of_reloads_and_the_end() {
    let folder = TempDir::new().unwrap();
    let quotas = folder.path().join("quotas.toml");
    std::fs::write(&quotas, "").unwrap();
    let mut node = Node::start(&format!("--quotas {}", quotas.display()));
    let reload = |words: &[&str]| {
        node.signal(Signal::HUP);
        let started = Instant::now();
        while !words.iter().all(|word| node.log().contains(word)) {
            assert!(started.elapsed() < LONG, "the log does not state {words:?}: {}", node.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    reload(&["certificates and quotas were read again, and the audit log was opened again"]);
    std::fs::write(&quotas, "[tenants").unwrap();
    reload(&["ERROR", "nothing was reloaded", quotas.to_str().unwrap()]);
    node.allocate();
    node.signal(Signal::TERM);
    assert!(node.child.wait().unwrap().success());
    let log = node.log();
    assert!(
        log.contains("INFO") && log.contains("the node stops, and its leases end leases=1"),
        "{log}"
    );
    assert!(!log.contains('\u{1b}'), "{log}");
}

#[test]
fn node_whose_log_nobody_reads_goes_on() {
    // A line for each packet, so that the pipe and the buffer of the node are soon full.
    let mut node = Node::start_in(TempDir::new().unwrap(), "", |command| {
        command.env("RUST_LOG", "trace").stderr(Stdio::piped())
    });
    for _ in 0..100 {
        node.client().inventory().unwrap();
    }
    // Now someone reads, and the log tells what is missing.
    let log = BufReader::new(node.child.stderr.take().unwrap());
    let (told, is_told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        log.lines().map_while(Result::ok).for_each(|line| {
            if line.contains("lines of this log were dropped") {
                _ = told.send(());
            }
        });
    });
    let started = Instant::now();
    while is_told.try_recv().is_err() {
        assert!(started.elapsed() < LONG, "the log does not tell of dropped lines");
        node.client().inventory().unwrap();
    }
}

#[test]
fn audit_log_has_the_ends_of_leases_when_the_node_stops() {
    let mut node = Node::start("--audit audit");
    let lease = node.allocate().id;
    node.signal(Signal::TERM);
    assert!(node.child.wait().unwrap().success());
    let audit = std::fs::read_to_string(node.folder.path().join("audit")).unwrap();
    let lines: Vec<serde_json::Value> =
        audit.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let events: Vec<_> =
        lines.iter().map(|line| (&line["event"], line["lease"].as_u64())).collect();
    assert_eq!(events, [(&"granted".into(), Some(lease)), (&"ended".into(), Some(lease))]);
    assert_eq!(lines[1]["reason"], "the node stops");
}

#[test]
fn node_whose_audit_log_is_full_grants_no_lease() {
    let mut node = Node::start("--audit /dev/full");
    let started = Instant::now();
    let refused = loop {
        match node.client().allocate(&LeaseBuilder::new(&node.address)) {
            Ok(_) => assert!(started.elapsed() < LONG, "leases are granted without an audit log"),
            Err(error) => break error.to_string(),
        }
    };
    assert!(refused.contains("audit log") && refused.contains("No space left"), "{refused}");
    node.signal(Signal::TERM);
    assert!(node.child.wait().unwrap().success());
    let log = node.log();
    assert!(log.contains("the last lines of its audit log are lost"), "{log}");
}

#[test]
fn sandboxed_worker_serves_leases_and_the_log_states_the_missing_parts() {
    let node = Node::start("--spares 0");
    let lease = LeaseBuilder::new(&node.address).acquire_blocking().unwrap();
    let copied = h2d([1u8, 2, 3]).then(to_host).on(&lease).sync().unwrap();
    assert_eq!(copied, [1, 2, 3]);
    let log = node.log();
    let sandbox: Vec<_> = log.lines().filter(|line| line.contains("sandbox of workers")).collect();
    let [sandbox] = &sandbox[..] else { panic!("the log states the sandbox once: {log}") };
    assert!(sandbox.contains("is in force") || sandbox.contains("is incomplete: "), "{log}");
}

#[test]
fn node_without_a_sandbox_warns() {
    let node = Node::start("--sandbox off");
    node.allocate();
    assert!(node.log().contains("WARN") && node.log().contains("workers have no sandbox"));
}
