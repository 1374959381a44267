//! `Autotuner`: finds the fastest of several ways to do the same work.

use std::{
    fmt::Debug,
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::Duration,
};

use cuda_core::{Error, Result, Stream, internals::sync::HelperThread};
use parking_lot::Mutex;

use super::tuning_file::{Choices, TuningFile};
use crate::{op::IntoDeviceOp, ops::DeviceOp, policy::SingleStream};

/// Finds the fastest candidate for a piece of work, by the time that the device takes, and remembers it.
///
/// A candidate is any value that selects a way to do the work: a block size, a tile, the name of a kernel. Each
/// candidate runs once to warm up, and then [`rounds`](Self::rounds) times. The rounds of all candidates alternate, so
/// a change of the device's clock affects all of them. The candidate with the smallest median time is the best one.
/// Candidates that fail are left out.
///
/// ```standalone_crate
/// use cuda_async::{Device, LaunchConfig, kernel::Autotuner, launch, open_blocking, prelude::*};
/// # const PTX: &str = include_str!("../../../kernels/basic.ptx");
/// # let device = open_blocking("cpu")?;
/// let (stream, n) = (device.new_stream()?, 1000u32);
/// let scale = device.load_ptx_blocking(PTX)?.function("scale")?;
/// let tuner = Autotuner::new();
/// let best = tuner.best("scale 1000", &stream, &[64, 128, 256], |block| {
///     let (scale, config) = (scale.clone(), LaunchConfig::new(n.div_ceil(block), block));
///     // SAFETY: `scale(x, factor, n)` changes n elements.
///     zeros::<f32>(1000).then(move |x| unsafe { launch(&scale, config, (x, 2.0f32, n)) })
/// });
/// # let best = futures::executor::block_on(best);
/// let block = best?; // `best.await?` in async code
/// assert!([64, 128, 256].contains(&block));
/// # Ok::<(), cuda_async::Error>(())
/// ```
///
/// The tuner remembers the choice for the key and the name of the device, in memory and, with
/// [`remember_in`](Self::remember_in), in a file. Put everything that the best candidate depends on into the key: the
/// kernel, its version, and the sizes. The tuner keeps at most 4,096 choices, and evicts the oldest ones first.
///
/// Clones share the remembered choices.
#[derive(Clone)]
pub struct Autotuner {
    rounds: u32,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    memory: Mutex<Choices>,
    file: Option<TuningFile>,
}

/// The thread that reads and writes files, so that no executor thread does.
fn helper() -> &'static HelperThread {
    static HELPER: OnceLock<HelperThread> = OnceLock::new();
    HELPER.get_or_init(|| HelperThread::new("cuda-autotuner"))
}

impl Default for Autotuner {
    fn default() -> Self {
        Self::new()
    }
}

impl Autotuner {
    /// The default number of measured rounds.
    pub const DEFAULT_ROUNDS: u32 = 5;

    /// Creates a tuner that remembers its choices in memory.
    pub fn new() -> Self {
        Self { rounds: Self::DEFAULT_ROUNDS, shared: Arc::default() }
    }

    /// Sets the number of measured rounds of each candidate, at least 1.
    pub fn rounds(mut self, rounds: u32) -> Self {
        self.rounds = rounds.max(1);
        self
    }

    /// Also remembers the choices in a file, which later processes read. Each choice is one line of the file.
    ///
    /// The file is replaced as a whole, so a reader never sees a part of it. If two processes write at the same time,
    /// choices of one of them may be lost and are then found again. If the file cannot be read or is damaged, the tuner
    /// logs a warning with `tracing`, ignores the contents, and replaces the file. It also logs a warning if it cannot
    /// write the file.
    ///
    /// The returned tuner starts without the choices made so far. Earlier clones keep them.
    pub fn remember_in(self, path: impl Into<PathBuf>) -> Self {
        let file = Some(TuningFile::new(path.into()));
        Self { shared: Arc::new(Shared { memory: Mutex::default(), file }), ..self }
    }

