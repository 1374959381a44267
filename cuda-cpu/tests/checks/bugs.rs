//! Runs the kernels of `kernels/bugs` and checks the properties that every fault has.

use cuda_cpu::{Checks, Fault, LaunchError, Schedule};

use crate::args;
use crate::host::Host;

/// A source, its PTX, and the path that the compiler recorded.
pub(crate) struct Source {
    pub(crate) path: &'static str,
    pub(crate) cuda: &'static str,
    pub(crate) ptx: &'static str,
}

/// `kernels/bugs/NAME.cu`.
#[macro_export]
macro_rules! source {
    ($name:literal) => {
        $crate::bugs::Source {
            path: concat!("kernels/bugs/", $name, ".cu"),
            cuda: include_str!(concat!("../../../kernels/bugs/", $name, ".cu")),
            ptx: include_str!(concat!("../../../kernels/bugs/", $name, ".ptx")),
        }
    };
}

/// Number of words in `x`. Each word holds its index.
pub(crate) const WORDS: u32 = 64;

/// A faulty kernel and the expected fault.
pub(crate) struct Bug {
    pub(crate) kernel: &'static str,
    pub(crate) threads: u32,
    pub(crate) n: u32,
    pub(crate) thread: u32,
    /// Texts that the CUDA line and the PTX line contain.
    pub(crate) line: &'static str,
    pub(crate) ptx: &'static str,
}

impl Source {
    pub(crate) fn host(&self) -> Host {
        let mut host = Host::new(self.ptx);
        host.checks = Checks::all();
        host.limits.instructions = Some(100_000);
        host
    }

    /// Runs the kernel and its corrected version. Checks everything but the kind of the fault. Returns the fault and
    /// `x`.
    #[track_caller]
    pub(crate) fn find(&self, bug: &Bug) -> (Fault, u64) {
        let host = self.host();
        let x: Vec<u32> = (0..WORDS).collect();
        let x = host.upload(&x);
        let mended = format!("{}_mended", bug.kernel);
        for schedule in [Schedule::Parallel, Schedule::Fixed, Schedule::Shuffled { seed: 1 }] {
            let twin = Host { schedule, ..self.host() };
            let x = twin.upload(&(0..WORDS).collect::<Vec<_>>());
            twin.run(&mended, 1, bug.threads, args![x, bug.n]);
        }
        let error = host.launch(bug.kernel, 1, bug.threads, args![x, bug.n]).unwrap_err();
        let LaunchError::Fault(fault) = error else { panic!("{error}") };
        assert_eq!(fault.kernel, bug.kernel);
        assert_eq!(fault.block, [0; 3], "{fault}");
        assert_eq!(fault.thread, [bug.thread, 0, 0], "{fault}");
        self.is_at(bug, &fault);
        (*fault, x)
    }

    #[track_caller]
    fn is_at(&self, bug: &Bug, fault: &Fault) {
        let line = |text: &'static str, line: u32| text.lines().nth(line as usize - 1).unwrap();
        assert!(line(self.ptx, fault.line).contains(bug.ptx), "{fault}");
        let source = fault.source.as_ref().unwrap_or_else(|| panic!("no CUDA line: {fault}"));
        assert_eq!(source.file, self.path);
        assert!(line(self.cuda, source.line).contains(bug.line), "{fault}");
        assert!(fault.to_string().contains(&source.to_string()), "{fault}");
    }
}

pub(crate) fn bug(
    kernel: &'static str,
    (threads, n): (u32, u32),
    thread: u32,
    line: &'static str,
    ptx: &'static str,
) -> Bug {
    Bug { kernel, threads, n, thread, line, ptx }
}
