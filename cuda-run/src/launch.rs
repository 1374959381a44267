//! Launches the kernel and measures launch times.

use std::time::{Duration, Instant};

use cuda_async::{Error, Function, LaunchConfig, Stream};
use cuda_core::Arguments;

/// Launches the kernel `times` times and waits for each launch. Returns the time of each launch.
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

/// Returns the median of the times, or zero if there are none.
pub(crate) fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    let upper = times.get(times.len() / 2).copied().unwrap_or_default();
    let lower = times.get(times.len().saturating_sub(1) / 2).copied().unwrap_or_default();
    (lower + upper) / 2
}

/// Launches the kernel once and waits for it.
#[allow(unsafe_code)]
fn once(
    function: &Function,
    stream: &Stream,
    config: LaunchConfig,
    arguments: &Arguments<'_>,
) -> Result<(), Error> {
    // SAFETY: every buffer is declared as written, is used on this stream only, and is read back after the stream was
    // waited for. The program cannot check that the user's kernel stays inside the buffers. The CPU device checks each
    // access. On a GPU, an access outside a buffer faults or changes another of these buffers: the process runs only
    // this kernel and has no other data on the device.
    unsafe { function.launch(stream, config, arguments) }?;
    stream.synchronize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_odd_even_and_no_times() {
        let micros = |times: &[u64]| times.iter().copied().map(Duration::from_micros).collect();
        assert_eq!(median(micros(&[9, 1, 5])), Duration::from_micros(5));
        assert_eq!(median(micros(&[4, 100, 1, 2])), Duration::from_micros(3));
        assert_eq!(median(micros(&[7])), Duration::from_micros(7));
        assert_eq!(median(Vec::new()), Duration::ZERO);
    }
}
