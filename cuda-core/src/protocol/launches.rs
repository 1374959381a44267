//! Launches of kernels: their shape and attributes, the occupancy of a device, and the kernels, parameters and
//! variables of a module. The client reads these from PTX. For a cubin, the backend lists the kernels.

use std::sync::Arc;

use crate::protocol::{Error, Result};

pub use cuda_ptx::{ParamType, ScalarKind};

/// The largest grid of every device (CUDA C++ Programming Guide, "Compute Capabilities").
pub const MAX_GRID: [u32; 3] = [i32::MAX as u32, 65_535, 65_535];

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

/// A kernel of a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryInfo {
    /// Its name, mangled where the compiler mangled it.
    pub name: String,
    /// Its parameters in order.
    pub params: Vec<ParamInfo>,
    /// The variables of the module that the kernel may use, as indices of [`ModuleInfo::variables`]. Empty for a cubin.
    pub variables: Arc<[u32]>,
    /// The maximum number of threads in a block on the module's device.
    pub max_threads: u32,
}

impl EntryInfo {
    /// Returns the size of the parameter block in bytes.
    pub fn param_bytes(&self) -> u32 {
        self.params.last().map_or(0, |last| last.offset + last.size)
    }
}

/// A parameter of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParamInfo {
    /// The name in the PTX.
    pub name: String,
    /// The type in the PTX, such as `u64`, or `b8[24]` for a struct.
    pub ty: ParamType,
    /// The offset in bytes from the start of the parameter block.
    pub offset: u32,
    /// Size in bytes.
    pub size: u32,
    /// Alignment in bytes.
    pub align: u32,
}

/// A variable of a module: `__device__` or `__constant__` in CUDA C, `.global` or `.const` in PTX.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VariableInfo {
    /// Its name, mangled where the compiler mangled it.
    pub name: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// Whether kernels only read it (`__constant__`).
    pub is_constant: bool,
}

/// The kernels and the variables of a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleInfo {
    /// The kernels, in the order of the text.
    pub entries: Vec<EntryInfo>,
    /// The `.global` and `.const` variables of module scope whose size is known, in the order of the text.
    pub variables: Vec<VariableInfo>,
    /// Whether the text declares `.global` variables, in module scope or in a body. Also true if their size is unknown.
    pub has_variables: bool,
}

/// Lists the kernels of a PTX text, in its order. Their `max_threads` is 0: only a device knows it.
///
/// ```
/// let ptx = ".version 7.0\n.target sm_50\n.entry k(.param .u64 p, .param .align 8 .b8 s[24]) { ret; }";
/// let params = &cuda_core::protocol::entries(ptx)?[0].params;
/// assert_eq!((params[0].ty.to_string(), params[1].ty.to_string()), ("u64".into(), "b8[24]".into()));
/// # Ok::<(), cuda_core::Error>(())
/// ```
///
/// # Errors
/// [`Error::InvalidPtx`].
pub fn entries(ptx: &str) -> Result<Vec<EntryInfo>> {
    module_info(ptx).map(|module| module.entries)
}

/// Lists the kernels and the variables of a PTX text. The `max_threads` of the kernels is 0: only a device knows it.
///
/// ```
/// let ptx = ".version 7.0\n.target sm_50\n.const .f32 scale;\n.entry k() { ld.const.f32 %f1, [scale]; ret; }";
/// let module = cuda_core::protocol::module_info(ptx)?;
/// assert_eq!((module.variables[0].name.as_str(), module.variables[0].bytes), ("scale", 4));
/// assert_eq!(*module.entries[0].variables, [0]);
/// # Ok::<(), cuda_core::Error>(())
/// ```
///
/// # Errors
/// [`Error::InvalidPtx`].
pub fn module_info(ptx: &str) -> Result<ModuleInfo> {
    let module = cuda_ptx::module_signature(ptx);
    let module = module.map_err(|error| {
        let detail = not_ptx(ptx).map_or_else(|| error.to_string(), str::to_owned);
        Error::InvalidPtx { detail }
    })?;
    let has_variables = module.global_bytes != Some(0);
    let entry = |kernel: cuda_ptx::Signature| EntryInfo {
        params: params(&kernel.params),
        variables: kernel.variables,
        name: kernel.name,
        max_threads: 0,
    };
    let variable = |found: cuda_ptx::VariableSignature| VariableInfo {
        name: found.name,
        bytes: found.bytes,
        is_constant: found.space == cuda_ptx::Space::Const,
    };
    let entries = module.entries.into_iter().map(entry).collect();
    let variables = module.variables.into_iter().map(variable).collect();
    Ok(ModuleInfo { entries, variables, has_variables })
}

