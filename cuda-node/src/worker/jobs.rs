//! Stateless submits: runs one kernel after the other, on a device handle of its own. A *job* is a stateless submit on
//! its way to or in the worker.
//!
//! The thread of a [`JobServer`] reads jobs from a socket of their own and answers them in order, so their bytes never
//! wait in front of a session's commands. A [`JobDevice`] is opened at the first job, keeps the modules and the region,
//! and runs the kernel. Jobs and the session share one quota (`quota`).
//!
//! Each job on the socket is the client's [`Submit`], without token and image, and the raw bytes of its input. The
//! answer is [`JobDone`] and the raw bytes of the output. If the worker does not have the image, it first answers with
//! [`Status::NotFound`], and the supervisor sends the length of the image as a `u64` and its raw bytes.
//!
//! A job is not translated to commands for an engine (`engine`). The engine carries out what a client has prepared: the
//! client reads the kernels of a module, lays out and checks the arguments, and attributes output and faults to its
//! work. A submit leaves all of that to the node, and the supervisor must not read modules of tenants. So the worker is
//! the client: it uses a device by the handles of `cuda_core`, as every program does, and has no code of its own for
//! memory, launches and completion.
//!
//! - **Several programs.** The jobs of a lease run one after the other, in the order in which their inputs have arrived
//!   at the supervisor. They run beside the session, which has another handle of the device: its order, its printed
//!   text and, on a CPU device, its faults are separate. On a GPU, a fault ends both.
//! - **Limits.** The supervisor counts `submits_per_second`, and the host memory of inputs and outputs. The worker
//!   counts the region against the quota of the lease, together with the session's memory.
//! - **Modules.** The 16 modules that were used last stay loaded until the lease ends, also over a fault that the
//!   device recovers from. Of others the worker requests the image. A module that may have variables is loaded for each
//!   job again: the output of a job depends on the job alone, so its variables have their initial values. On a GPU, its
//!   unloading waits for the kernels that run.
//! - **Faults.** The job fails with the fault, and the device is reset for the next one. A device that cannot be reset,
//!   a GPU, ends the worker and its lease.
//! - **Ends.** A job whose client is gone runs to its end, and its output is dropped. The end of the lease kills the
//!   worker, and the submit fails with the cause of that end.

use std::{
    collections::VecDeque,
    fmt::Display,
    io::{self, Read, Write},
    mem,
    net::Shutdown,
    ops::Range,
    os::unix::net::UnixStream,
    sync::Arc,
    time::{Duration, Instant},
};

use cuda_core::{
    Access, Arguments, Device, DeviceBuffer, Error, FaultKind, LaunchConfig, Module, PinnedBuffer,
    Provider, Stream,
    internals::{recover_memory, text_prefix},
    protocol::{Status, module_info},
};
use cuda_lease::{
    internals::message,
    wire::{Hash, ImageKind, Submit, SubmitId, TEXT_LIMIT, put_frame},
};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::{
    engine::Memory,
    messages::{ReadError, read_message},
    quota::{Charge, Quota},
    sockets::Sockets,
};

message! {
    /// The end of the current job. The output follows.
    JobDone = 0x0791; {
        /// The status.
        status: Status,
        /// The error in words, or the text that the kernel printed.
        text: String,
        /// The number of bytes of the output.
        output_bytes: u64,
        /// The time from the submission of the input and the launch to their completion, in nanoseconds. 0 for a job
        /// that failed.
        device_nanos: u64,
        /// The device memory of the lease in use, in bytes.
        memory: u64,
    }
}

/// Takes a number of bytes of the lease for a buffer. Blocks until the device has them.
type TakeMemory = dyn Fn(u64) -> cuda_core::Result<Memory> + Send + Sync;

/// Serves the stateless submits of one lease.
pub(super) struct JobServer {
    pub(super) provider: Arc<dyn Provider>,
    pub(super) ordinal: u32,
    pub(super) quota: Arc<Quota>,
    /// Takes memory of the lease.
    pub(super) take_memory: Arc<TakeMemory>,
    /// Counts the code of modules.
    pub(super) code: Arc<Quota>,
    pub(super) sockets: Arc<Sockets>,
}

