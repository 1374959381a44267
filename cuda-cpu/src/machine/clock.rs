//! The clock behind `%clock` and `%globaltimer`.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The clock of one worker.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Clock {
    /// Real time, from the start of the launch.
    Real(Instant),
    /// The number of instructions executed since the start of the launch.
    Counted(u64),
}

impl Clock {
    /// Creates a real clock for a launch that starts now.
    pub(crate) fn started_now() -> Self {
        Self::Real(Instant::now())
    }

    /// Counts an instruction, if the clock counts instructions.
    #[inline]
    pub(crate) fn tick(&mut self) {
        if let Self::Counted(instructions) = self {
            *instructions += 1;
        }
    }

    /// Returns the value of `%clock64`.
    pub(crate) fn now(&self) -> u64 {
        match self {
            Self::Real(started) => started.elapsed().as_nanos() as u64,
            Self::Counted(instructions) => *instructions,
        }
    }

    /// Returns the value of `%globaltimer`.
    pub(crate) fn global(&self) -> u64 {
        match self {
            Self::Real(_) => {
                SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64)
            }
            Self::Counted(instructions) => *instructions,
        }
    }
}
