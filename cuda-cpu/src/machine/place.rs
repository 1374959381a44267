//! The values behind special registers: the position of a block in its launch, and the clock.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Position of the running block in its launch, for special registers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Place {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) at: [u32; 3],
    pub(crate) worker: u32,
    pub(crate) workers: u32,
    pub(crate) grid_id: u64,
    pub(crate) static_shared: u32,
    pub(crate) dynamic_shared: u32,
    /// Blocks of a cluster.
    pub(crate) cluster: [u32; 3],
    pub(crate) is_explicit_cluster: bool,
    /// Address of the workspace of a cooperative launch, or 0.
    pub(crate) workspace: u64,
}

impl Place {
    pub(crate) fn threads(&self) -> u32 {
        self.block.iter().product()
    }

    /// Returns whether the same worker runs both in the same launch.
    pub(crate) fn is_same_launch(&self, other: &Self) -> bool {
        (self.grid_id, self.worker) == (other.grid_id, other.worker)
    }

    /// Returns the number of blocks of a cluster.
    pub(crate) fn cluster_size(&self) -> u32 {
        self.cluster.iter().product()
    }

    /// Returns the position of the block in its cluster.
    pub(super) fn in_cluster(&self) -> [u32; 3] {
        [0, 1, 2].map(|i| self.at[i] % self.cluster[i].max(1))
    }

    /// Returns the rank of the block in its cluster.
    pub(crate) fn cluster_rank(&self) -> u32 {
        let ([x, y, z], [nx, ny, _]) = (self.in_cluster(), self.cluster);
        x + nx * (y + ny * z)
    }

    /// Returns the place of the block with this rank in the same cluster.
    pub(crate) fn of_rank(&self, rank: u32) -> Self {
        let ([nx, ny, _], inside) = (self.cluster.map(|n| n.max(1)), self.in_cluster());
        let to = [rank % nx, rank / nx % ny, rank / (nx * ny)];
        Self { at: [0, 1, 2].map(|i| self.at[i] - inside[i] + to[i]), ..*self }
    }

    /// Returns `threadIdx` of the thread with this linear number.
    pub(crate) fn thread(&self, linear: u32) -> [u32; 3] {
        let [x, y, z] = self.block;
        if y == 1 && z == 1 {
            return [linear, 0, 0];
        }
        [linear % x, linear / x % y, linear / (x * y)]
    }
}

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
