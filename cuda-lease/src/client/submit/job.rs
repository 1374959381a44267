//! The description of a stateless submit.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use cuda_core::{Element, LaunchConfig};

use crate::wire::{self, ImageKind, TraceContext};

/// A kernel with its launch shape, its arguments and its input, as a [`Submit`](super::Submit) sends them.
///
/// The kernel's first parameter is a pointer to the *region*, device memory of the lease. The other parameters are the
/// arguments of the job, in order. Before the launch, the node writes the input to the start of the region and zeros to
/// the rest. After the launch, it reads the output from the region. The output therefore depends only on the job, and a
/// job can be repeated.
///
/// `L` is the lease that runs the job. A job without one can be built before there is a lease, and cloned for several.
#[derive(Clone)]
#[must_use = "a job does nothing until it is launched"]
pub struct Job<L = ()> {
    pub(super) payload: Payload,
    pub(super) lease: L,
}

/// The request of a job, and the bytes that travel beside it.
#[derive(Clone)]
pub(super) struct Payload {
    /// The request, without the image and the number of input bytes. It has no lease until the job has one.
    pub(super) request: wire::Submit,
    pub(super) image: Bytes,
    pub(super) input: Bytes,
    /// The callback that counts the sent bytes of the input.
    pub(super) progress: Option<Arc<dyn Fn(u64) + Send + Sync>>,
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
        let request = wire::Submit {
            lease: 0,
            token: Bytes::new(),
            kind,
            hash: *blake3::hash(&image).as_bytes(),
            image: None,
            kernel,
            grid: [1; 3],
            block: [1; 3],
            shared_bytes: 0,
            arguments: Vec::new(),
            region_bytes: 0,
            input_bytes: 0,
            output_offset: 0,
            max_output: 0,
            trace: None,
        };
        Self { payload: Payload { request, image, input: Bytes::new(), progress: None }, lease: () }
    }
}

impl<L> Job<L> {
    /// Sets the number of blocks of a one-dimensional launch. The default is 1.
    pub fn grid(mut self, blocks: u32) -> Self {
        self.payload.request.grid = [blocks, 1, 1];
        self
    }

    /// Sets the number of threads of a block of a one-dimensional launch. The default is 1.
    pub fn block(mut self, threads: u32) -> Self {
        self.payload.request.block = [threads, 1, 1];
        self
    }

    /// Sets the whole shape of the launch.
    pub fn config(mut self, config: LaunchConfig) -> Self {
        let request = &mut self.payload.request;
        (request.grid, request.block) = (config.grid, config.block);
        self.shared_bytes(config.shared_bytes)
    }

    /// Sets the dynamic shared memory of a block in bytes.
    pub fn shared_bytes(mut self, bytes: u32) -> Self {
        self.payload.request.shared_bytes = bytes;
        self
    }

    /// Adds an argument behind the pointer of the region.
    pub fn arg<T: Element>(self, value: &T) -> Self {
        self.arg_bytes(bytemuck::bytes_of(value))
    }

    /// Adds the bytes of an argument, such as a struct that is passed by value.
    pub fn arg_bytes(mut self, bytes: &[u8]) -> Self {
        self.payload.request.arguments.push(Bytes::copy_from_slice(bytes));
        self
    }

    /// Sets the input: the values that the node writes to the start of the region before the launch. At most 64 MiB.
    pub fn input<T: Element>(self, values: &[T]) -> Self {
        self.input_bytes(Bytes::copy_from_slice(bytemuck::cast_slice(values)))
    }

    /// Sets the input as [`input`](Self::input) does, from bytes, without a copy.
    pub fn input_bytes(mut self, bytes: impl Into<Bytes>) -> Self {
        self.payload.input = bytes.into();
        self
    }

    /// Returns the number of bytes of the input.
    pub fn input_len(&self) -> usize {
        self.payload.input.len()
    }

    /// Sets the size of the region in bytes. The default, 0, is the smallest region that holds input and output. A
    /// kernel that needs more memory of its own needs a larger one, up to the quota of the lease minus the memory of
    /// its session.
    pub fn region_bytes(mut self, bytes: u64) -> Self {
        self.payload.request.region_bytes = bytes;
        self
    }

    /// Sets the offset of the output in the region, in bytes. The default is 0.
    pub fn output_offset(mut self, bytes: u64) -> Self {
        self.payload.request.output_offset = bytes;
        self
    }

    /// Sets the maximum number of bytes of the output, at most 64 MiB. The output is shorter if the region ends before.
    /// The default is 0: no output.
    pub fn max_output(mut self, bytes: u64) -> Self {
        self.payload.request.max_output = bytes;
        self
    }

    /// Sets a callback that is called with the number of bytes of the input that were sent so far. It runs on the
    /// thread of the connection and must return quickly: it delays the renewal and all other traffic of the lease. If
    /// the callback panics, the submit fails. If the client sends the job again, the number starts at 0 again.
    pub fn on_sent(mut self, progress: impl Fn(u64) + Send + Sync + 'static) -> Self {
        self.payload.progress = Some(Arc::new(progress));
        self
    }

    /// Sets the span that the submit belongs to, in a trace of the program. Each submit gets a span of its own in that
    /// trace. By default the submit belongs to the span of its lease.
    pub fn trace_parent(mut self, parent: TraceContext) -> Self {
        self.payload.request.trace = Some(parent);
        self
    }
}

impl<L> fmt::Debug for Job<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wire::Submit { lease, kernel, grid, block, arguments, .. } = &self.payload.request;
        // The token is a secret.
        f.debug_struct("Job")
            .field("lease", lease)
            .field("kernel", kernel)
            .field("grid", grid)
            .field("block", block)
            .field("arguments", arguments)
            .finish_non_exhaustive()
    }
}
