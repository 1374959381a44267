//! The shape of a launch, and its attributes beyond that.

/// The grid and block dimensions and the dynamic shared memory of a launch.
///
/// ```
/// # use cuda_core::LaunchConfig;
/// let config = LaunchConfig::for_num_elems(1000);
/// assert_eq!((config.grid, config.block), ([4, 1, 1], [256, 1, 1]));
/// ```
// Aligned, so that it is copied as two whole registers. Smaller copies would overlap, and a load that overlaps a store
// which has not retired waits for it: that is measurable in every launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(align(16))]
pub struct LaunchConfig {
    /// Blocks in x, y and z; each at least 1.
    pub grid: [u32; 3],
    /// Threads of a block in x, y and z; each at least 1.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory per block.
    pub shared_bytes: u32,
    /// The attributes beyond the shape: cooperative, clusters, dependent. A launch has none by default.
    pub attributes: LaunchAttributes,
}

const _: () = assert!(size_of::<LaunchConfig>() == 32);

impl LaunchConfig {
    /// The number of threads per block that [`LaunchConfig::for_num_elems`] uses.
    pub const DEFAULT_BLOCK: u32 = 256;

    /// Creates a one-dimensional configuration with at least one thread per element, in blocks of 256. Takes any
    /// integer, so `vec.len()` needs no cast.
    ///
    /// Zero elements still launch one block: kernels guard their index anyway. A number that is negative, or that needs
    /// more blocks than a `u32` can state, makes a configuration that every launch refuses with
    /// [`Error::InvalidLaunch`](crate::Error::InvalidLaunch).
    #[inline]
    pub fn for_num_elems(elements: impl TryInto<u64>) -> Self {
        Self::new(blocks(elements, Self::DEFAULT_BLOCK), Self::DEFAULT_BLOCK)
    }

    /// Creates a two-dimensional configuration with at least one thread per point of a `width` by `height` plane. The
    /// blocks have 16 by 16 threads. Takes integers as [`for_num_elems`](Self::for_num_elems) does.
    ///
    /// ```
    /// # use cuda_core::LaunchConfig;
    /// assert_eq!(LaunchConfig::for_plane(100, 20).grid, [7, 2, 1]);
    /// ```
    pub fn for_plane(width: impl TryInto<u64>, height: impl TryInto<u64>) -> Self {
        Self::new(1, 1).block(16, 16, 1).grid(blocks(width, 16), blocks(height, 16), 1)
    }

    /// Creates a one-dimensional configuration of `grid` blocks of `block` threads.
    pub const fn new(grid: u32, block: u32) -> Self {
        let attributes = LaunchAttributes::NONE;
        Self { grid: [grid, 1, 1], block: [block, 1, 1], shared_bytes: 0, attributes }
    }

    /// Sets the number of blocks in x, y and z.
    pub const fn grid(mut self, x: u32, y: u32, z: u32) -> Self {
        self.grid = [x, y, z];
        self
    }

    /// Sets the number of threads of a block in x, y and z.
    pub const fn block(mut self, x: u32, y: u32, z: u32) -> Self {
        self.block = [x, y, z];
        self
    }

    /// Sets the bytes of dynamic shared memory per block.
    pub const fn shared_bytes(mut self, bytes: u32) -> Self {
        self.shared_bytes = bytes;
        self
    }

    /// Runs all blocks of the grid at the same time, so that they can wait for each other: `grid.sync()` of cooperative
    /// groups. A launch whose blocks do not all fit on the device fails with
    /// [`Error::InvalidLaunch`](crate::Error::InvalidLaunch), which states how many fit.
    /// [`Function::occupancy`](crate::Function::occupancy) answers the same question before the launch.
    ///
    /// ```
    /// # use cuda_core::LaunchConfig;
    /// assert!(LaunchConfig::new(4, 256).cooperative().attributes.is_cooperative());
    /// ```
    pub const fn cooperative(mut self) -> Self {
        self.attributes = self.attributes.cooperative();
        self
    }

    /// Groups the blocks into clusters of this many blocks in x, y and z. Blocks of a cluster run at the same time, and
    /// access each other's shared memory.
    ///
    /// The grid is a multiple of the cluster in each direction, and a cluster has at most
    /// [`MAX_CLUSTER_BLOCKS`](LaunchAttributes::MAX_CLUSTER_BLOCKS) blocks. Any other launch fails with
    /// [`Error::InvalidLaunch`](crate::Error::InvalidLaunch). A GPU needs compute capability 9.0. Eight blocks are
    /// possible on every such GPU, more only on some, and depend on the kernel.
    ///
    /// ```
    /// # use cuda_core::LaunchConfig;
    /// let config = LaunchConfig::new(8, 256).cluster(2, 1, 1);
    /// assert_eq!(config.attributes.cluster_dims(), Some([2, 1, 1]));
    /// ```
    pub const fn cluster(mut self, x: u32, y: u32, z: u32) -> Self {
        self.attributes = self.attributes.cluster(x, y, z);
        self
    }

