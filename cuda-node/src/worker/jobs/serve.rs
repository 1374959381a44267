//! The thread of a worker that serves jobs.

use std::{
    io::{self, Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    sync::Arc,
    time::Duration,
};

use cuda_core::{Provider, protocol::Status};
use cuda_lease::wire::{Submit, put_frame};

use super::{
    device::{Done, Failed, JobDevice},
    messages::JobDone,
};
use crate::worker::{
    quota::Quota,
    sockets::{ReadError, read_message},
};

/// Serves the stateless submits of one lease.
pub(in crate::worker) struct JobServer {
    pub(in crate::worker) provider: Arc<dyn Provider>,
    pub(in crate::worker) ordinal: u32,
    pub(in crate::worker) quota: Arc<Quota>,
    pub(in crate::worker) socket: UnixStream,
}

impl JobServer {
    /// Serves jobs until the supervisor closes the socket, or a fault makes the device unusable for this process.
    pub(in crate::worker) fn run(self) {
        if let Err(error) = self.serve() {
            tracing::debug!(%error, "the jobs of a lease ended");
        }
        _ = self.socket.shutdown(Shutdown::Both);
    }

    fn serve(&self) -> Result<(), ReadError> {
        // A lease without submits needs no second handle of the device.
        let mut device: Option<JobDevice> = None;
        while device.as_ref().is_none_or(|device| !device.is_lost()) {
            let job = Submit::decode(&read_message(&self.socket, Submit::OPCODE)?)?;
            let input = self.read_bytes(job.input_bytes)?;
            let has_module = device.as_ref().is_some_and(|device| device.has(&job.hash));
            let image = if has_module { Vec::new() } else { self.request_image()? };
            let opened = match &mut device {
                Some(device) => Ok(device),
                none => JobDevice::open(&*self.provider, self.ordinal, &self.quota)
                    .map(|opened| none.insert(opened)),
            };
            match opened.and_then(|device| device.run(&job, &image, &input)) {
                Ok(Done { text, output, device_time }) => {
                    let output = output.as_deref().unwrap_or_default();
                    self.answer(Status::Ok, text, output, device_time)?;
                }
                Err(Failed { status, text, .. }) => {
                    self.answer(status, text, &[], Duration::ZERO)?;
                }
            }
        }
        Ok(())
    }

    fn answer(
        &self,
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
        (&self.socket).write_all(&out)?;
        (&self.socket).write_all(output)
    }

    fn request_image(&self) -> io::Result<Vec<u8>> {
        self.answer(Status::NotFound, String::new(), &[], Duration::ZERO)?;
        let mut length = [0; 8];
        (&self.socket).read_exact(&mut length)?;
        self.read_bytes(u64::from_le_bytes(length))
    }

    fn read_bytes(&self, count: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; count as usize];
        (&self.socket).read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use cuda_lease::wire::ImageKind;

    use super::*;

    const IOTA: &str = include_str!("../../../../kernels/iota.ptx");

    /// The supervisor of a worker that serves jobs.
    struct Supervisor(UnixStream);

    /// The answer to a job: whether the worker has requested the image, the end, and the output.
    type Answer = (bool, JobDone, Vec<u8>);

    impl Supervisor {
        fn start() -> Self {
            let (supervisor, socket) = UnixStream::pair().unwrap();
            let provider = Arc::new(cuda_cpu::CpuProvider::default());
            let quota = Arc::new(Quota::new("", 1 << 20));
            let server = JobServer { provider, ordinal: 0, quota, socket };
            thread::spawn(move || server.run());
            Self(supervisor)
        }

        /// Runs `iota` of a PTX text for four values, with a region of `bytes` bytes.
        fn run(&self, image: &str, bytes: u64) -> Answer {
            let mut socket = &self.0;
            let job = Submit {
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
            };
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

    #[test]
    fn least_recently_used_module_is_dropped_first() {
        let supervisor = Supervisor::start();
        let image = |number: usize| format!("// {number}\n{IOTA}");
        let is_requested = |number| supervisor.run(&image(number), 16).0;
        assert!((0..16).all(is_requested));
        assert!(!is_requested(0) && is_requested(16));
        assert!(!is_requested(0) && is_requested(1));
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
