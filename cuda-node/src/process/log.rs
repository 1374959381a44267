//! The log on stderr, written by a thread.

use std::{
    io::{IsTerminal, Write, stderr},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::{EnvFilter, fmt::MakeWriter};

/// The lines that may wait to be written.
const WAITING: usize = 4096;

/// The shortest time between two lines about dropped lines.
const INTERVAL: Duration = Duration::from_secs(1);

/// Writes the log of this process to stderr, and panics into the log. If stderr is a pipe that no process reads, the
/// process goes on: the lines that do not fit are dropped, and a later line tells how many. `RUST_LOG` selects the
/// lines, by default those of level `info` and above.
///
/// Keep the returned guard until the process ends: when it is dropped, the last lines are written, within two seconds.
/// Only the first call of a process has an effect on the log.
pub fn log_to_stderr() -> WorkerGuard {
    let (lines, guard) = NonBlockingBuilder::default()
        .buffered_lines_limit(WAITING)
        .lossy(true)
        .thread_name("lease-log")
        .finish(stderr());
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into());
    _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(stderr().is_terminal())
        .with_writer(Log::new(lines))
        .try_init();
    // The default hook writes to stderr itself, and would block.
    std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
    guard
}

/// Gives the writer of each line.
struct Log {
    lines: NonBlocking,
    dropped: ErrorCounter,
    told: Mutex<Told>,
}

/// The dropped lines that the log has reported.
struct Told {
    dropped: usize,
    at: Option<Instant>,
}

impl Log {
    fn new(lines: NonBlocking) -> Self {
        let dropped = lines.error_counter();
        Self { lines, dropped, told: Mutex::new(Told { dropped: 0, at: None }) }
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = NonBlocking;

    fn make_writer(&'a self) -> NonBlocking {
        let dropped = self.dropped.dropped_lines();
        let mut told = self.told.lock();
        if dropped != told.dropped && told.at.is_none_or(|at| at.elapsed() >= INTERVAL) {
            *told = Told { dropped, at: Some(Instant::now()) };
            // A lossy writer has no errors.
            _ = writeln!(
                self.lines.clone(),
                "WARN {dropped} lines of this log were dropped so far: stderr was not read"
            );
        }
        drop(told);
        self.lines.clone()
    }
}
