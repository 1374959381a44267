//! The judgment of `ptxas`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::place::{Case, Place, TAIL};

/// The number of instructions in a module. `ptxas` becomes slow with more.
const MOST: usize = 250;

/// The number of files that were made: the tests run at the same time.
static FILES: AtomicUsize = AtomicUsize::new(0);

/// The reason of an instruction at which `ptxas` crashes or reports an internal error: it does not judge it.
pub(crate) const CRASH: &str = "ptxas crashes";

/// Returns the reason why `ptxas` refuses each case.
pub(crate) fn judge(cases: &[Case]) -> Vec<Result<(), String>> {
    let path = std::env::var_os("PTXAS").expect("set PTXAS to the path of ptxas, see .ci/ptxas");
    let mut chunks = Vec::new();
    let mut places: BTreeMap<&Place, Vec<usize>> = BTreeMap::new();
    for (at, case) in cases.iter().enumerate() {
        places.entry(&case.place).or_default().push(at);
    }
    for (place, mut members) in places {
        // Code behind a jump is unreachable, and `ptxas` does not check all of it.
        members.sort_by_key(|at| ends_flow(&cases[*at].text));
        chunks.extend(members.chunks(MOST).map(|chunk| (place, chunk.to_vec())));
    }
    let refused = Mutex::new(vec![Ok(()); cases.len()]);
    let chunks = Mutex::new(chunks);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let (chunks, refused, path) = (&chunks, &refused, Path::new(&path));
            scope.spawn(move || {
                let number = FILES.fetch_add(1, Ordering::Relaxed);
                let name = format!("ptxas-{}-{number}.ptx", std::process::id());
                let file = std::env::temp_dir().join(name);
                let next = || chunks.lock().unwrap().pop();
                while let Some((place, members)) = next() {
                    let assembler = Assembler { path, file: &file, place, cases };
                    if let Err(output) = assembler.run(&[]) {
                        panic!("ptxas refuses a module without an instruction, {place}: {output}");
                    }
                    assembler.chunk(members, &mut |at, reason| {
                        refused.lock().unwrap()[at] = Err(reason);
                    });
                }
                _ = std::fs::remove_file(file);
            });
        }
    });
    refused.into_inner().unwrap()
}

fn ends_flow(text: &str) -> bool {
    let opcode = text.trim_start_matches(|c: char| c != ' ' && text.starts_with('@')).trim_start();
    ["ret", "exit", "trap", "bra", "brx"].iter().any(|jump| opcode.starts_with(jump))
}

/// Returns whether the messages are those of a failure of `ptxas` itself.
fn is_crash(output: &str) -> bool {
    let has_error = output.contains("error") || output.contains("fatal");
    !has_error || output.contains("Internal compiler error")
}

struct Assembler<'a> {
    path: &'a Path,
    file: &'a PathBuf,
    place: &'a Place,
    cases: &'a [Case],
}

impl Assembler<'_> {
    /// Judges instructions in one module. The errors of one phase of `ptxas` hide those of the next, so the refused
    /// instructions are removed until it accepts the module.
    fn chunk(&self, mut members: Vec<usize>, refuse: &mut impl FnMut(usize, String)) {
        while !members.is_empty() {
            let Err(output) = self.run(&members) else { return };
            let mut errors = self.errors(&output, members.len());
            if errors.is_empty() {
                match members.as_slice() {
                    [single] if is_crash(&output) => return refuse(*single, CRASH.into()),
                    [single] => return refuse(*single, output),
                    // The output names no instruction.
                    _ => {
                        let other = members.split_off(members.len() / 2);
                        self.chunk(other, refuse);
                        continue;
                    }
                }
            }
            let mut index = 0;
            members.retain(|at| {
                let reason = errors.remove(&index);
                index += 1;
                let accepted = reason.is_none();
                reason.into_iter().for_each(|reason| refuse(*at, reason));
                accepted
            });
        }
    }

    /// Runs `ptxas`. Returns its messages if it refuses the module.
    fn run(&self, members: &[usize]) -> Result<(), String> {
        let mut text = self.place.head();
        members.iter().for_each(|at| text.extend([&self.cases[*at].text, "\n"]));
        std::fs::write(self.file, text + TAIL).unwrap();
        // It assembles modules of older targets, but for no older ones.
        let target = match self.place.architecture() {
            75.. => &self.place.target,
            _ => "sm_75",
        };
        let mut command = Command::new(self.path);
        command.arg(format!("-arch={target}")).arg(self.file).args(["-o", "/dev/null"]);
        let output = command.output().expect("PTXAS is the path of ptxas, and it runs");
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    /// Returns the first message of each instruction, from lines such as `ptxas f.ptx, line 9; error : text`.
    fn errors(&self, output: &str, count: usize) -> BTreeMap<usize, String> {
        let first = self.place.head().lines().count() + 1;
        let mut errors = BTreeMap::new();
        for message in output.lines() {
            // Some messages are about text that `ptxas` itself makes, `ptxas <builtin>, line 9`.
            let rest =
                message.split_once(".ptx, line ").and_then(|(_, rest)| rest.split_once("; "));
            let Some((line, text)) = rest else { continue };
            let Some((kind, text)) = text.split_once(':') else { continue };
            let at = line.parse().ok().and_then(|line: usize| line.checked_sub(first));
            if let Some(at) = at.filter(|at| *at < count)
                && matches!(kind.trim(), "error" | "fatal")
            {
                errors.entry(at).or_insert_with(|| text.trim().to_owned());
            }
        }
        errors
    }
}