    /// Returns the best candidate for the work named `key` on the device of `stream`: the remembered one, or else the
    /// fastest. `build` makes the operation of a candidate, several times. Nothing runs before the future is polled.
    ///
    /// Two calls at the same time may both measure. Other work on the device makes the measured times longer, so call
    /// this method before such work.
    ///
    /// # Errors
    /// - [`Error::Arguments`] if there is no candidate.
    /// - The last error, if all candidates fail.
    pub async fn best<C, O>(
        &self,
        key: &str,
        stream: &Stream,
        candidates: &[C],
        build: impl Fn(C) -> O,
    ) -> Result<C>
    where
        C: Clone + Debug,
        O: IntoDeviceOp,
    {
        let texts: Vec<String> =
            candidates.iter().map(|candidate| format!("{candidate:?}")).collect();
        let place = (key.to_owned(), stream.device().info().name.clone());
        if let Some(text) = self.remembered(&place).await
            && let Some(at) = texts.iter().position(|other| *other == text)
        {
            return Ok(candidates[at].clone());
        }
        let times = self.measure(stream, candidates, build).await?;
        let Some(at) = fastest(&times) else { return Err(no_candidate(key)) };
        self.remember(place, texts[at].clone()).await;
        Ok(candidates[at].clone())
    }

    /// Measures the candidates. Those that fail have no times.
    ///
    /// # Errors
    /// The last error, if all candidates fail.
    async fn measure<C: Clone, O: IntoDeviceOp>(
        &self,
        stream: &Stream,
        candidates: &[C],
        build: impl Fn(C) -> O,
    ) -> Result<Vec<Option<Vec<Duration>>>> {
        let policy = SingleStream::from(stream.clone());
        let mut times: Vec<_> = candidates.iter().map(|_| Some(Vec::new())).collect();
        let mut failed = None;
        // The first round warms up: it loads code, fills caches and allocates memory.
        for round in 0..=self.rounds {
            for (candidate, times) in candidates.iter().zip(&mut times) {
                let Some(measured) = times else { continue };
                match build(candidate.clone()).into_op().timed().schedule(&policy).await {
                    Ok(_) if round == 0 => {}
                    Ok((_, time)) => measured.push(time),
                    Err(error) => {
                        failed = Some(error);
                        *times = None;
                    }
                }
            }
        }
        match failed {
            Some(error) if times.iter().all(Option::is_none) => Err(error),
            _ => Ok(times),
        }
    }

    async fn remembered(&self, place: &(String, String)) -> Option<String> {
        let in_memory = self.shared.memory.lock().get(place);
        if in_memory.is_some() || self.shared.file.is_none() {
            return in_memory;
        }
        self.on_helper(|shared| shared.file.as_ref().map(TuningFile::read)).await.and_then(|read| {
            let mut memory = self.shared.memory.lock();
            memory.add_missing(&read);
            memory.get(place)
        })
    }

    async fn remember(&self, place: (String, String), choice: String) {
        self.shared.memory.lock().set(place.clone(), choice.clone());
        if self.shared.file.is_some() {
            self.on_helper(move |shared| shared.file.as_ref().map(|file| file.add(place, choice)))
                .await;
        }
    }

    /// Runs a task on the helper thread. `None` if the thread cannot start, or if there is no result.
    async fn on_helper<T: Send + 'static>(
        &self,
        task: impl FnOnce(&Shared) -> Option<T> + Send + 'static,
    ) -> Option<T> {
        let shared = self.shared.clone();
        let mut result = match helper().start(move || task(&shared)) {
            Ok(result) => result,
            Err(error) => {
                tracing::warn!(%error, "the autotuner cannot start the thread that uses its file");
                return None;
            }
        };
        std::future::poll_fn(|task| result.poll(task)).await.flatten()
    }
}

/// Returns the index of the candidate with the smallest median time. `None` if no candidate has times.
fn fastest(times: &[Option<Vec<Duration>>]) -> Option<usize> {
    let median = |times: &Vec<Duration>| {
        let mut sorted = times.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied()
    };
    let medians =
        times.iter().enumerate().filter_map(|(at, times)| Some((median(times.as_ref()?)?, at)));
    medians.min().map(|(_, at)| at)
}

#[cold]
fn no_candidate(key: &str) -> Error {
    let detail = "there is no candidate to choose from; pass at least one".into();
    Error::Arguments { kernel: format!("autotuner: {key}"), detail }
}

impl Debug for Autotuner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Autotuner").field("rounds", &self.rounds).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smallest_median_is_the_best() {
        let times = |all: &[u64]| Some(all.iter().copied().map(Duration::from_nanos).collect());
        assert_eq!(fastest(&[]), None);
        assert_eq!(fastest(&[None, None]), None);
        assert_eq!(fastest(&[times(&[9, 9, 9]), None, times(&[8, 8, 80])]), Some(2));
        // One slow round, and one fast round, do not matter.
        assert_eq!(fastest(&[times(&[5, 90, 5]), times(&[1, 6, 6])]), Some(0));
        // Of equal ones the first.
        assert_eq!(fastest(&[times(&[5]), times(&[5])]), Some(0));
    }
}