/// The likely mistake, if the text is not PTX at all.
fn not_ptx(text: &str) -> Option<&'static str> {
    let text = text.trim();
    if text.is_empty() {
        return Some("it is empty");
    }
    if text.starts_with("\u{7f}ELF") {
        return Some("it is a cubin; load it with `load_cubin`, or load the PTX (`nvcc -ptx`)");
    }
    if !text.contains('\n') && [".ptx", ".cu", ".cubin"].iter().any(|end| text.ends_with(end)) {
        return Some("it is the path of a file; pass the text: `std::fs::read_to_string(path)?`");
    }
    let is_source = !text.contains(".version")
        && ["__global__", "#include"].iter().any(|word| text.contains(word));
    is_source.then_some("it is CUDA C; compile it to PTX first: `nvcc -ptx kernel.cu`, or NVRTC")
}

fn params(params: &[cuda_ptx::Param]) -> Vec<ParamInfo> {
    params
        .iter()
        .map(|param| ParamInfo {
            name: param.name.clone(),
            ty: param.param_type,
            offset: param.offset,
            size: param.size,
            align: param.align,
        })
        .collect()
}

/// The resources of a kernel, as the device's compiler chose them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FunctionAttributes {
    /// The 32-bit registers of a thread.
    pub registers: u32,
    /// The bytes of local memory of a thread.
    pub local_bytes: u32,
    /// The bytes of shared memory of a block that the kernel itself declares.
    pub static_shared_bytes: u32,
    /// The maximum number of threads in a block.
    pub max_threads: u32,
}

/// The blocks of a kernel that run at the same time, for blocks of one shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Occupancy {
    /// The blocks that one multiprocessor runs at the same time. It is 0 if not even one fits.
    pub blocks_per_multiprocessor: u32,
    /// The blocks that the whole device runs at the same time: the largest grid of a cooperative launch.
    pub max_cooperative_blocks: u32,
    /// The largest number of blocks in a cluster. It is 1 if the device has no clusters.
    pub max_cluster_blocks: u32,
    /// The threads of a block with which the kernel keeps a multiprocessor busiest. It does not depend on the block of
    /// the request.
    pub suggested_block: u32,
    /// The resources of the kernel. They do not depend on the block.
    pub kernel: FunctionAttributes,
}

impl Occupancy {
    /// Creates a configuration with at least one thread per element, in blocks of the suggested size. Takes integers as
    /// [`LaunchConfig::for_num_elems`] does.
    ///
    /// ```
    /// # use cuda_core::protocol::Occupancy;
    /// let occupancy = Occupancy { suggested_block: 512, ..Occupancy::default() };
    /// assert_eq!(occupancy.launch_config(1000).grid, [2, 1, 1]);
    /// ```
    pub fn launch_config(&self, elements: impl TryInto<u64>) -> LaunchConfig {
        let block = self.suggested_block.max(1);
        LaunchConfig::new(blocks(elements, block), block)
    }
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

#[cfg(test)]
mod kernels_tests {
    use cuda_ptx::ScalarType;

    use super::*;

    fn params(list: &str) -> Vec<ParamInfo> {
        let text = format!(".version 7.0\n.target sm_50\n.visible .entry k({list}) {{ ret; }}");
        entries(&text).unwrap().remove(0).params
    }

    #[test]
    fn parameters_are_aligned_to_their_size() {
        let params = params(".param .u32 n, .param .u64 p, .param .f32 x");
        let places: Vec<_> = params.iter().map(|p| (p.offset, p.size, p.align)).collect();
        assert_eq!(places, [(0, 4, 4), (8, 8, 8), (16, 4, 4)]);
    }

    #[test]
    fn types_are_spelled_as_in_ptx() {
        for name in ["b8", "u16", "s32", "f16", "f16x2", "bf16", "bf16x2", "f32", "f64", "b64"] {
            assert!(ScalarType::from_name(name).is_some());
            assert_eq!(params(&format!(".param .{name} x"))[0].ty.to_string(), name);
        }
        assert_eq!(params(".param .align 16 .b8 x[32]")[0].ty.to_string(), "b8[32]");
        assert_eq!(params(".param .u32 x[4]")[0].ty.to_string(), "u32[4]");
    }

    #[test]
    fn text_that_is_no_ptx_is_recognized() {
        let message = |text| entries(text).unwrap_err().to_string();
        for (text, advice) in [
            ("", "it is empty"),
            ("kernels/vecadd.ptx", "pass the text"),
            ("extern \"C\" __global__ void k() {}", "compile it to PTX first"),
            ("\u{7f}ELF\u{2}", "it is a cubin"),
        ] {
            assert!(message(text).contains(advice), "{}", message(text));
        }
        let ptx = ".version 7.0\n.target sm_50\n.entry k( // __global__";
        assert!(!message(ptx).contains("CUDA C"), "{}", message(ptx));
    }
}
