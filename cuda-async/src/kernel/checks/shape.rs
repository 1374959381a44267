//! The shape of a launch, from the expressions of a declaration.

use cuda_core::{Error, LaunchConfig, Result};

use super::conditions::{Kernel, Side};
use crate::kernel::arguments::buffer_form::KernelBuffer;

impl Kernel {
    /// Returns the configuration for a number of elements, or `None` for zero elements.
    ///
    /// # Errors
    /// [`Error::Arguments`] if the expression has no value; [`Error::InvalidLaunch`] if no grid has that many threads.
    #[inline(always)]
    pub fn elements(self, elements: Side) -> Result<Option<LaunchConfig>> {
        let n = self.size::<u64>(elements)?;
        Ok((n != 0).then(|| LaunchConfig::for_num_elems(n)))
    }

    /// Returns the configuration for a plane, or `None` for one without points.
    ///
    /// # Errors
    /// The errors of [`elements`](Self::elements).
    #[inline(always)]
    pub fn plane(self, width: Side, height: Side) -> Result<Option<LaunchConfig>> {
        let (width, height) = (self.size::<u64>(width)?, self.size::<u64>(height)?);
        Ok((width != 0 && height != 0).then(|| LaunchConfig::for_plane(width, height)))
    }

    /// Returns the configuration with a block of `threads` threads for each tile of a partition, or `None` if there are
    /// no tiles.
    ///
    /// # Errors
    /// [`Error::Arguments`] if the argument `name` is not a `Partition` of `cuda-tensor` with tiles of the shape
    /// `tile`, or a value is undefined; [`Error::InvalidLaunch`] if `threads` or a size is out of range.
    pub fn tiles<const N: usize>(
        self,
        name: &'static str,
        buffer: &impl KernelBuffer,
        tile: [Side; N],
        threads: Side,
    ) -> Result<Option<LaunchConfig>> {
        let threads = self.size(threads)?;
        let mut wanted = [0; N];
        for (wanted, size) in wanted.iter_mut().zip(tile) {
            *wanted = self.size(size)?;
        }
        let Some((tile, [x, y, z])) = buffer.tiles() else {
            let why = format!(
                "the launch has a block for each tile; pass `tensor.partition({wanted:?})?`"
            );
            return Err(self.wrong(format!("`{name}` is not divided into tiles, and {why}")));
        };
        if tile != wanted {
            let why = format!(
                "`{name}` is divided into tiles of {tile:?}, and the kernel is for tiles of {wanted:?}"
            );
            return Err(self.wrong(why));
        }
        let config = LaunchConfig::new(1, threads).grid(x, y, z);
        Ok((x != 0 && y != 0 && z != 0).then_some(config))
    }

    /// Returns the configuration with these dimensions, or `None` if a dimension of the grid is zero.
    ///
    /// # Errors
    /// The errors of [`elements`](Self::elements). A block without threads is refused at submission.
    #[inline(always)]
    pub fn config(
        self,
        grid: [Side; 3],
        block: [Side; 3],
        shared_bytes: Side,
    ) -> Result<Option<LaunchConfig>> {
        let [gx, gy, gz] = self.dimensions(grid)?;
        let [bx, by, bz] = self.dimensions(block)?;
        let shared = self.size(shared_bytes)?;
        let config = LaunchConfig::new(1, 1).grid(gx, gy, gz).block(bx, by, bz);
        Ok((gx != 0 && gy != 0 && gz != 0).then(|| config.shared_bytes(shared)))
    }

    /// Adds a cluster with these dimensions. With `rounds`, the grid grows to a multiple of it.
    ///
    /// # Errors
    /// The errors of [`elements`](Self::elements).
    #[inline(always)]
    pub fn cluster(
        self,
        config: Option<LaunchConfig>,
        cluster: [Side; 3],
        rounds: bool,
    ) -> Result<Option<LaunchConfig>> {
        let [x, y, z] = self.dimensions(cluster)?;
        Ok(config.map(|mut config| {
            if rounds {
                for (blocks, side) in config.grid.iter_mut().zip([x, y, z]) {
                    *blocks = blocks.div_ceil(side.max(1)).saturating_mul(side.max(1));
                }
            }
            config.cluster(x, y, z)
        }))
    }

    #[inline]
    fn dimensions(self, [x, y, z]: [Side; 3]) -> Result<[u32; 3]> {
        Ok([self.size(x)?, self.size(y)?, self.size(z)?])
    }

    /// Converts the value of an expression to a number of the configuration.
    #[inline(always)]
    fn size<T: TryFrom<i128>>(self, side: Side) -> Result<T> {
        let value = self.value(side)?;
        T::try_from(value).map_err(|_| self.too_large(side.0, value))
    }

    #[cold]
    fn too_large(self, text: &str, value: i128) -> Error {
        let detail = format!("`{text}` is {value}, which is outside the range of a launch");
        Error::InvalidLaunch { kernel: self.0.to_owned(), detail }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::quantity::int, *};

    const KERNEL: Kernel = Kernel("scale");

    #[test]
    fn empty_shapes_have_no_configuration() {
        let side = |n: i32| ("n", int(n));
        assert_eq!(KERNEL.elements(side(0)), Ok(None));
        assert_eq!(KERNEL.elements(side(300)), Ok(Some(LaunchConfig::new(2, 256))));
        assert_eq!(KERNEL.plane(side(5), side(0)), Ok(None));
        let (grid, block) = ([2, 3, 1].map(side), [8, 1, 1].map(side));
        let config = LaunchConfig::new(2, 8).grid(2, 3, 1).shared_bytes(16);
        assert_eq!(KERNEL.config(grid, block, side(16)), Ok(Some(config)));
        assert_eq!(KERNEL.config([2, 0, 1].map(side), block, side(16)), Ok(None));
        assert!(matches!(KERNEL.elements(side(-1)), Err(Error::InvalidLaunch { .. })));
    }
}
