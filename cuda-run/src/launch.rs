//! The launches themselves, and how long they take.

use std::time::{Duration, Instant};

use cuda_async::{Error, Function, LaunchConfig, Stream};
use cuda_core::Arguments;

/// Launches `times` times and waits for each; gives how long each took.
pub(crate) fn repeat(
    function: &Function,
    stream: &Stream,
    config: LaunchConfig,
    arguments: &Arguments<'_>,
    times: u64,
) -> Result<Vec<Duration>, Error> {
    let timed = |_| {
        let start = Instant::now();
        once(function, stream, config, arguments)?;
        Ok(start.elapsed())
    };
    (0..times).map(timed).collect()
}

/// The middle one, or between the two in the middle.
pub(crate) fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    let upper = times.get(times.len() / 2).copied().unwrap_or_default();
    let lower = times.get(times.len().saturating_sub(1) / 2).copied().unwrap_or_default();
    (lower + upper) / 2
}

/// Launches and waits. Safe to call here because of what this program is: see the comment inside.
#[allow(unsafe_code)]
fn once(
    function: &Function,
    stream: &Stream,
    config: LaunchConfig,
    arguments: &Arguments<'_>,
) -> Result<(), Error> {
    // SAFETY: every buffer is given as written, is used on this one stream only, and is read back only
    // after the stream was waited for. That the kernel stays inside them nobody can promise for a kernel
    // that a user names; the CPU device checks each access, and on a GPU a stray one meets a fault or
    // another of these buffers, since this process, which exists for this one launch, has nothing else there.
    unsafe { function.launch(stream, config, arguments) }?;
    stream.synchronize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        let micros = |times: &[u64]| times.iter().copied().map(Duration::from_micros).collect();
        assert_eq!(median(micros(&[9, 1, 5])), Duration::from_micros(5));
        assert_eq!(median(micros(&[4, 100, 1, 2])), Duration::from_micros(3));
        assert_eq!(median(micros(&[7])), Duration::from_micros(7));
        assert_eq!(median(Vec::new()), Duration::ZERO);
    }
}
