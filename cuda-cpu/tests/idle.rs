//! An idle device takes no processor time. This test measures its whole process, so it has a process of its own.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests

use std::{
    sync::{Arc, mpsc::channel},
    thread::sleep,
    time::Duration,
};

use cuda_core::{
    LaunchConfig, NoticeSink, Provider, Ticket,
    protocol::{
        Answer, Control, FunctionId, Launch, ModuleId, ModuleImage, Notice, Request, StreamId,
        Submission, Work,
    },
};
use cuda_cpu::{CpuOptions, CpuProvider};

const PTX: &str = "
.version 7.0
.target sm_70
.address_size 64
.visible .entry k() { ret; }
";
const STREAMS: u64 = 4;

struct Ignore;

// SAFETY: forwards nothing.
unsafe impl NoticeSink for Ignore {
    unsafe fn notice(&self, _: Notice) {}
}

/// Returns the processor time of all threads of this process, in hundredths of a second.
fn used() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let (_, after_name) = stat.rsplit_once(')').unwrap();
    let field = |n: usize| after_name.split_whitespace().nth(n).unwrap().parse::<u64>().unwrap();
    field(11) + field(12)
}

#[test]
fn idle_device_takes_no_processor_time() {
    let device = CpuProvider::new(CpuOptions::default()).open(0, Arc::new(Ignore)).unwrap();
    // SAFETY: the controls give up no objects.
    let control = |control| unsafe { device.control(control) }.unwrap();
    let image = ModuleImage::Ptx(PTX.into());
    control(Control::LoadModule { id: ModuleId(1), image });
    let (send, loaded) = channel();
    let answer = Answer::new(move |reply| send.send(reply).unwrap());
    device.request(Request::Loaded { module: ModuleId(1) }, answer);
    loaded.recv().unwrap().unwrap();
    // Many blocks, so that every thread runs some.
    let tickets = (1..=STREAMS).map(|id| Ticket { stream: StreamId(id), number: 1 });
    for ticket in tickets.clone() {
        control(Control::CreateStream { id: ticket.stream, priority: 0 });
        let work = Work::Launch(Launch {
            function: FunctionId { module: ModuleId(1), entry: 0 },
            config: LaunchConfig::new(50_000, 32),
            params: vec![].into(),
            relocations: vec![].into(),
            variables: Default::default(),
        });
        // SAFETY: the kernel does nothing.
        unsafe { device.submit(&Submission { ticket, after: &[], work: &work }, &[]) }.unwrap();
    }
    // SAFETY: no thread retires the streams.
    tickets.for_each(|ticket| unsafe { device.block_until(ticket) }.unwrap());
    assert!(used() > 0, "the clock does not count");
    // The device's threads yield briefly before they sleep, and its helper thread lingers.
    sleep(Duration::from_millis(700));
    let before = used();
    sleep(Duration::from_secs(2));
    assert!(used() - before <= 1, "{} ms in 2 s", 10 * (used() - before));
}
