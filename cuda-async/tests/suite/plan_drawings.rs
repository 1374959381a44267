//! Drawings of plans: text, DOT, Mermaid and SVG.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use cuda_async::{
    BoxedOp, Device, DeviceOp,
    cuda_cpu::CpuProvider,
    graph::{Plan, PlanExt},
    memory::{copy, fill},
    prelude::*,
};

fn device() -> Device {
    Device::open(&CpuProvider::default(), 0).unwrap()
}

/// The program of the book's picture: two inputs are prepared at the same time, and then used together.
fn fork() -> Plan {
    let prepared = |name, value| zeros::<u8>(1 << 20).then(move |x| fill(x, value)).named(name);
    let both = zip!(prepared("keys", 1), prepared("values", 2)).named("inputs");
    let op = both.then(|(keys, values)| copy(keys, values).named("score")).named("attention");
    op.plan_on(&device()).unwrap()
}

#[test]
fn fork_is_drawn_as_text() {
    println!("{}", fork());
    println!("{}", fork().to_dot());
    println!("{}", fork().to_mermaid());
    std::fs::write("/tmp/fork.svg", fork().to_svg()).unwrap();
}
