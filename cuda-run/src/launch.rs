//! Launches the kernel and measures the time.

use std::time::{Duration, Instant};

use cuda_async::{Error, Function, LaunchConfig, Stream};
use cuda_core::Arguments;

/// Launches `times` times and waits for each. Returns the time of each.
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

/// The median.
pub(crate) fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    let upper = times.get(times.len() / 2).copied().unwrap_or_default();
    let lower = times.get(times.len().saturating_sub(1) / 2).copied().unwrap_or_default();
    (lower + upper) / 2
}

/// Launches and waits. Safe in this program: the comment inside gives the reason.
#[allow(unsafe_code)]
fn once(
    function: &Function,
    stream: &Stream,
    config: LaunchConfig,
    arguments: &Arguments<'_>,
) -> Result<(), Error> {
    // SAFETY: every buffer is given as written, is used on this one stream only, and is read back only
    // after the stream was waited for. The program cannot know that a kernel which a user names stays inside them. The
    // CPU device checks each access. On a GPU a stray access is a fault or hits another of these buffers, since this
    // process exists for this one launch and has nothing else there.
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