impl JobServer {
    /// Serves jobs until no supervisor sends any, or a fault makes the device unusable for this process.
    pub(super) fn run(self) {
        let mut connected = self.sockets.current();
        let (mut device, mut begun) = (None, Begun::default());
        loop {
            let socket = &connected.ends.jobs;
            let ended = self.serve(socket, &mut device, &mut begun);
            _ = socket.shutdown(Shutdown::Both);
            if let Err(error) = &ended {
                tracing::debug!(%error, "the jobs of a supervisor ended");
            }
            match ended {
                Err(ReadError::Io(_)) => match self.sockets.next(&connected) {
                    Some(next) => connected = next,
                    None => return,
                },
                _ => return,
            }
        }
    }

    /// Serves the jobs of one supervisor. A lease without submits needs no second handle of the device.
    fn serve(
        &self,
        socket: &UnixStream,
        device: &mut Option<JobDevice>,
        begun: &mut Begun,
    ) -> Result<(), ReadError> {
        begun.supervisors += 1;
        while device.as_ref().is_none_or(|device| !device.is_lost()) {
            let job = Submit::decode(&read_message(socket, Submit::OPCODE)?)?;
            let input = read_bytes(socket, job.input_bytes)?;
            if let Some(reason) = job.id.and_then(|id| begun.refusal(&id)) {
                self.answer(socket, Status::Disconnected, reason.into(), &[], Duration::ZERO)?;
                continue;
            }
            let has_module = device.as_ref().is_some_and(|device| device.has(&job.hash));
            let image = if has_module { Vec::new() } else { self.request_image(socket)? };
            // Without its image a job fails, and its client repeats it.
            if has_module || !image.is_empty() {
                begun.add(job.id);
            }
            let opened = match &mut *device {
                Some(device) => Ok(device),
                none => JobDevice::open(self).map(|opened| none.insert(opened)),
            };
            match opened.and_then(|device| device.run(&job, &image, &input)) {
                Ok(Done { text, output, device_time }) => {
                    let output = output.as_deref().unwrap_or_default();
                    self.answer(socket, Status::Ok, text, output, device_time)?;
                }
                Err(Failed { status, text, .. }) => {
                    self.answer(socket, status, text, &[], Duration::ZERO)?;
                }
            }
        }
        Ok(())
    }

    fn answer(
        &self,
        mut socket: &UnixStream,
        status: Status,
        text: String,
        output: &[u8],
        device_time: Duration,
    ) -> io::Result<()> {
        let done = JobDone {
            status,
            text,
            output_bytes: output.len() as u64,
            device_nanos: device_time.as_nanos().try_into().unwrap_or(u64::MAX),
            memory: self.quota.limit_and_used().1,
        };
        let mut out = Vec::new();
        put_frame(&mut out, JobDone::OPCODE, 0, 0, |out| done.encode(out));
        socket.write_all(&out)?;
        socket.write_all(output)
    }

    fn request_image(&self, mut socket: &UnixStream) -> io::Result<Vec<u8>> {
        self.answer(socket, Status::NotFound, String::new(), &[], Duration::ZERO)?;
        let mut length = [0; 8];
        socket.read_exact(&mut length)?;
        read_bytes(socket, u64::from_le_bytes(length))
    }
}

fn read_bytes(mut socket: &UnixStream, count: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; count as usize];
    socket.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// The answer to a job that has begun for an earlier supervisor.
const ANSWER_LOST: &str = "the submit had begun when the node restarted, so the answer is lost; the kernel may have run, so submit again only if it may run twice";

/// The answer to a job that has begun for this supervisor: jobs run one after the other, so it was answered.
const ANSWER_DROPPED: &str = "the submit was answered, and the node does not keep the answer any more; the kernel may have run, so submit again only if it may run twice";

/// The number of jobs whose ids are remembered.
const BEGUN: usize = 1024;

/// The ids of the latest jobs that have begun. A supervisor answers a repeated submit itself, but the next supervisor
/// does not know of it. So that it does not run twice, the worker remembers the ids.
#[derive(Default)]
struct Begun {
    /// With the number of the supervisor for which each has begun.
    ids: FxHashMap<SubmitId, u64>,
    /// The supervisors so far.
    supervisors: u64,
    /// The oldest is the first.
    order: VecDeque<SubmitId>,
}

