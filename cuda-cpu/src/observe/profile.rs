//! Instructions by kind.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Maximum number of kernels that a profile counts separately. Further ones are counted together under the name `..`.
const MAX_KERNELS: usize = 4096;

/// Counts of the instructions that kernels execute, by kind. Launches add their counts when they end, also by a fault.
///
/// An instruction counts once each time that a warp, or a fragment of a warp whose lanes are at the same place,
/// executes it, also if its guard is false for all lanes. It also counts once for each lane for which the guard is
/// true.
///
/// [`Profile::kernels`] returns the counts. The `Display` form is a table for each kernel:
///
/// ```text
/// kernel `vecadd`: 1 launch, 352 instructions by warps, 11104 by threads
///        warps       %      threads   active  instruction
///           96   27.3 %        3072  100.0 %  ld.param.u64
/// ```
#[derive(Debug, Default)]
pub struct Profile {
    kernels: Mutex<BTreeMap<String, Kernel>>,
    skipped: AtomicU64,
}

#[derive(Debug, Default)]
struct Kernel {
    launches: u64,
    kinds: BTreeMap<String, (u64, u64)>,
}

/// The counts of a kernel's launches.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelProfile {
    /// The name of the kernel.
    pub kernel: String,
    /// The number of launches that have ended.
    pub launches: u64,
    /// The counts by kind, sorted by the number of warps in descending order.
    pub kinds: Vec<KindCount>,
}

/// The counts of a kind of instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct KindCount {
    /// The opcode with its state space, vector size and types: `ld.global.f32`, `setp.s32`, `cvt.f32.s32`.
    pub kind: String,
    /// Executions by warps.
    pub warps: u64,
    /// Executions by threads: the lanes for which the guard was true.
    pub threads: u64,
}

/// The counts of a worker by kind: executions by warps, and by lanes.
pub(crate) struct Counts(Vec<(u64, u64)>);

impl Counts {
    pub(crate) fn new(kinds: usize) -> Self {
        Self(vec![(0, 0); kinds])
    }

    #[inline]
    pub(crate) fn add(&mut self, kind: u32, lanes: u32) {
        if let Some((warps, threads)) = self.0.get_mut(kind as usize) {
            *warps += 1;
            *threads += u64::from(lanes.count_ones());
        }
    }
}

impl Profile {
    /// Creates an empty profile.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the counts, sorted by kernel name.
    pub fn kernels(&self) -> Vec<KernelProfile> {
        let kernels = self.kernels.lock();
        kernels.iter().map(|(name, kernel)| kernel.profile(name)).collect()
    }

    /// Returns the number of launches and copies that the device has skipped, because no caller waited for them and
    /// nothing could see their results.
    pub fn skipped(&self) -> u64 {
        self.skipped.load(Ordering::Relaxed)
    }

    /// Removes all counts.
    pub fn clear(&self) {
        self.kernels.lock().clear();
        self.skipped.store(0, Ordering::Relaxed);
    }

    /// Counts a submission that is skipped.
    pub(crate) fn count_skipped(&self) {
        self.skipped.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a launch that ends.
    pub(crate) fn count_launch(&self, kernel: &str) {
        self.with(kernel, |kernel| kernel.launches += 1);
    }

    /// Adds the counts of a worker.
    pub(crate) fn add(&self, kernel: &str, names: &[String], counts: &Counts) {
        self.with(kernel, |kernel| {
            for (name, &(warps, threads)) in names.iter().zip(&counts.0).filter(|(_, c)| c.0 > 0) {
                let own = kernel.kinds.entry(name.clone()).or_default();
                own.0 += warps;
                own.1 += threads;
            }
        });
    }

    fn with(&self, kernel: &str, change: impl FnOnce(&mut Kernel)) {
        let mut kernels = self.kernels.lock();
        let known = kernels.contains_key(kernel) || kernels.len() < MAX_KERNELS;
        change(kernels.entry(if known { kernel } else { ".." }.to_owned()).or_default());
    }
}

impl Kernel {
    fn profile(&self, name: &str) -> KernelProfile {
        let count = |(kind, &(warps, threads)): (&String, &(u64, u64))| KindCount {
            kind: kind.clone(),
            warps,
            threads,
        };
        let mut kinds: Vec<_> = self.kinds.iter().map(count).collect();
        kinds.sort_by_key(|kind| std::cmp::Reverse(kind.warps));
        KernelProfile { kernel: name.to_owned(), launches: self.launches, kinds }
    }
}

impl KernelProfile {
    /// Returns the executions of all kinds by warps.
    pub fn warps(&self) -> u64 {
        self.kinds.iter().map(|count| count.warps).sum()
    }

    /// Returns the executions of all kinds by threads.
    pub fn threads(&self) -> u64 {
        self.kinds.iter().map(|count| count.threads).sum()
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

impl fmt::Display for KernelProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kernel, launches, kinds } = self;
        let (warps, threads) = (self.warps(), self.threads());
        let s = if *launches == 1 { "" } else { "es" };
        writeln!(
            f,
            "kernel `{kernel}`: {launches} launch{s}, {warps} instructions by warps, {threads} by threads"
        )?;
        writeln!(f, "       warps       %       threads   active  instruction")?;
        kinds.iter().try_for_each(|KindCount { kind, warps: own, threads }| {
            let (share, active) = (percent(*own, warps), percent(*threads, own * 32));
            writeln!(f, "{own:>12}  {share:>5.1} %  {threads:>12}  {active:>5.1} %  {kind}")
        })
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kernels().iter().try_for_each(|kernel| kernel.fmt(f))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_add_up_and_print_by_frequency() {
        let profile = Profile::new();
        let names = ["bra".to_owned(), "fma.f32".to_owned(), "never".to_owned()];
        for _ in 0..2 {
            let mut counts = Counts::new(3);
            counts.add(0, 1);
            (0..3).for_each(|_| counts.add(1, u32::MAX));
            profile.add("k", &names, &counts);
            profile.count_launch("k");
        }
        let [kernel] = &profile.kernels()[..] else { panic!() };
        assert_eq!((kernel.launches, kernel.warps(), kernel.threads()), (2, 8, 194));
        let text = profile.to_string();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        assert_eq!(lines[0], "kernel `k`: 2 launches, 8 instructions by warps, 194 by threads");
        assert_eq!(lines[2], "           6   75.0 %           192  100.0 %  fma.f32");
        assert_eq!(lines[3], "           2   25.0 %             2    3.1 %  bra");
    }

    #[test]
    fn kernels_are_limited() {
        let profile = Profile::new();
        (0..MAX_KERNELS + 10).for_each(|i| profile.count_launch(&format!("k{i}")));
        let kernels = profile.kernels();
        assert_eq!(kernels.len(), MAX_KERNELS + 1);
        assert_eq!((kernels[0].kernel.as_str(), kernels[0].launches), ("..", 10));
        profile.clear();
        assert!(profile.kernels().is_empty());
    }
}
