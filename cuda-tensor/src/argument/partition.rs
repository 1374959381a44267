//! `Partition`: a tensor that a kernel writes tile by tile.

use cuda_core::{ExpectedShape, LaunchConfig, Result, Slice};

use crate::{
    element::dtype::DType,
    forms::{Sealed, TensorInput, TensorOutput},
    shape::{
        error::shape_error,
        layout::Layout,
        shape::{Dims, IntoShape},
    },
    tensor::Tensor,
};

/// A tensor that is divided into tiles of one shape. A kernel takes it as output, with a block for each tile. The last
/// tile of a dimension may extend past its end, so the kernel must check its indices.
///
/// ```standalone_crate
/// use cuda_async::{launch, prelude::*};
/// use cuda_tensor::{Tensor, TensorOps};
/// # let device = cuda_async::open_blocking("cpu")?;
/// # let stream = device.new_stream()?;
/// # let scale = device.load_ptx_blocking(include_str!("../../../kernels/basic.ptx"))?.function("scale")?;
/// let x = Tensor::<f32>::ones(1000).sync_on(&stream)?.partition(256)?;
/// assert_eq!(x.tiles(), [4]);
/// let config = x.launch_config(256);
/// // SAFETY: `scale(x, factor, n)` writes x, all below n.
/// let x = unsafe { launch(&scale, config, (x, 2.0f32, 1000u32)) }.map(|x| x.unpartition());
/// assert_eq!(x.to_host_vec().sync_on(&stream)?, [2.0; 1000]);
/// # Ok::<(), cuda_async::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Partition<O> {
    tensor: O,
    tile: Dims,
}

impl<T: DType, B> Tensor<T, B>
where
    Self: TensorOutput,
{
    /// Divides the tensor into tiles. [`unpartition`](Partition::unpartition) gives it back.
    ///
    /// # Errors
    /// The errors of [`Partition::new`].
    pub fn partition(self, tile: impl IntoShape) -> Result<Partition<Self>> {
        Partition::new(self, tile)
    }
}

impl<O: TensorOutput> Partition<O> {
    /// Divides a tensor, or an exclusive borrow of one, into tiles of the shape `tile`.
    ///
    /// # Errors
    /// [`Error::Shape`](cuda_core::Error::Shape) if the tile has another number of dimensions or a size of 0, or if
    /// there are more than three dimensions, which is the limit of a grid. The launch checks the number of tiles.
    pub fn new(tensor: O, tile: impl IntoShape) -> Result<Self> {
        let (shape, tile) = (tensor.layout().shape(), tile.dims());
        if shape.len() == tile.len() && tile.len() <= 3 && tile.iter().all(|size| *size > 0) {
            return Ok(Self { tile: tile.into(), tensor });
        }
        Err(shape_error(shape, ExpectedShape::TilesOf(tile.into())))
    }
}

impl<O: TensorInput> Partition<O> {
    /// Returns the shape of a tile.
    pub fn tile(&self) -> &[usize] {
        &self.tile
    }

    /// Returns the number of tiles along each dimension.
    pub fn tiles(&self) -> Vec<usize> {
        let sizes = self.tensor.layout().shape().iter().zip(&self.tile);
        sizes.map(|(size, tile)| size.div_ceil(*tile)).collect()
    }

    /// Returns the configuration with a block of `threads` threads for each tile. The first, second and third dimension
    /// of the tensor are `x`, `y` and `z` of the grid.
    pub fn launch_config(&self, threads: u32) -> LaunchConfig {
        let [x, y, z] = self.grid().map(|tiles| tiles.max(1));
        LaunchConfig::new(1, threads).grid(x, y, z)
    }

    /// Returns the number of tiles along each dimension of a grid.
    pub(super) fn grid(&self) -> [u32; 3] {
        let tiles = self.tiles();
        // The launch refuses more tiles than a grid can have.
        let along = |dim: usize| {
            tiles.get(dim).map_or(1, |tiles| u32::try_from(*tiles).unwrap_or(u32::MAX))
        };
        [along(0), along(1), along(2)]
    }

    /// Returns the tensor.
    pub fn tensor(&self) -> &O {
        &self.tensor
    }

    /// Returns the tensor, and drops the division into tiles.
    pub fn unpartition(self) -> O {
        self.tensor
    }
}

impl<O> Sealed for Partition<O> {}

impl<O: TensorInput> TensorInput for Partition<O> {
    type Element = O::Element;

    fn layout(&self) -> &Layout {
        self.tensor.layout()
    }

    fn whole(&self) -> Slice<'_, <O::Element as DType>::Stored> {
        self.tensor.whole()
    }
}
