//! Runs jobs on a device: modules by hash, the region, the launch.

use std::{
    fmt::Display,
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

use cuda_core::{
    Access, Arguments, Device, DeviceBuffer, Error, FaultKind, Function, LaunchConfig, Module,
    PinnedBuffer, Provider, Stream, internals::text_prefix, protocol::Status,
};
use cuda_lease::wire::{Hash, ImageKind, Submit, TEXT_LIMIT};
use parking_lot::Mutex;

use crate::worker::quota::{Charge, Quota};

/// The modules that a lease keeps for its submits. The least recently used is dropped first.
const MODULES: usize = 16;

/// The result of a job.
pub(super) struct Done {
    pub(super) status: Status,
    pub(super) text: String,
    output: Option<PinnedBuffer<u8>>,
}

impl Done {
    fn failed(status: Status, error: impl Display) -> Self {
        Self { status, text: error.to_string(), output: None }
    }

    pub(super) fn output(&self) -> &[u8] {
        self.output.as_deref().unwrap_or_default()
    }
}

/// A device that runs jobs. It is opened by the first one.
pub(super) struct Runner {
    provider: Arc<dyn Provider>,
    ordinal: u32,
    quota: Arc<Quota>,
    opened: Option<Opened>,
    is_lost: bool,
}

struct Opened {
    device: Device,
    stream: Stream,
    /// The most recently used is the last.
    modules: Vec<(Hash, Module)>,
    region: Option<Region>,
    printed: Arc<Mutex<String>>,
}

/// The region of a lease, until a job needs one of another size.
struct Region {
    buffer: DeviceBuffer<u8>,
    bytes: u64,
    _charge: Charge,
}

/// The places of a job in its region.
struct Layout {
    region: u64,
    output: std::ops::Range<usize>,
}

impl Layout {
    fn of(job: &Submit) -> Result<Self, Done> {
        let Submit { region_bytes, input_bytes, output_offset, max_output, .. } = *job;
        let end = output_offset.saturating_add(max_output);
        let region = match region_bytes {
            0 => input_bytes.max(end).max(1),
            bytes => bytes,
        };
        if input_bytes > region {
            let text = format!(
                "the input has {input_bytes} bytes, the region {region}; request a larger region"
            );
            return Err(Done::failed(Status::WriteFailed, text));
        }
        if output_offset > region {
            let text = format!(
                "the output begins at byte {output_offset}, the region has {region}; request a larger region"
            );
            return Err(Done::failed(Status::ReadFailed, text));
        }
        let output = output_offset as usize..end.min(region) as usize;
        if output.len() as u64 > Submit::OUTPUT_LIMIT {
            let (bytes, limit) = (output.len(), Submit::OUTPUT_LIMIT);
            let text = format!("the output has {bytes} bytes, the limit is {limit}; request less");
            return Err(Done::failed(Status::ReadFailed, text));
        }
        Ok(Self { region, output })
    }
}

impl Runner {
    pub(super) fn new(provider: Arc<dyn Provider>, ordinal: u32, quota: Arc<Quota>) -> Self {
        Self { provider, ordinal, quota, opened: None, is_lost: false }
    }

    /// Whether no job can run in this process any more.
    pub(super) fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Whether the module of an image is loaded.
    pub(super) fn has(&self, hash: &Hash) -> bool {
        self.opened.as_ref().is_some_and(|it| it.modules.iter().any(|(of, _)| of == hash))
    }

    /// Loads an image.
    ///
    /// # Errors
    /// The job that needs it has failed.
    pub(super) fn load(&mut self, kind: ImageKind, hash: Hash, image: &[u8]) -> Result<(), Done> {
        let opened = self.open()?;
        let loaded = match kind {
            ImageKind::Ptx => opened.device.load_ptx_blocking(&String::from_utf8_lossy(image)),
            // SAFETY: a malformed image harms this process alone, which serves the tenant that sent it (see the rules
            // of `worker`).
            ImageKind::Cubin => unsafe { opened.device.load_cubin(image) },
        };
        match loaded {
            Ok(module) => {
                if opened.modules.len() == MODULES {
                    opened.modules.remove(0);
                }
                opened.modules.push((hash, module));
                Ok(())
            }
            Err(error) => {
                let done = Done::failed(Status::LoadFailed, &error);
                self.recover(&error);
                Err(done)
            }
        }
    }

    /// Runs a job whose image was loaded. Returns the time from the submission of its input and its launch to their
    /// completion too; 0 for a job that failed.
    pub(super) fn run(&mut self, job: &Submit, input: &[u8]) -> (Done, Duration) {
        match self.try_run(job, input) {
            Ok(done) => done,
            Err((done, error)) => {
                if let Some(error) = error {
                    self.recover(&error);
                }
                (done, Duration::ZERO)
            }
        }
    }

    fn open(&mut self) -> Result<&mut Opened, Done> {
        if self.opened.is_none() {
            let opened = Opened::new(&*self.provider, self.ordinal);
            let failed = |error| Done::failed(Status::Internal, error);
            return Ok(self.opened.insert(opened.map_err(failed)?));
        }
        self.opened.as_mut().ok_or_else(|| Done::failed(Status::Internal, "the device is closed"))
    }

    fn try_run(
        &mut self,
        job: &Submit,
        input: &[u8],
    ) -> Result<(Done, Duration), (Done, Option<Error>)> {
        let invalid = |done| (done, None);
        let layout = Layout::of(job).map_err(invalid)?;
        let quota = self.quota.clone();
        let opened = self.open().map_err(invalid)?;
        let bytes = layout.region;
        let at = |status| {
            move |error: Error| (Done::failed(status, describe(&error, bytes)), Some(error))
        };
        let function = opened.function(job).map_err(at(Status::LaunchFailed))?;
        let values = values(&function, &job.arguments).map_err(at(Status::LaunchFailed))?;
        let mut region = opened.take_region(&quota, layout.region).map_err(invalid)?;
        let (stream, buffer) = (&opened.stream, &mut region.buffer);
        let started = Instant::now();
        write(stream, buffer, input).map_err(at(Status::WriteFailed))?;
        opened.printed.lock().clear();
        let config = config_of(job.grid, job.block, job.shared_bytes);
        let launched = launch(&function, stream, config, buffer, values);
        let device = started.elapsed();
        launched.map_err(at(Status::LaunchFailed))?;
        let text = mem::take(&mut *opened.printed.lock());
        let output = read(&opened.device, stream, buffer, layout.output);
        let output = output.map_err(at(Status::ReadFailed))?;
        opened.region = Some(region);
        Ok((Done { status: Status::Ok, text, output }, device))
    }

    /// Resets the device after a fault. A device that cannot be reset is lost for this process.
    fn recover(&mut self, error: &Error) {
        if !error.is_sticky() {
            return;
        }
        if let Some(opened) = &mut self.opened {
            opened.region = None;
            self.is_lost = opened.device.reset().is_err();
        }
    }
}

impl Opened {
    fn new(provider: &dyn Provider, ordinal: u32) -> cuda_core::Result<Self> {
        let device = Device::open(provider, ordinal)?;
        let printed: Arc<Mutex<String>> = Arc::default();
        let out = printed.clone();
        device.set_output(move |text| {
            let mut out = out.lock();
            let left = TEXT_LIMIT.saturating_sub(out.len());
            out.push_str(text_prefix(text, left));
        });
        let stream = device.new_stream()?;
        Ok(Self { device, stream, modules: Vec::new(), region: None, printed })
    }

    fn function(&mut self, job: &Submit) -> cuda_core::Result<Function> {
        let missing = || Error::host("the module of a submit", &"it is not loaded");
        let found = self.modules.iter().position(|(hash, _)| *hash == job.hash);
        let module = self.modules.remove(found.ok_or_else(missing)?);
        let function = module.1.function(&job.kernel);
        self.modules.push(module);
        function
    }

    /// Takes the region if it has `bytes` bytes. Otherwise frees it and allocates another one.
    fn take_region(&mut self, quota: &Arc<Quota>, bytes: u64) -> Result<Region, Done> {
        match self.region.take().filter(|it| it.bytes == bytes) {
            Some(region) => Ok(region),
            None => self.allocate(quota, bytes),
        }
    }

    fn allocate(&self, quota: &Arc<Quota>, bytes: u64) -> Result<Region, Done> {
        let full = |(limit, free): (u64, u64)| {
            let status = Status::of_shortage(bytes, limit);
            let text = format!(
                "the region has {bytes} bytes, {free} of the lease's {limit} bytes are free; request a smaller region or a larger lease"
            );
            Done::failed(status, text)
        };
        let charge = quota.charge(bytes).map_err(full)?;
        let buffer = DeviceBuffer::uninitialized(&self.stream, bytes as usize);
        let buffer = buffer.map_err(|error| Done::failed(Status::CapacityExceeded, error))?;
        Ok(Region { buffer, bytes, _charge: charge })
    }
}

/// The arguments behind the region's pointer, with the alignments that the kernel declares.
fn values<'a>(
    function: &Function,
    arguments: &'a [bytes::Bytes],
) -> cuda_core::Result<Vec<(&'a [u8], usize)>> {
    let info = function.info();
    let wrong = |detail| Error::Arguments { kernel: info.name.clone(), detail };
    match info.params.first() {
        Some(first) if first.size == 8 => {}
        Some(first) => {
            let (name, ty) = (&first.name, first.ty);
            return Err(wrong(format!(
                "parameter 0 (`{name}`) has type {ty}; a submit passes the pointer of the region there"
            )));
        }
        None => {
            let detail = "it has no parameters; a submit passes the pointer of the region first";
            return Err(wrong(detail.into()));
        }
    }
    let behind = info.params.iter().skip(1).map(|it| it.align as usize);
    let aligns = behind.chain(std::iter::repeat(1));
    Ok(arguments.iter().map(|it| &it[..]).zip(aligns).collect())
}

