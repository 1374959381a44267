//! Operations composed at random agree with plain Rust.
//!
//! A program is a tree over vectors of floats: uploads, kernels, forks, host closures, loops, and values that many
//! parts share. It is built into one operation and, beside that, computed by a reference that knows no device.
//! Kernels do one IEEE operation an element, so the results are equal to the bit.

use std::{ops::ControlFlow, sync::Arc};

use cuda_async::{
    Device, StreamPoolRoundRobin, in_order, iterate, join_all, prelude::*, unzip, value,
};
use proptest::{collection::vec, prelude::*, test_runner::TestRunner};

use crate::{
    kernels::{Floats, Kernels},
    on_every_device,
};

on_every_device! { random_programs_agree }

#[derive(Debug, Clone)]
enum Program {
    Upload(f32),
    Zeros,
    /// One of the shared values.
    Shared(usize),
    Add(Box<Program>, Box<Program>),
    Scale(Box<Program>, f32),
    /// Adds 1 this many times, in a loop.
    Count(Box<Program>, u8),
    /// Down to the host, changed there, and up again.
    Host(Box<Program>),
    /// The sum of them all, computed side by side.
    Sum(Vec<Program>),
    /// The sum of them all, one after the other.
    SumInOrder(Vec<Program>),
    /// Of a pair, the second part; the first is run or left.
    Second(Box<Program>, Box<Program>, bool),
}

fn programs() -> impl Strategy<Value = Program> {
    let number = (-50i8..50).prop_map(f32::from);
    let leaf = prop_oneof![
        number.clone().prop_map(Program::Upload),
        Just(Program::Zeros),
        (0..SHARED).prop_map(Program::Shared),
    ];
    leaf.prop_recursive(5, 40, 4, move |inner| {
        let one = inner.clone().prop_map(Box::new);
        prop_oneof![
            (one.clone(), one.clone()).prop_map(|(a, b)| Program::Add(a, b)),
            (one.clone(), number.clone()).prop_map(|(a, x)| Program::Scale(a, x)),
            (one.clone(), 0u8..5).prop_map(|(a, n)| Program::Count(a, n)),
            one.clone().prop_map(Program::Host),
            vec(inner.clone(), 0..5).prop_map(Program::Sum),
            vec(inner, 0..4).prop_map(Program::SumInOrder),
            (one.clone(), one, any::<bool>()).prop_map(|(a, b, run)| Program::Second(a, b, run)),
        ]
    })
}

/// Values that any part of a program may use.
const SHARED: usize = 3;

/// Elements of every vector.
const LEN: usize = 300;

/// The reference.
fn expected(program: &Program, shared: &[Vec<f32>]) -> Vec<f32> {
    let sum = |programs: &[Program]| {
        programs.iter().fold(vec![0.0; LEN], |sum, program| added(sum, &expected(program, shared)))
    };
    match program {
        Program::Upload(x) => vec![*x; LEN],
        Program::Zeros => vec![0.0; LEN],
        Program::Shared(index) => shared.get(*index).cloned().unwrap_or_else(|| vec![0.0; LEN]),
        Program::Add(a, b) => added(expected(a, shared), &expected(b, shared)),
        Program::Scale(a, x) => expected(a, shared).iter().map(|y| y * x).collect(),
        Program::Count(a, n) => {
            (0..*n).fold(expected(a, shared), |v, _| v.iter().map(|x| x + 1.0).collect())
        }
        Program::Host(a) => changed(expected(a, shared)),
        Program::Sum(programs) | Program::SumInOrder(programs) => sum(programs),
        Program::Second(_, b, _) => expected(b, shared),
    }
}

fn added(a: Vec<f32>, b: &[f32]) -> Vec<f32> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

fn changed(mut v: Vec<f32>) -> Vec<f32> {
    v.reverse();
    v[0] -= 3.0;
    v
}

type Built = cuda_async::BoxedOp<'static, Floats>;
type Value = cuda_async::Op<cuda_async::ops::Shared<Box<dyn cuda_async::Submit<Output = Floats>>>>;

