//! What `%clock` and `%globaltimer` tell.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// See the module.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Clock {
    /// Nanoseconds since the launch began.
    Real(Instant),
    /// Instructions that were executed since then.
    Counted(u64),
}

impl Clock {
    /// Of a launch that begins.
    pub(crate) fn started_now() -> Self {
        Self::Real(Instant::now())
    }

    /// The next instruction is executed.
    #[inline]
    pub(crate) fn tick(&mut self) {
        if let Self::Counted(instructions) = self {
            *instructions += 1;
        }
    }

    /// `%clock64`.
    pub(crate) fn now(&self) -> u64 {
        match self {
            Self::Real(started) => started.elapsed().as_nanos() as u64,
            Self::Counted(instructions) => *instructions,
        }
    }

    /// `%globaltimer`.
    pub(crate) fn global(&self) -> u64 {
        match self {
            Self::Real(_) => {
                SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64)
            }
            Self::Counted(instructions) => *instructions,
        }
    }
}
