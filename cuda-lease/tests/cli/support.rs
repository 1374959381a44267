//! Nodes, and runs of the program.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::{Duration, Instant},
};

use cuda_cpu::CpuProvider;
use cuda_node::supervisor::{DeviceOptions, Node, NodeOptions};
use tempfile::TempDir;

/// The longest wait for a state. A test that waits longer has found a bug.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A node with one CPU device, and a folder in which the program runs.
pub(crate) struct Place {
    node: Node,
    pub(crate) folder: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self::with(|_, _| {})
    }

    /// A node with other settings. Its files can be in the folder.
    pub(crate) fn with(change: impl FnOnce(&mut NodeOptions, &Path)) -> Self {
        let folder = TempDir::new().unwrap();
        let device = DeviceOptions::in_process(CpuProvider::default()).max_leases(2);
        let mut options = NodeOptions::loopback(vec![device]);
        change(&mut options, folder.path());
        Self { node: Node::start(options).unwrap(), folder }
    }

    pub(crate) fn address(&self) -> String {
        self.node.address().to_string()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn save(&self, name: &str, contents: impl AsRef<[u8]>) {
        fs::write(self.path(name), contents).unwrap();
    }

    pub(crate) fn load(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    /// Runs the program with the words of `line` and this node. `K/` stands for the folder of kernels.
    pub(crate) fn run(&self, line: &str) -> Run {
        self.run_without_node(&format!("{line} --node {}", self.address()))
    }

    pub(crate) fn run_without_node(&self, line: &str) -> Run {
        Run::new(self.command(line).output().unwrap())
    }

    /// The command with the words of `line`.
    pub(crate) fn command(&self, line: &str) -> Command {
        let kernels = concat!(env!("CARGO_MANIFEST_DIR"), "/../kernels/");
        let line = line.replace("K/", kernels);
        let mut command = Command::new(env!("CARGO_BIN_EXE_cuda-lease"));
        command.args(line.split_whitespace()).current_dir(self.folder.path());
        command
    }

    /// Waits until the node has no lease.
    pub(crate) fn has_no_lease(&self) {
        wait_until("the node has no lease", || {
            self.run("inventory --json").done_with_json()[0]["leases"] == 0
        });
    }

    /// Runs `iota` with four numbers in a region of their size, and these options too.
    pub(crate) fn iota(&self, options: &str) -> Run {
        self.run(&format!("submit --ptx K/iota.ptx --kernel iota --block 32 --arg u32=4 --region-bytes 16 {options}"))
    }
}

/// The result of a run.
pub(crate) struct Run {
    status: Option<i32>,
    stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Run {
    pub(crate) fn new(output: Output) -> Self {
        let stderr = String::from_utf8(output.stderr).unwrap();
        Self { status: output.status.code(), stdout: output.stdout, stderr }
    }

    /// Checks that the run succeeded with nothing on stderr. Returns stdout.
    #[track_caller]
    pub(crate) fn done(self) -> String {
        String::from_utf8(self.done_with_bytes()).unwrap()
    }

    #[track_caller]
    pub(crate) fn done_with_bytes(self) -> Vec<u8> {
        assert_eq!((self.status, self.stderr.as_str()), (Some(0), ""));
        self.stdout
    }

    #[track_caller]
    pub(crate) fn done_with_json(self) -> serde_json::Value {
        serde_json::from_str(&self.done()).unwrap()
    }

    /// Checks that the run failed with this status, nothing on stdout and a message with these words.
    #[track_caller]
    pub(crate) fn failed(self, status: i32, words: &str) {
        let Self { stderr, stdout, .. } = &self;
        assert_eq!(self.status, Some(status), "{words}: {stderr}");
        assert!(stderr.contains(words), "{stderr:?} lacks {words:?}");
        assert!(stdout.is_empty(), "{}", String::from_utf8_lossy(stdout));
    }
}

/// Waits until `is_so`.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < LONG, "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
