//! Runs the program in a temporary folder.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::OnceLock,
};

use tempfile::TempDir;

use crate::npy::{self, Number};

/// A temporary folder in which the program runs.
pub(crate) struct Folder {
    directory: TempDir,
    device: &'static str,
}

impl Folder {
    /// Creates an empty folder for runs on `device`.
    pub(crate) fn on(device: &'static str) -> Self {
        Self { directory: TempDir::new().unwrap(), device }
    }

    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn save<T: Number>(&self, name: &str, values: &[T]) {
        npy::save(&self.path(name), values);
    }

    pub(crate) fn load<T: Number>(&self, name: &str, shape: &str) -> Vec<T> {
        npy::load(&self.path(name), shape)
    }

    /// Returns every file with its contents.
    pub(crate) fn contents(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let entries = fs::read_dir(self.directory.path()).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
        let mut contents: Vec<_> =
            paths.map(|path| (path.clone(), fs::read(path).unwrap())).collect();
        contents.sort();
        contents
    }

    /// Runs the program with the words of `line` on the folder's device. `K/` stands for the folder of kernels.
    pub(crate) fn run(&self, line: &str) -> Run {
        let words = line.replace("K/", &kernels());
        self.run_with(words.split(' ').filter(|word| !word.is_empty()))
    }

    pub(crate) fn run_with<I: IntoIterator<Item: AsRef<OsStr>>>(&self, args: I) -> Run {
        let mut command = self.command();
        command.args(args).args(["--device", self.device]);
        Run::new(command.output().unwrap())
    }

    /// A command for the program in this folder, without arguments.
    pub(crate) fn command(&self) -> Command {
        let mut command = program();
        command.current_dir(self.directory.path());
        command
    }
}

/// The result of a run.
pub(crate) struct Run {
    status: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Run {
    pub(crate) fn new(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let (stdout, stderr) = (text(output.stdout), text(output.stderr));
        Self { status: output.status.code(), stdout, stderr }
    }

    /// Checks that the run succeeded with nothing on stderr. Returns stdout.
    #[track_caller]
    pub(crate) fn done(self) -> String {
        assert_eq!((self.status, self.stderr.as_str()), (Some(0), ""));
        self.stdout
    }

    /// Checks the exit status of a failed run. Returns the lines on stderr, and stdout.
    #[track_caller]
    pub(crate) fn refused(self, status: i32) -> (Vec<String>, String) {
        assert_eq!(self.status, Some(status), "{}", self.stderr);
        assert!(self.stderr.starts_with("cuda-run: "), "{}", self.stderr);
        (self.stderr.lines().map(str::to_owned).collect(), self.stdout)
    }

    /// Checks that the run failed with this status and one line that contains `words`.
    #[track_caller]
    pub(crate) fn failed(self, status: i32, words: &str) {
        let line = self.stderr;
        assert_eq!(self.status, Some(status), "{line}");
        assert!(line.starts_with("cuda-run: ") && line.ends_with('\n'), "{line:?}");
        assert_eq!(line.lines().count(), 1, "{line:?}");
        assert!(line.contains(words), "{line:?} lacks {words:?}");
        assert_eq!(self.stdout, "");
    }
}

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_cuda-run"))
}

/// The path of the repository's kernels.
pub(crate) fn kernels() -> String {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../kernels/").to_owned()
}

/// Whether there is a GPU. Prints a note if there is none.
pub(crate) fn has_gpu() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let file = format!("{}vecadd.ptx", kernels());
        let output = program().args([&file, "--list", "--device", "cuda"]).output().unwrap();
        // Status 4 means that there is no device. Any other failure counts as a GPU, so that the tests report it.
        let found = output.status.code() != Some(4);
        if !found {
            println!("not run on a GPU here: {}", String::from_utf8_lossy(&output.stderr));
        }
        found
    })
}

/// Returns the address of leases from a node in this process, which serves a CPU device until the process ends.
#[cfg(feature = "lease")]
pub(crate) fn lease() -> &'static str {
    static ADDRESS: OnceLock<String> = OnceLock::new();
    ADDRESS.get_or_init(|| {
        use cuda_node::supervisor::{DeviceOptions, Node, NodeOptions};
        let device = DeviceOptions::in_process(cuda_cpu::CpuProvider::default());
        let node = Node::start(NodeOptions::loopback(vec![device])).unwrap();
        let address = format!("lease://{}?min_vram=256MiB&wait=60", node.address());
        std::mem::forget(node);
        address
    })
}

/// Makes `fn name(device: &'static str)` a test on the CPU device, on a leased one, and on a GPU if there is one.
#[macro_export]
macro_rules! on_every_device {
    ($($name:ident)*) => {
        mod cpu {
            $(#[test] fn $name() {
                super::$name("cpu");
            })*
        }
        #[cfg(feature = "lease")]
        mod lease {
            $(#[test] fn $name() {
                super::$name($crate::support::lease());
            })*
        }
        mod cuda {
            $(#[test] fn $name() {
                if $crate::support::has_gpu() {
                    super::$name("cuda");
                }
            })*
        }
    };
}

/// Returns `count` pseudo-random numbers between -1 and 1, determined by `seed`.
pub(crate) fn noise(count: usize, seed: u32) -> Vec<f32> {
    words(count, seed).into_iter().map(|word| word as i32 as f32 / (1u32 << 31) as f32).collect()
}

/// Returns `count` pseudo-random words, determined by `seed`.
pub(crate) fn words(count: usize, seed: u32) -> Vec<u32> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state
    };
    (0..count).map(|_| next()).collect()
}
