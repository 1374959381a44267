//! The attributes of a launch beyond its shape.

/// The attributes of a launch beyond its shape. Four bytes, so that a [`LaunchConfig`](crate::LaunchConfig) stays small.
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
