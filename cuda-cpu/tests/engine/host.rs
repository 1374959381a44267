//! The test host: a device, its memory and typed buffers.

use std::sync::{Arc, Mutex};

use cuda_cpu::{
    Checks, Launch, LaunchDims, LaunchError, Limits, Memory, Operand, Profile, Program, Schedule,
};

/// A loaded module and memory to run it with.
pub(crate) struct Host {
    pub(crate) memory: Memory,
    pub(crate) program: Program,
    pub(crate) pool: Option<rayon::ThreadPool>,
    pub(crate) printed: Mutex<String>,
    pub(crate) limits: Limits<'static>,
    pub(crate) schedule: Schedule,
    pub(crate) checks: Checks,
    pub(crate) profile: Option<Arc<Profile>>,
    /// The memory that launches state, for the check of arguments that are only read.
    pub(crate) operands: Vec<Operand>,
    pub(crate) cluster: Option<[u32; 3]>,
    /// The multiprocessors of a cooperative launch.
    pub(crate) cooperative: Option<u32>,
}

/// The bytes of one kernel argument.
pub(crate) struct Arg(pub(crate) Vec<u8>);

macro_rules! args_of {
    ($($ty:ty),*) => { $(
        impl From<$ty> for Arg {
            fn from(value: $ty) -> Self {
                Self(value.to_le_bytes().to_vec())
            }
        }
        impl Element for $ty {
            fn read(bytes: &[u8]) -> Self {
                Self::from_le_bytes(bytes.try_into().unwrap())
            }
            fn bytes(self) -> Vec<u8> {
                self.to_le_bytes().to_vec()
            }
        }
    )* };
}

/// An element of a buffer.
pub(crate) trait Element: Copy {
    fn read(bytes: &[u8]) -> Self;
    fn bytes(self) -> Vec<u8>;
}

args_of!(u8, i8, u16, i16, u32, i32, u64, i64, f32, f64);

impl Host {
    pub(crate) fn new(ptx: &str) -> Self {
        Self::try_new(ptx).unwrap_or_else(|e| panic!("{e}"))
    }

    /// Returns the error message if the module does not load.
    pub(crate) fn try_new(ptx: &str) -> Result<Self, String> {
        let memory = Memory::new(1 << 32).tracking();
        let module = cuda_ptx::parse(ptx).map_err(|e| e.to_string())?;
        let program = Program::load(&module, &memory).map_err(|e| e.to_string())?;
        let (pool, profile) = (None, None);
        let (limits, schedule, printed) = Default::default();
        let checks = crate::CHECKS;
        let (cluster, cooperative) = (None, None);
        Ok(Self {
            memory,
            program,
            pool,
            printed,
            limits,
            schedule,
            checks,
            profile,
            operands: Vec::new(),
            cluster,
            cooperative,
        })
    }

    pub(crate) fn with_pool(ptx: &str, threads: usize) -> Self {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        Self { pool: Some(pool), ..Self::new(ptx) }
    }

    pub(crate) fn upload<T: Element>(&self, values: &[T]) -> u64 {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.bytes()).collect();
        let at = self.memory.alloc(bytes.len() as u64, 256).unwrap();
        self.memory.write(at, &bytes).unwrap();
        at
    }

    pub(crate) fn zeros<T: Element + Default>(&self, count: usize) -> u64 {
        self.upload(&vec![T::default(); count])
    }

    pub(crate) fn download<T: Element>(&self, at: u64, count: usize) -> Vec<T> {
        let mut bytes = vec![0; count * size_of::<T>()];
        self.memory.read(at, &mut bytes).unwrap();
        bytes.chunks(size_of::<T>()).map(T::read).collect()
    }

    pub(crate) fn launch(
        &self,
        kernel: &str,
        grid: impl Into<Dim>,
        block: impl Into<Dim>,
        args: &[Arg],
    ) -> Result<(), LaunchError> {
        self.launch_shared(kernel, grid, block, 0, args)
    }

    pub(crate) fn launch_shared(
        &self,
        kernel: &str,
        grid: impl Into<Dim>,
        block: impl Into<Dim>,
        dynamic_shared: u32,
        args: &[Arg],
    ) -> Result<(), LaunchError> {
        let entry = self.program.entry(kernel).expect("no such kernel");
        let info = &self.program.entries()[entry];
        assert_eq!(info.params.len(), args.len(), "arguments of {kernel}");
        let mut params = vec![0; info.param_bytes as usize];
        for (param, arg) in info.params.iter().zip(args) {
            assert_eq!(param.size as usize, arg.0.len(), "argument size of {kernel}");
            params[param.offset as usize..][..arg.0.len()].copy_from_slice(&arg.0);
        }
        let print = |text: &str| self.printed.lock().unwrap().push_str(text);
        let dims = LaunchDims { grid: grid.into().0, block: block.into().0, dynamic_shared };
        let launch = Launch {
            limits: self.limits,
            pool: self.pool.as_ref(),
            schedule: self.schedule,
            checks: self.checks,
            profile: self.profile.as_deref(),
            operands: &self.operands,
            cluster: self.cluster,
            cooperative: self.cooperative.is_some(),
            multiprocessors: self.cooperative.unwrap_or(1),
            ..Launch::new(dims, &params, &print)
        };
        self.program.launch(&self.memory, entry, &launch)
    }

    /// Launches and expects success.
    pub(crate) fn run(
        &self,
        kernel: &str,
        grid: impl Into<Dim>,
        block: impl Into<Dim>,
        args: &[Arg],
    ) {
        self.launch(kernel, grid, block, args).unwrap_or_else(|e| panic!("{e}"));
    }
}

/// A grid or block size of one to three dimensions.
pub(crate) struct Dim(pub(crate) [u32; 3]);

impl From<u32> for Dim {
    fn from(x: u32) -> Self {
        Self([x, 1, 1])
    }
}

impl From<(u32, u32)> for Dim {
    fn from((x, y): (u32, u32)) -> Self {
        Self([x, y, 1])
    }
}

impl From<(u32, u32, u32)> for Dim {
    fn from((x, y, z): (u32, u32, u32)) -> Self {
        Self([x, y, z])
    }
}

/// Kernel arguments of mixed types.
#[macro_export]
macro_rules! args {
    ($($value:expr),* $(,)?) => { &[$($crate::host::Arg::from($value)),*] };
}
