//! `Autotuner`: finds the fastest of several ways to do the same work, and stores its choices in memory and in a file.
//!
//! The file is text: a header, and a line for each choice with its key, its device and its candidate, separated by
//! tabs. Its newest choices are at the end.

use std::{
    collections::VecDeque,
    fmt::Debug,
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use cuda_core::{Error, Result, Stream, internals::sync::HelperThread};
use parking_lot::Mutex;

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

impl Debug for Autotuner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Autotuner").field("rounds", &self.rounds).finish_non_exhaustive()
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

/// The maximum number of choices.
const MAX_CHOICES: usize = 4096;

/// The maximum number of bytes of a key, a device or a candidate in a file. Longer ones are only in memory.
const MAX_TEXT: usize = 1 << 10;

/// The maximum number of bytes of a file: 16 MiB.
const MAX_FILE: u64 = 16 << 20;

/// The first line.
const HEADER: &str = "cuda-async autotuner 1";

/// A key, and the name of a device.
type Place = (String, String);

/// The candidates that were chosen. The newest ones are at the end.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Choices(VecDeque<(Place, String)>);

impl Choices {
    pub(super) fn get(&self, place: &Place) -> Option<String> {
        self.0.iter().find(|(known, _)| known == place).map(|(_, choice)| choice.clone())
    }

    /// Sets a choice, and forgets the oldest one if there are too many.
    pub(super) fn set(&mut self, place: Place, choice: String) {
        self.0.retain(|(known, _)| *known != place);
        if self.0.len() >= MAX_CHOICES {
            self.0.pop_front();
        }
        self.0.push_back((place, choice));
    }

    /// Adds each choice of `others` whose place has no choice here.
    pub(super) fn add_missing(&mut self, others: &Self) {
        for (place, choice) in &others.0 {
            if self.get(place).is_none() {
                self.set(place.clone(), choice.clone());
            }
        }
    }

    fn to_text(&self) -> String {
        let mut text = format!("{HEADER}\n");
        for ((key, device), choice) in &self.0 {
            let fields = [key, device, choice];
            if fields.iter().all(|field| field.len() <= MAX_TEXT) {
                text += &fields.map(|field| escaped(field)).join("\t");
                text.push('\n');
            }
        }
        text
    }

    /// Returns `None` if a line is damaged.
    fn from_text(text: &str) -> Option<Self> {
        let mut lines = text.strip_suffix('\n')?.split('\n');
        lines.next().filter(|line| *line == HEADER)?;
        let mut choices = Self::default();
        for line in lines {
            let fields: Vec<String> = line.split('\t').map(unescaped).collect::<Option<_>>()?;
            let [key, device, choice] = <[String; 3]>::try_from(fields).ok()?;
            if choices.0.len() >= MAX_CHOICES {
                return None;
            }
            choices.0.push_back(((key, device), choice));
        }
        Some(choices)
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\t', "\\t").replace('\n', "\\n")
}

/// Returns `None` for an escape that does not exist.
fn unescaped(text: &str) -> Option<String> {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text.chars());
    while let Some(next) = rest.next() {
        out.push(match next {
            '\\' => match rest.next()? {
                '\\' => '\\',
                't' => '\t',
                'n' => '\n',
                _ => return None,
            },
            other => other,
        });
    }
    Some(out)
}

/// A file of choices. Its methods block.
#[derive(Debug)]
pub(super) struct TuningFile(PathBuf);

impl TuningFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// Reads the choices. There are none if the file is missing, damaged or not readable. The last two are logged as
    /// warnings.
    pub(super) fn read(&self) -> Choices {
        let path = self.0.display();
        match read_bounded(&self.0) {
            Ok(text) => Choices::from_text(&text).unwrap_or_else(|| {
                tracing::warn!(%path, "the autotuner's file is damaged: it is ignored and written anew");
                Choices::default()
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Choices::default(),
            Err(error) => {
                tracing::warn!(%path, %error, "the autotuner's file cannot be read: it is ignored");
                Choices::default()
            }
        }
    }

    /// Adds a choice to those in the file. A failure is logged as a warning.
    pub(super) fn add(&self, place: Place, choice: String) {
        let mut choices = self.read();
        choices.set(place, choice);
        if let Err(error) = replace(&self.0, &choices.to_text()) {
            tracing::warn!(path = %self.0.display(), %error, "the autotuner's file cannot be written");
        }
    }
}

fn read_bounded(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
    // Text that is too long or not UTF-8 is damaged, not unreadable.
    Ok(if bytes.len() as u64 > MAX_FILE {
        String::new()
    } else {
        String::from_utf8(bytes).unwrap_or_default()
    })
}

/// Replaces a file as a whole, by a rename.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}-{number}.new", std::process::id()));
    let new = PathBuf::from(name);
    let replaced = fs::write(&new, text).and_then(|()| fs::rename(&new, path));
    if replaced.is_err() {
        // Report the first error, not one of the removal.
        _ = fs::remove_file(&new);
    }
    replaced
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

#[cfg(test)]
mod tuning_file_tests {
    use super::*;

    fn place(key: &str) -> Place {
        (key.into(), "NVIDIA H200".into())
    }

    #[test]
    fn text_holds_every_character() {
        let mut choices = Choices::default();
        choices.set(place("a\tb\\n\nc"), "(1, \"x\")".into());
        choices.set(place(""), String::new());
        assert_eq!(Choices::from_text(&choices.to_text()), Some(choices));
    }

    #[test]
    fn damaged_text_is_refused() {
        let good = format!("{HEADER}\nkey\tdevice\t64\n");
        assert!(Choices::from_text(&good).is_some());
        for bad in [
            String::new(),
            "something else\n".into(),
            good[..good.len() - 1].into(),
            format!("{HEADER}\nkey\tdevice\n"),
            format!("{HEADER}\nkey\tdevice\t64\tmore\n"),
            format!("{HEADER}\nkey\tdevice\t\\x\n"),
            format!("{HEADER}\n{}", "key\tdevice\t64\n".repeat(MAX_CHOICES + 1)),
        ] {
            assert_eq!(Choices::from_text(&bad), None, "{:.60}", bad);
        }
    }

    #[test]
    fn oldest_choice_is_forgotten_first() {
        let mut choices = Choices::default();
        for number in 0..MAX_CHOICES {
            choices.set(place(&number.to_string()), "1".into());
        }
        choices.set(place("0"), "2".into());
        choices.set(place("more"), "3".into());
        assert_eq!(choices.get(&place("1")), None);
        assert_eq!(choices.get(&place("0")), Some("2".into()));
        assert_eq!(choices.0.len(), MAX_CHOICES);
    }
}
