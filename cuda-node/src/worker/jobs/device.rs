//! Runs jobs on a device: modules by hash, the region, the launch.

use std::{
    fmt::Display,
    mem,
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use cuda_core::{
    Access, Arguments, Device, DeviceBuffer, Error, FaultKind, LaunchConfig, Module, PinnedBuffer,
    Provider, Stream, internals::text_prefix, protocol::Status,
};
use cuda_lease::wire::{Hash, ImageKind, Submit, TEXT_LIMIT};
use parking_lot::Mutex;

use crate::worker::quota::{Charge, Quota};

/// The modules that a lease keeps for its submits. The least recently used is dropped first.
const MODULES: usize = 16;

/// The result of a job.
pub(super) struct Done {
    /// The text that the kernel printed.
    pub(super) text: String,
    pub(super) output: Option<PinnedBuffer<u8>>,
    /// The time from the submission of the input and the launch to their completion.
    pub(super) device_time: Duration,
}

/// The failure of a job.
pub(super) struct Failed {
    /// The step that failed.
    pub(super) status: Status,
    /// The error in words.
    pub(super) text: String,
    /// Whether the device fails every job until it is reset.
    is_sticky: bool,
}

impl Failed {
    fn new(status: Status, error: impl Display) -> Self {
        Self { status, text: error.to_string(), is_sticky: false }
    }
}

/// A device that runs jobs.
pub(super) struct JobDevice {
    device: Device,
    stream: Stream,
    quota: Arc<Quota>,
    /// The most recently used is the last.
    modules: Vec<(Hash, Module)>,
    /// The region of the latest jobs, until a job needs one of another size.
    region: Option<(DeviceBuffer<u8>, Charge)>,
    printed: Arc<Mutex<String>>,
    is_lost: bool,
}

impl JobDevice {
    /// # Errors
    /// The job that needs the device has failed.
    pub(super) fn open(
        provider: &dyn Provider,
        ordinal: u32,
        quota: &Arc<Quota>,
    ) -> Result<Self, Failed> {
        let failed = |error| Failed::new(Status::Internal, error);
        let device = Device::open(provider, ordinal).map_err(failed)?;
        let printed: Arc<Mutex<String>> = Arc::default();
        let out = printed.clone();
        device.set_output(move |text| {
            let mut out = out.lock();
            let left = TEXT_LIMIT.saturating_sub(out.len());
            out.push_str(text_prefix(text, left));
        });
        let stream = device.new_stream().map_err(failed)?;
        let (modules, region, quota) = (Vec::new(), None, quota.clone());
        Ok(Self { device, stream, quota, modules, region, printed, is_lost: false })
    }

    /// Whether no job can run in this process any more.
    pub(super) fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Whether the module of an image is loaded.
    pub(super) fn has(&self, hash: &Hash) -> bool {
        self.modules.iter().any(|(of, _)| of == hash)
    }

    /// Runs a job. `image` is read if its module is not loaded. After a fault, resets the device. A device that cannot
    /// be reset is lost for this process.
    pub(super) fn run(&mut self, job: &Submit, image: &[u8], input: &[u8]) -> Result<Done, Failed> {
        let ran = self.try_run(job, image, input);
        if ran.as_ref().is_err_and(|failed| failed.is_sticky) {
            self.region = None;
            self.is_lost = self.device.reset().is_err();
        }
        ran
    }

    fn try_run(&mut self, job: &Submit, image: &[u8], input: &[u8]) -> Result<Done, Failed> {
        let (bytes, output) = layout(job)?;
        let at = |status| {
            move |error: Error| {
                let is_sticky = error.is_sticky();
                Failed { is_sticky, ..Failed::new(status, describe(&error, bytes)) }
            }
        };
        let module = self.module(job, image).map_err(at(Status::LoadFailed))?;
        let region = match self.region.take().filter(|(region, _)| region.len() as u64 == bytes) {
            Some(region) => region,
            None => self.allocate(bytes)?,
        };
        let (region, _) = self.region.insert(region);
        let started = Instant::now();
        write(&self.stream, region, input).map_err(at(Status::WriteFailed))?;
        self.printed.lock().clear();
        let launched = launch(&module, &self.stream, region, job);
        let device_time = started.elapsed();
        launched.map_err(at(Status::LaunchFailed))?;
        let text = mem::take(&mut *self.printed.lock());
        let output = read(&self.stream, region, output).map_err(at(Status::ReadFailed))?;
        Ok(Done { text, output, device_time })
    }

    /// The module of a job.
    fn module(&mut self, job: &Submit, image: &[u8]) -> cuda_core::Result<Module> {
        let module = match self.modules.iter().position(|(hash, _)| *hash == job.hash) {
            Some(found) => self.modules.remove(found).1,
            None => match job.kind {
                ImageKind::Ptx => self.device.load_ptx_blocking(&String::from_utf8_lossy(image))?,
                // SAFETY: a malformed image harms this process alone, which serves the tenant that sent it (see the
                // rules of `worker`).
                ImageKind::Cubin => unsafe { self.device.load_cubin(image) }?,
            },
        };
        if self.modules.len() == MODULES {
            self.modules.remove(0);
        }
        self.modules.push((job.hash, module.clone()));
        Ok(module)
    }

    fn allocate(&self, bytes: u64) -> Result<(DeviceBuffer<u8>, Charge), Failed> {
        let failed = |error| match error {
            Error::Remote { status, detail, .. } => {
                let text =
                    format!("the region: {detail}; request a smaller region or a larger lease");
                Failed::new(status, text)
            }
            error => Failed::new(Status::CapacityExceeded, error),
        };
        let charge = self.quota.charge(bytes).map_err(failed)?;
        let region = DeviceBuffer::uninitialized(&self.stream, bytes as usize).map_err(failed)?;
        Ok((region, charge))
    }
}

/// The bytes of a job's region, and the range of its output.
fn layout(job: &Submit) -> Result<(u64, Range<usize>), Failed> {
    let Submit { region_bytes, input_bytes, output_offset, max_output, .. } = *job;
    let end = output_offset.saturating_add(max_output);
    let region = if region_bytes == 0 { input_bytes.max(end).max(1) } else { region_bytes };
    for (part, at, status) in [
        ("input ends", input_bytes, Status::WriteFailed),
        ("output begins", output_offset, Status::ReadFailed),
    ] {
        if at > region {
            let text = format!(
                "the {part} at byte {at}, the region has {region}; request a larger region"
            );
            return Err(Failed::new(status, text));
        }
    }
    let output = output_offset as usize..end.min(region) as usize;
    if output.len() as u64 > Submit::OUTPUT_LIMIT {
        let (bytes, limit) = (output.len(), Submit::OUTPUT_LIMIT);
        let text = format!("the output has {bytes} bytes, the limit is {limit}; request less");
        return Err(Failed::new(Status::ReadFailed, text));
    }
    Ok((region, output))
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

/// Launches the kernel with the region's pointer and the arguments behind it, and waits for its end. The arguments have
/// the alignments that the kernel declares.
fn launch(
    module: &Module,
    stream: &Stream,
    region: &DeviceBuffer<u8>,
    job: &Submit,
) -> cuda_core::Result<()> {
    let function = module.function(&job.kernel)?;
    let params = &function.info().params;
    let mut arguments = Arguments::new();
    match params.first() {
        Some(first) if first.size == 8 => arguments.buffer(region, Access::Write),
        Some(first) => arguments.refuse(format!(
            "parameter 0 (`{}`) has type {}; a submit passes the pointer of the region there",
            first.name, first.ty
        )),
        None => arguments
            .refuse("it has no parameters; a submit passes the pointer of the region first".into()),
    };
    let aligns = params.iter().skip(1).map(|param| param.align as usize);
    for (bytes, align) in job.arguments.iter().zip(aligns.chain(std::iter::repeat(1))) {
        arguments.raw(bytes, align);
    }
    let ([gx, gy, gz], [x, y, z]) = (job.grid, job.block);
    let config = LaunchConfig::new(gx, x).grid(gx, gy, gz).block(x, y, z);
    // SAFETY: all memory of the device belongs to the lease that sent the kernel.
    unsafe { function.launch(stream, config.shared_bytes(job.shared_bytes), &arguments) }?;
    stream.synchronize()
}

fn read(
    stream: &Stream,
    region: &DeviceBuffer<u8>,
    range: Range<usize>,
) -> cuda_core::Result<Option<PinnedBuffer<u8>>> {
    if range.is_empty() {
        return Ok(None);
    }
    let host = stream.device().pinned_uninitialized(range.len())?;
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