    /// Lets the kernel begin before the kernel in front of it on the stream has ended (programmatic dependent launch).
    /// The kernel waits for the earlier one with `griddepcontrol.wait` (`cudaGridDependencySynchronize`).
    ///
    /// This is a permission: a device may always wait for the earlier kernel, as the CPU device, graphs and GPUs before
    /// compute capability 9.0 do.
    ///
    /// The launch is unsafe, and its caller promises that the kernel executes `griddepcontrol.wait` in every thread,
    /// before its first access to memory that other work writes, and before its first write. Launchers that are safe
    /// remove the attribute, unless the kernel is declared `#[dependent]`.
    ///
    /// ```
    /// # use cuda_core::LaunchConfig;
    /// assert!(LaunchConfig::new(4, 256).dependent().attributes.is_dependent());
    /// ```
    pub const fn dependent(mut self) -> Self {
        self.attributes = self.attributes.dependent();
        self
    }

    /// Returns the number of threads per block. Saturates instead of wrapping.
    pub const fn threads_per_block(&self) -> u64 {
        (self.block[0] as u64)
            .saturating_mul(self.block[1] as u64)
            .saturating_mul(self.block[2] as u64)
    }

    /// Returns the number of blocks of the grid. Saturates instead of wrapping.
    pub const fn blocks(&self) -> u64 {
        (self.grid[0] as u64)
            .saturating_mul(self.grid[1] as u64)
            .saturating_mul(self.grid[2] as u64)
    }

    /// Returns whether a dimension is 0. No device runs such a launch.
    pub const fn is_empty(&self) -> bool {
        let [gx, gy, gz] = self.grid;
        let [bx, by, bz] = self.block;
        gx == 0 || gy == 0 || gz == 0 || bx == 0 || by == 0 || bz == 0
    }
}

/// Blocks of `block` threads for `threads` threads, at least one. Numbers that no grid can have give the largest `u32`,
/// which no device runs.
#[inline]
pub(super) fn blocks(threads: impl TryInto<u64>, block: u32) -> u32 {
    let Ok(threads) = threads.try_into() else { return u32::MAX };
    u32::try_from(threads.div_ceil(u64::from(block)).max(1)).unwrap_or(u32::MAX)
}

/// The attributes of a launch beyond its shape. Four bytes, so that a [`LaunchConfig`](crate::LaunchConfig) stays
/// small.
///
/// ```
/// # use cuda_core::protocol::LaunchAttributes;
/// let attributes = LaunchAttributes::NONE.cluster(2, 1, 1).cooperative();
/// assert!(attributes.is_cooperative() && !attributes.is_dependent());
/// assert_eq!(attributes.cluster_blocks(), 2);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct LaunchAttributes {
    /// The blocks of a cluster in x, y and z. All are 0 if the launch states no cluster.
    cluster: [u8; 3],
    flags: u8,
}

const COOPERATIVE: u8 = 1;
const DEPENDENT: u8 = 2;

impl LaunchAttributes {
    /// No attribute.
    pub const NONE: Self = Self { cluster: [0; 3], flags: 0 };

    /// The maximum number of blocks of a cluster on any device.
    pub const MAX_CLUSTER_BLOCKS: u32 = 16;

    /// Returns whether there is no attribute.
    #[inline]
    pub const fn is_none(self) -> bool {
        u32::from_ne_bytes([self.cluster[0], self.cluster[1], self.cluster[2], self.flags]) == 0
    }

    /// Adds the attribute of [`LaunchConfig::cooperative`](crate::LaunchConfig::cooperative).
    pub const fn cooperative(mut self) -> Self {
        self.flags |= COOPERATIVE;
        self
    }

    /// Adds the attribute of [`LaunchConfig::dependent`](crate::LaunchConfig::dependent).
    pub const fn dependent(mut self) -> Self {
        self.flags |= DEPENDENT;
        self
    }

    /// Sets the blocks of a cluster in x, y and z. Numbers above 255 count as 255, which no device runs. Three times 0
    /// is not a cluster.
    pub const fn cluster(mut self, x: u32, y: u32, z: u32) -> Self {
        self.cluster = [narrow(x), narrow(y), narrow(z)];
        self
    }

    /// Returns these attributes without [`dependent`](Self::dependent).
    pub const fn without_dependent(mut self) -> Self {
        self.flags &= !DEPENDENT;
        self
    }