/// The operation. A program that names a shared value which does not exist yet means zeroes.
fn built(program: &Program, kernels: &Kernels, shared: &[Value]) -> Built {
    let k = kernels.clone();
    let sub = |program: &Program| built(program, kernels, shared);
    match program {
        Program::Upload(x) => h2d(vec![*x; LEN]).boxed(),
        Program::Zeros => zeros(LEN).boxed(),
        Program::Shared(index) => match shared.get(*index) {
            Some(op) => zip!(op.clone(), zeros(LEN))
                .then(move |(x, zero): (_, Floats)| k.add(x, zero))
                .boxed(),
            None => zeros(LEN).boxed(),
        },
        Program::Add(a, b) => zip!(sub(a), sub(b)).then(move |(a, b)| k.add(a, b)).boxed(),
        Program::Scale(a, x) => {
            let x = *x;
            sub(a).then(move |v| k.scale(v, x)).boxed()
        }
        Program::Count(a, n) => {
            let n = *n;
            sub(a).then(move |v| iterate((v, n), move |(v, left)| counted(&k, v, left))).boxed()
        }
        Program::Host(a) => sub(a).then(to_host).map(changed).then(h2d).boxed(),
        Program::Sum(programs) => {
            let parts = join_all(programs.iter().map(sub).collect::<Vec<_>>());
            parts.then(move |parts| summed(k, parts)).boxed()
        }
        Program::SumInOrder(programs) => {
            let parts = in_order(programs.iter().map(sub).collect::<Vec<_>>());
            parts.then(move |parts| summed(k, parts)).boxed()
        }
        Program::Second(a, b, run) => {
            let (first, second) = unzip!(zip!(sub(a), sub(b)));
            let first = if *run { first.map(Some).boxed() } else { value(None).boxed() };
            zip!(first, second).map(|(_, b)| b).boxed()
        }
    }
}

fn counted(
    k: &Kernels,
    v: Floats,
    left: u8,
) -> cuda_async::BoxedOp<'static, ControlFlow<Floats, (Floats, u8)>> {
    if left == 0 {
        return value(ControlFlow::Break(v)).boxed();
    }
    k.add_scalar(v, 1.0).map(move |v| ControlFlow::Continue((v, left - 1))).boxed()
}

fn summed(k: Kernels, parts: Vec<Floats>) -> Built {
    let zero: Built = zeros(LEN).boxed();
    parts.into_iter().fold(zero, |sum, part| {
        let k = k.clone();
        sum.then(move |sum| k.add(sum, part)).boxed()
    })
}

/// Runs one set of programs in every way and compares.
fn check(device: &Device, kernels: &Kernels, shared: &[Program], programs: &[Program]) {
    let mut values: Vec<Vec<f32>> = Vec::new();
    let mut ops: Vec<Value> = Vec::new();
    for program in shared {
        let (value, op) = (expected(program, &values), built(program, kernels, &ops).shared());
        values.push(value);
        ops.push(op);
    }
    let build = |program: &Program| built(program, kernels, &ops).then(to_host);
    let policy = Arc::new(StreamPoolRoundRobin::new(device).unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    // All at once from several tasks, so that shared values are first polled from anywhere.
    let tasks: Vec<_> = programs
        .iter()
        .map(|program| {
            let (op, policy) = (build(program), policy.clone());
            runtime.spawn(async move { op.schedule(&*policy).await })
        })
        .collect();
    let stream = device.new_stream().unwrap();
    for (program, task) in programs.iter().zip(tasks) {
        let reference = expected(program, &values);
        assert_eq!(build(program).sync_on(&stream).unwrap(), reference, "sync_on: {program:?}");
        assert_eq!(runtime.block_on(task).unwrap().unwrap(), reference, "scheduled: {program:?}");
    }
}

fn random_programs_agree(device: &Device) {
    let kernels = Kernels::load(device);
    let config =
        ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() };
    let strategy = (vec(programs(), SHARED), vec(programs(), 1..4));
    TestRunner::new(config)
        .run(&strategy, |(shared, programs)| {
            check(device, &kernels, &shared, &programs);
            Ok(())
        })
        .unwrap();
}