/// Writes `input` to the start of the region, and zeros behind it.
fn write(stream: &Stream, region: &mut DeviceBuffer<u8>, input: &[u8]) -> cuda_core::Result<()> {
    if input.len() < region.len() {
        region.slice_mut(input.len()..)?.fill(stream, 0)?;
    }
    if !input.is_empty() {
        let host = PinnedBuffer::copied_from(stream.device(), input)?;
        region.upload(stream, 0, host)?;
    }
    Ok(())
}

/// Launches the kernel, and waits for its end.
fn launch(
    function: &Function,
    stream: &Stream,
    config: LaunchConfig,
    region: &DeviceBuffer<u8>,
    values: Vec<(&[u8], usize)>,
) -> cuda_core::Result<()> {
    let mut arguments = Arguments::new();
    arguments.buffer(region, Access::Write);
    for (bytes, align) in values {
        arguments.raw(bytes, align);
    }
    // SAFETY: all memory of the device belongs to the lease that sent the kernel (see the rules of `worker`).
    unsafe { function.launch(stream, config, &arguments) }?;
    stream.synchronize()
}

fn read(
    device: &Device,
    stream: &Stream,
    region: &DeviceBuffer<u8>,
    range: std::ops::Range<usize>,
) -> cuda_core::Result<Option<PinnedBuffer<u8>>> {
    if range.is_empty() {
        return Ok(None);
    }
    let host = device.pinned_uninitialized(range.len())?;
    region.download(stream, range, host)?.wait().map(Some)
}

/// The error of a job in words. Advice of `Error::Fault` about resetting does not apply here.
fn describe(error: &Error, region: u64) -> String {
    match error {
        Error::Fault(fault) if fault.kind == FaultKind::IllegalAddress => {
            let unit = if region == 1 { "byte" } else { "bytes" };
            format!(
                "the kernel faulted: {fault}; the region for input and output has {region} {unit}: request a larger \
                 output or region"
            )
        }
        Error::Fault(fault) => format!("the kernel faulted: {fault}"),
        error => error.to_string(),
    }
}

fn config_of([gx, gy, gz]: [u32; 3], [x, y, z]: [u32; 3], shared_bytes: u32) -> LaunchConfig {
    LaunchConfig::new(gx, x).grid(gx, gy, gz).block(x, y, z).shared_bytes(shared_bytes)
}
