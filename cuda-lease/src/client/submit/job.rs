//! The description of a stateless submit.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use cuda_core::{Element, LaunchConfig};

use crate::wire::{Hash, ImageKind, TraceContext};

/// A kernel with its launch shape, its arguments and its input: all that a [`Submit`](super::Submit) sends.
///
/// The kernel's first parameter is a pointer to the *region*, device memory of the lease. The other parameters are the
/// arguments of the job, in order. Before the launch, the node writes the input to the start of the region and zeros to
/// the rest. After the launch, it reads the output from the region. The output therefore depends only on the job, and a
/// job can be repeated.
#[derive(Debug, Clone)]
#[must_use = "a job does nothing until it is launched"]
pub struct Job {
    pub(super) image: Bytes,
    pub(super) hash: Hash,
    pub(super) kind: ImageKind,
    pub(super) kernel: String,
    pub(super) config: LaunchConfig,
    pub(super) arguments: Vec<Bytes>,
    pub(super) region_bytes: u64,
    pub(super) input: Bytes,
    pub(super) output_offset: u64,
    pub(super) max_output: u64,
    pub(super) progress: Option<Progress>,
    pub(super) trace: Option<TraceContext>,
}

/// The callback that counts the sent bytes of an input.
#[derive(Clone)]
pub(super) struct Progress(Arc<dyn Fn(u64) + Send + Sync>);

impl Progress {
    pub(super) fn report(&self, sent: u64) {
        (self.0)(sent);
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Progress")
    }
}

impl Job {
    /// Creates a job of a kernel of a PTX text: one thread, no arguments, no input, no output.
    pub fn new(kernel: impl Into<String>, ptx: impl Into<String>) -> Self {
        Self::with_image(kernel.into(), ImageKind::Ptx, ptx.into().into())
    }

    /// Creates a job of a kernel of a cubin or a fatbin.
    pub fn from_cubin(kernel: impl Into<String>, image: impl Into<Bytes>) -> Self {
        Self::with_image(kernel.into(), ImageKind::Cubin, image.into())
    }

    fn with_image(kernel: String, kind: ImageKind, image: Bytes) -> Self {
        Self {
            hash: *blake3::hash(&image).as_bytes(),
            image,
            kind,
            kernel,
            config: LaunchConfig::new(1, 1),
            arguments: Vec::new(),
            region_bytes: 0,
            input: Bytes::new(),
            output_offset: 0,
            max_output: 0,
            progress: None,
            trace: None,
        }
    }

    /// Sets the number of blocks of a one-dimensional launch. The default is 1.
    pub fn grid(mut self, blocks: u32) -> Self {
        self.config.grid = [blocks, 1, 1];
        self
    }

    /// Sets the number of threads of a block of a one-dimensional launch. The default is 1.
    pub fn block(mut self, threads: u32) -> Self {
        self.config.block = [threads, 1, 1];
        self
    }

    /// Sets the whole shape of the launch.
    pub fn config(mut self, config: LaunchConfig) -> Self {
        self.config = config;
        self
    }

    /// Sets the dynamic shared memory of a block in bytes.
    pub fn shared_bytes(mut self, bytes: u32) -> Self {
        self.config.shared_bytes = bytes;
        self
    }

    /// Adds an argument behind the pointer of the region.
    pub fn arg<T: Element>(self, value: &T) -> Self {
        self.arg_bytes(bytemuck::bytes_of(value))
    }

    /// Adds the bytes of an argument, such as a struct that is passed by value.
    pub fn arg_bytes(mut self, bytes: &[u8]) -> Self {
        self.arguments.push(Bytes::copy_from_slice(bytes));
        self
    }

    /// Sets the values that the start of the region has before the launch. At most 64 MiB.
    pub fn input<T: Element>(self, values: &[T]) -> Self {
        self.input_bytes(Bytes::copy_from_slice(bytemuck::cast_slice(values)))
    }

    /// As [`input`](Self::input), for bytes, which are not copied.
    pub fn input_bytes(mut self, bytes: impl Into<Bytes>) -> Self {
        self.input = bytes.into();
        self
    }

    /// Sets the size of the region in bytes. The default, 0, is the smallest region that holds input and output. A kernel
    /// that needs more memory of its own needs a larger one, up to the quota of the lease minus the memory of its session.
    pub fn region_bytes(mut self, bytes: u64) -> Self {
        self.region_bytes = bytes;
        self
    }

    /// Sets the offset of the output in the region, in bytes. The default is 0.
    pub fn output_offset(mut self, bytes: u64) -> Self {
        self.output_offset = bytes;
        self
    }

    /// Sets the maximum number of bytes of the output, at most 64 MiB. The output is shorter if the region ends before.
    /// The default is 0: no output.
    pub fn max_output(mut self, bytes: u64) -> Self {
        self.max_output = bytes;
        self
    }

    /// Sets a callback that is called with the number of bytes of the input that were sent so far. It runs on the
    /// thread of the connection and must return quickly: it delays the renewal and all other traffic of the lease. If
    /// it panics, the submit fails. If the job is sent again, the number starts at 0 again.
    pub fn on_sent(mut self, progress: impl Fn(u64) + Send + Sync + 'static) -> Self {
        self.progress = Some(Progress(Arc::new(progress)));
        self
    }

    /// Sets the span that the submit belongs to, in a trace of the program. Each submit gets a span of its own in that
    /// trace. By default it belongs to the span of its lease.
    pub fn trace_parent(mut self, parent: TraceContext) -> Self {
        self.trace = Some(parent);
        self
    }
}