impl Begun {
    /// The reason for which a job does not run, if its id is known.
    fn refusal(&self, id: &SubmitId) -> Option<&'static str> {
        let is_current = *self.ids.get(id)? == self.supervisors;
        Some(if is_current { ANSWER_DROPPED } else { ANSWER_LOST })
    }

    /// Adds the id of a job that has one, and forgets the oldest one beyond the limit.
    fn add(&mut self, id: Option<SubmitId>) {
        let Some(id) = id else { return };
        self.ids.insert(id, self.supervisors);
        self.order.push_back(id);
        if self.order.len() > BEGUN
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
    }
}

/// The modules that a lease keeps for its submits. The least recently used is dropped first.
const MODULES: usize = 16;

/// Whether kernels of an image may have variables that they write. For machine code, the names of the sections tell it:
/// `.nv.global` is that of variables without initial values, `.nv.global.init` of those with them. A fatbin may be
/// compressed, so it counts as one that has some.
fn may_have_variables(kind: ImageKind, image: &[u8]) -> bool {
    match kind {
        ImageKind::Ptx => {
            module_info(&String::from_utf8_lossy(image)).is_ok_and(|info| info.has_variables)
        }
        ImageKind::Cubin => {
            let section = b".nv.global";
            !image.starts_with(b"\x7fELF")
                || image.windows(section.len()).any(|bytes| bytes == section)
        }
    }
}

/// The result of a job.
struct Done {
    /// The text that the kernel printed.
    text: String,
    output: Option<PinnedBuffer<u8>>,
    /// The time from the submission of the input and the launch to their completion.
    device_time: Duration,
}

/// The failure of a job.
struct Failed {
    /// The step that failed.
    status: Status,
    /// The error in words.
    text: String,
    /// Whether the device fails every job until it is reset.
    is_sticky: bool,
}

impl Failed {
    fn new(status: Status, error: impl Display) -> Self {
        Self { status, text: error.to_string(), is_sticky: false }
    }
}

/// A module, with the memory of its code.
struct Loaded {
    hash: Hash,
    module: Module,
    may_have_variables: bool,
    _code: Charge,
}

/// A device that runs jobs.
struct JobDevice {
    device: Device,
    stream: Stream,
    take_memory: Arc<TakeMemory>,
    code: Arc<Quota>,
    /// The most recently used is the last.
    modules: Vec<Loaded>,
    /// The region of the latest jobs, until a job needs one of another size.
    region: Option<(DeviceBuffer<u8>, Memory)>,
    printed: Arc<Mutex<String>>,
    is_lost: bool,
}

impl JobDevice {
    /// # Errors
    /// The job that needs the device has failed.
    fn open(server: &JobServer) -> Result<Self, Failed> {
        let failed = |error| Failed::new(Status::Internal, error);
        let device = Device::open(&*server.provider, server.ordinal).map_err(failed)?;
        let printed: Arc<Mutex<String>> = Arc::default();
        let out = printed.clone();
        device.set_output(move |text| {
            let mut out = out.lock();
            let left = TEXT_LIMIT.saturating_sub(out.len());
            out.push_str(text_prefix(text, left));
        });
        let stream = device.new_stream().map_err(failed)?;
        let (modules, region) = (Vec::new(), None);
        let (take_memory, code) = (server.take_memory.clone(), server.code.clone());
        Ok(Self { device, stream, take_memory, code, modules, region, printed, is_lost: false })
    }

    /// Whether no job can run in this process any more.
    fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Whether the module of an image is loaded.
    fn has(&self, hash: &Hash) -> bool {
        self.modules.iter().any(|loaded| loaded.hash == *hash)
    }

    /// Runs a job. `image` is read if its module is not loaded. After a fault, resets the device. A device that cannot
    /// be reset is lost for this process.
    fn run(&mut self, job: &Submit, image: &[u8], input: &[u8]) -> Result<Done, Failed> {
        let ran = self.try_run(job, image, input);
        if ran.as_ref().is_err_and(|failed| failed.is_sticky) {
            self.is_lost = self.device.reset().is_err();
            self.release();
        }
        ran
    }

