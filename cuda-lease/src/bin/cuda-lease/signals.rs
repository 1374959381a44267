//! The signals that end a program: Ctrl-C and the like. From the creation of [`Signals`] on, they do not end it at once.

use std::{future::poll_fn, io, task::Poll};

use command_line::Failure;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals, with their names.
const NAMES: [(SignalKind, &str); 3] = [
    (SignalKind::interrupt(), "SIGINT"),
    (SignalKind::terminate(), "SIGTERM"),
    (SignalKind::hangup(), "SIGHUP"),
];

/// Waits for signals.
pub(crate) struct Signals(Vec<(Signal, Interruption)>);

/// The signal that interrupted the program.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Interruption {
    number: u8,
    name: &'static str,
}

impl Signals {
    /// Handles the signals that the parent of the program does not let it ignore, as `nohup` does. Call it inside of a
    /// runtime.
    pub(crate) fn new() -> Result<Self, Failure> {
        let ignored = ignored();
        let mut signals = Vec::new();
        for (kind, name) in NAMES {
            let number = kind.as_raw_value() as u8;
            if ignored & (1 << (number - 1)) == 0 {
                let failed = |error: io::Error| {
                    Failure::failed(error).at(format_args!("failed to handle {name}"))
                };
                signals.push((signal(kind).map_err(failed)?, Interruption { number, name }));
            }
        }
        Ok(Self(signals))
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) -> Interruption {
        poll_fn(|task| {
            let is_ready = |(signal, _): &mut (Signal, _)| signal.poll_recv(task).is_ready();
            let found = self.0.iter_mut().position(is_ready);
            found.map_or(Poll::Pending, |at| Poll::Ready(self.0[at].1))
        })
        .await
    }
}

impl Interruption {
    /// The failure of a program that it ended, with the consequences in words.
    pub(crate) fn failure(self, consequence: &str) -> Failure {
        let Self { number, name } = self;
        Failure::signal(number, format_args!("was interrupted by {name}{consequence}"))
    }
}

/// The signals that this process ignores, one bit each.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