    /// Returns whether all blocks run at the same time.
    #[inline]
    pub const fn is_cooperative(self) -> bool {
        self.flags & COOPERATIVE != 0
    }

    /// Returns whether the kernel may begin before the earlier kernel on the stream has ended.
    #[inline]
    pub const fn is_dependent(self) -> bool {
        self.flags & DEPENDENT != 0
    }

    /// Returns the blocks of a cluster in x, y and z, if the launch states them.
    pub const fn cluster_dims(self) -> Option<[u32; 3]> {
        let [x, y, z] = self.cluster;
        if x == 0 && y == 0 && z == 0 { None } else { Some([x as u32, y as u32, z as u32]) }
    }

    /// Returns the number of blocks of a cluster. It is 1 if the launch states none.
    pub const fn cluster_blocks(self) -> u32 {
        match self.cluster_dims() {
            Some([x, y, z]) => x * y * z,
            None => 1,
        }
    }

    /// Returns the attributes as bytes: the cluster, then the flags.
    pub const fn to_bytes(self) -> [u8; 4] {
        let [x, y, z] = self.cluster;
        [x, y, z, self.flags]
    }

    /// Returns the attributes of [`to_bytes`](Self::to_bytes), or `None` if a flag is unknown.
    pub const fn from_bytes(bytes: [u8; 4]) -> Option<Self> {
        let [x, y, z, flags] = bytes;
        if flags & !(COOPERATIVE | DEPENDENT) == 0 {
            Some(Self { cluster: [x, y, z], flags })
        } else {
            None
        }
    }

    /// Explains why no device has clusters like these in a grid, or returns `None`.
    pub(crate) fn cluster_misfit(self, grid: [u32; 3]) -> Option<String> {
        let cluster = self.cluster_dims()?;
        let (blocks, most) = (self.cluster_blocks(), Self::MAX_CLUSTER_BLOCKS);
        if cluster.contains(&0) {
            Some(format!("cluster {cluster:?} has a 0; each number is at least 1"))
        } else if blocks > most {
            Some(format!("{blocks} blocks per cluster, the limit is {most}; use a smaller cluster"))
        } else if grid.iter().zip(cluster).any(|(grid, cluster)| !grid.is_multiple_of(cluster)) {
            Some(format!(
                "grid {grid:?} is not a multiple of cluster {cluster:?}; round the grid up"
            ))
        } else {
            None
        }
    }
}

const fn narrow(blocks: u32) -> u8 {
    if blocks > 255 { 255 } else { blocks as u8 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_integers_of_any_type() {
        let grid = |config: LaunchConfig| config.grid[0];
        assert_eq!(grid(LaunchConfig::for_num_elems(257)), 2);
        assert_eq!(grid(LaunchConfig::for_num_elems([0u8; 600].len())), 3);
        assert_eq!(grid(LaunchConfig::for_num_elems(0u64)), 1);
        assert_eq!(grid(LaunchConfig::for_num_elems(1u64 << 33)), 1 << 25);
        assert_eq!(LaunchConfig::for_plane(17usize, 16u8).grid, [2, 1, 1]);
    }

    #[test]
    fn sizes_that_no_grid_can_have_are_refused_later() {
        for config in [LaunchConfig::for_num_elems(-1), LaunchConfig::for_num_elems(u64::MAX)] {
            assert_eq!(config.grid[0], u32::MAX);
        }
    }
}

#[cfg(test)]
mod launch_attributes_tests {
    use super::*;

    #[test]
    fn bytes_hold_every_attribute() {
        let all = LaunchAttributes::NONE.cluster(4, 2, 1).cooperative().dependent();
        let from_bytes = LaunchAttributes::from_bytes;
        assert_eq!(all.to_bytes(), [4, 2, 1, 3]);
        assert_eq!(from_bytes(all.to_bytes()), Some(all));
        assert_eq!(from_bytes([0, 0, 0, 4]), None);
        assert!(from_bytes([0; 4]).is_some_and(LaunchAttributes::is_none));
        assert!(!all.without_dependent().is_dependent() && !all.is_none());
    }

    #[test]
    fn misfit_of_a_cluster_names_the_limit() {
        let misfit = |x, y, z| {
            let attributes = LaunchAttributes::NONE.cluster(x, y, z);
            attributes.cluster_misfit([8, 4, 1]).unwrap_or_default()
        };
        assert_eq!(misfit(8, 2, 1), "");
        assert!(misfit(0, 2, 1).contains("has a 0"));
        assert!(misfit(8, 4, 1).contains("32 blocks per cluster, the limit is 16"));
        assert!(misfit(1000, 1, 1).contains("255 blocks per cluster"));
        assert!(misfit(3, 1, 1).contains("not a multiple"));
    }
}