    /// Frees the region. It counts until the device has its free: that of a dropped buffer waits for the next
    /// submission, which may never come.
    fn release(&mut self) {
        if let Some((region, memory)) = self.region.take() {
            drop(region);
            recover_memory(&self.device);
            drop(memory);
        }
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
        if self.region.as_ref().is_some_and(|(region, _)| region.len() as u64 != bytes) {
            self.release();
        }
        let region = match self.region.take() {
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

    /// The module of a job. A module that may have variables is not kept.
    fn module(&mut self, job: &Submit, image: &[u8]) -> cuda_core::Result<Module> {
        let loaded = match self.modules.iter().position(|loaded| loaded.hash == job.hash) {
            Some(found) => self.modules.remove(found),
            None => self.load(job, image)?,
        };
        let module = loaded.module.clone();
        if !loaded.may_have_variables {
            self.modules.push(loaded);
        }
        Ok(module)
    }

    /// Loads a module. Drops the least recently used ones if there are too many, or too much code.
    fn load(&mut self, job: &Submit, image: &[u8]) -> cuda_core::Result<Loaded> {
        if self.modules.len() == MODULES {
            self.modules.remove(0);
        }
        let charge = loop {
            match self.code.charge(image.len() as u64) {
                Ok(charge) => break charge,
                Err(error) if self.modules.is_empty() => return Err(error),
                Err(_) => drop(self.modules.remove(0)),
            }
        };
        let module = match job.kind {
            ImageKind::Ptx => self.device.load_ptx_blocking(&String::from_utf8_lossy(image))?,
            // SAFETY: a malformed image harms this process alone, which serves the tenant that sent it (see the
            // rules of `worker`).
            ImageKind::Cubin => unsafe { self.device.load_cubin(image) }?,
        };
        let may_have_variables = may_have_variables(job.kind, image);
        Ok(Loaded { hash: job.hash, module, may_have_variables, _code: charge })
    }

    fn allocate(&self, bytes: u64) -> Result<(DeviceBuffer<u8>, Memory), Failed> {
        let failed = |error| match error {
            Error::Remote { status, detail, .. } => {
                let text =
                    format!("the region: {detail}; request a smaller region or a larger lease");
                Failed::new(status, text)
            }
            error => Failed::new(Status::CapacityExceeded, error),
        };
        let memory = (self.take_memory)(bytes).map_err(failed)?;
        let region = DeviceBuffer::uninitialized(&self.stream, bytes as usize).map_err(failed)?;
        Ok((region, memory))
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

#[cfg(test)]
mod tests {
    use std::thread;

    use cuda_core::internals::charged_bytes;
    use cuda_lease::wire::ImageKind;

    use super::*;
    use crate::process::WorkerEnds;

    const IOTA: &str = include_str!("../../../kernels/iota.ptx");

    /// The supervisor of a worker that serves jobs.
    struct Supervisor(UnixStream);

    /// The server of a lease of 1 MiB.
    fn server(sockets: Arc<Sockets>) -> JobServer {
        let quota = Arc::new(Quota::new("", 1 << 20));
        let of_lease = quota.clone();
        let take = move |bytes| Ok(Memory { of_lease: of_lease.charge(bytes)?, of_pool: None });
        JobServer {
            provider: Arc::new(cuda_cpu::CpuProvider::default()),
            ordinal: 0,
            quota,
            take_memory: Arc::new(take),
            code: Arc::new(Quota::new("", 1 << 20)),
            sockets,
        }
    }

    /// Runs `iota` of a PTX text for four values, with a region of `bytes` bytes.
    fn job(image: &str, bytes: u64, id: Option<SubmitId>) -> Submit {
        Submit {
            lease: 1,
            token: Default::default(),
            kind: ImageKind::Ptx,
            hash: *blake3::hash(image.as_bytes()).as_bytes(),
            image: None,
            kernel: "iota".into(),
            grid: [1; 3],
            block: [4, 1, 1],
            shared_bytes: 0,
            arguments: vec![4u32.to_le_bytes().to_vec().into()],
            region_bytes: 0,
            input_bytes: 0,
            output_offset: 0,
            max_output: bytes,
            trace: None,
            id,
        }
    }

    /// The answer to a job: whether the worker has requested the image, the end, and the output.
    type Answer = (bool, JobDone, Vec<u8>);

    /// The sockets of a worker of which only that of jobs is used.
    fn of_jobs(jobs: UnixStream) -> WorkerEnds {
        let unused = || UnixStream::pair().unwrap().0;
        WorkerEnds { commands: unused(), bulk: unused(), jobs }
    }

    impl Supervisor {
        fn start() -> Self {
            Self::start_with(false).0
        }

        /// With the sockets of the worker, which may outlive its supervisor.
        fn start_with(has_next: bool) -> (Self, Arc<Sockets>) {
            let (supervisor, socket) = UnixStream::pair().unwrap();
            let sockets = Arc::new(Sockets::new(of_jobs(socket), has_next));
            let server = server(sockets.clone());
            thread::spawn(move || server.run());
            (Self(supervisor), sockets)
        }

        fn run(&self, image: &str, bytes: u64) -> Answer {
            self.run_with_id(image, bytes, None)
        }

        fn run_with_id(&self, image: &str, bytes: u64, id: Option<SubmitId>) -> Answer {
            let mut socket = &self.0;
            let job = job(image, bytes, id);
            let mut out = Vec::new();
            put_frame(&mut out, Submit::OPCODE, 0, 0, |out| job.encode(out));
            socket.write_all(&out).unwrap();
            let done_of = |socket: &UnixStream| {
                JobDone::decode(&read_message(socket, JobDone::OPCODE).unwrap()).unwrap()
            };
            let mut done = done_of(socket);
            let is_requested = done.status == Status::NotFound;
            if is_requested {
                socket.write_all(&(image.len() as u64).to_le_bytes()).unwrap();
                socket.write_all(image.as_bytes()).unwrap();
                done = done_of(socket);
            }
            let mut output = vec![0; done.output_bytes as usize];
            socket.read_exact(&mut output).unwrap();
            (is_requested, done, output)
        }
    }

    fn numbers() -> Vec<u8> {
        [1f32, 2.0, 3.0, 4.0].map(f32::to_le_bytes).concat()
    }

    #[test]
    fn job_of_an_earlier_supervisor_does_not_run_again() {
        let (first, sockets) = Supervisor::start_with(true);
        let run = |supervisor: &Supervisor, id| {
            let (_, done, output) = supervisor.run_with_id(IOTA, 16, Some([id; 16]));
            (done.status, output)
        };
        assert_eq!(run(&first, 1), (Status::Ok, numbers()));
        drop(first);
        let (supervisor, socket) = UnixStream::pair().unwrap();
        sockets.replace(of_jobs(socket));
        let second = Supervisor(supervisor);
        assert_eq!(run(&second, 1), (Status::Disconnected, Vec::new()));
        assert_eq!(run(&second, 2), (Status::Ok, numbers()));
        sockets.close();
    }

    /// The supervisor keeps the answers of its latest submits only.
    #[test]
    fn repetition_of_a_job_of_the_same_supervisor_is_refused_with_its_reason() {
        let (first, sockets) = Supervisor::start_with(true);
        let repeated = |supervisor: &Supervisor| {
            let (_, done, _) = supervisor.run_with_id(IOTA, 16, Some([1; 16]));
            (done.status, done.text)
        };
        assert_eq!(repeated(&first), (Status::Ok, String::new()));
        let (status, text) = repeated(&first);
        assert_eq!(status, Status::Disconnected);
        assert!(text.contains("was answered") && !text.contains("restarted"), "{text}");
        drop(first);
        let (supervisor, socket) = UnixStream::pair().unwrap();
        sockets.replace(of_jobs(socket));
        let (status, text) = repeated(&Supervisor(supervisor));
        assert_eq!(status, Status::Disconnected);
        assert!(text.contains("when the node restarted"), "{text}");
        sockets.close();
    }

    #[test]
    fn image_is_requested_until_its_module_is_loaded() {
        let supervisor = Supervisor::start();
        for _ in 0..2 {
            let (is_requested, done, _) = supervisor.run("no PTX", 16);
            assert_eq!((is_requested, done.status), (true, Status::LoadFailed), "{}", done.text);
        }
        for is_first in [true, false, false] {
            let (is_requested, done, output) = supervisor.run(IOTA, 16);
            assert_eq!((is_requested, done.status, output), (is_first, Status::Ok, numbers()));
        }
    }

    /// Counts its runs in a variable, and writes the number to each of the four values.
    const COUNTER: &str = "
.version 7.0
.target sm_50
.address_size 64
.global .align 4 .u32 runs = 7;
.visible .entry iota(.param .u64 out, .param .u32 n)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd1, %rd1, %rd2;
    atom.global.add.u32 %r2, [runs], 4;
    and.b32 %r2, %r2, 0xfffffff0;
    st.global.u32 [%rd1], %r2;
    ret;
}
";

    #[test]
    fn variables_of_a_module_are_fresh_for_each_job() {
        let supervisor = Supervisor::start();
        for _ in 0..3 {
            let (is_requested, done, output) = supervisor.run(COUNTER, 16);
            assert_eq!(done.status, Status::Ok, "{}", done.text);
            // Four threads add 4 to 7, so each old value is below 32.
            let values = output.chunks(4).map(|value| value[0]).collect::<Vec<_>>();
            assert!(values.iter().all(|value| *value < 32), "{values:?}");
            assert!(is_requested, "the module is loaded again");
        }
        // Other modules stay loaded.
        supervisor.run(IOTA, 16);
        assert!(!supervisor.run(IOTA, 16).0);
    }

    #[test]
    fn machine_code_without_variables_is_known() {
        assert!(!may_have_variables(ImageKind::Cubin, b"\x7fELF .text.k\0.nv.constant0.k\0"));
        assert!(may_have_variables(ImageKind::Cubin, b"\x7fELF .text.k\0.nv.global.init\0"));
        // A fatbin may be compressed.
        assert!(may_have_variables(ImageKind::Cubin, b"\x50\xed\x55\xba"));
        assert!(!may_have_variables(ImageKind::Ptx, IOTA.as_bytes()));
        assert!(may_have_variables(ImageKind::Ptx, COUNTER.as_bytes()));
    }

    #[test]
    fn least_recently_used_module_is_dropped_first() {
        let supervisor = Supervisor::start();
        let image = |number: usize| format!("// {number}\n{IOTA}");
        let is_requested = |number| supervisor.run(&image(number), 16).0;
        assert!((0..16).all(is_requested));
        assert!(!is_requested(0) && is_requested(16));
        assert!(!is_requested(0) && is_requested(1));
    }

    /// Else a session has the memory of its lease beside a region that is never freed.
    #[test]
    fn region_counts_until_the_device_has_its_free() {
        let server = server(Arc::new(Sockets::new(of_jobs(UnixStream::pair().unwrap().0), false)));
        let mut device = JobDevice::open(&server).ok().unwrap();
        let mut run = |bytes| {
            let ended = device.run(&job(IOTA, bytes, None), IOTA.as_bytes(), &[]);
            let charged = server.quota.limit_and_used().1;
            assert_eq!(charged_bytes(&device.device), charged, "{bytes}");
            (ended.err().map(|failed| failed.status), charged)
        };
        assert_eq!(run(1 << 19), (None, 1 << 19));
        assert_eq!(run(1 << 21), (Some(Status::TooLarge), 0));
        assert_eq!(run(1 << 20), (None, 1 << 20));
        assert_eq!(run(12), (Some(Status::LaunchFailed), 0));
    }

    #[test]
    fn modules_outlive_a_fault() {
        let supervisor = Supervisor::start();
        supervisor.run(IOTA, 16);
        // The kernel writes four values of four bytes.
        let (_, done, output) = supervisor.run(IOTA, 12);
        assert_eq!((done.status, output.len()), (Status::LaunchFailed, 0), "{}", done.text);
        assert!(
            done.text.contains("the region for input and output has 12 bytes"),
            "{}",
            done.text
        );
        let (is_requested, done, output) = supervisor.run(IOTA, 16);
        assert_eq!((is_requested, done.status, output), (false, Status::Ok, numbers()));
    }
}
