//! Random programs, recorded once and replayed with other contents, give the same bytes as direct runs.
//!
//! A replay of a recording that is not prepared submits the nodes in a random order that keeps the recorded edges, so a
//! missing edge soon gives a wrong result. A replay of a prepared one is a graph launch. In between, other
//! buffers take the place of registers.

use std::ops::Range;

use cuda_async::{
    BoxedOp, Device, DeviceBuffer, Function, LaunchConfig, Result, Stream,
    graph::record,
    join_all,
    kernel::{KernelArg, Returned},
    launch,
    memory::{BufferTarget, copy, fill, upload_into},
    prelude::*,
    script, uninitialized,
};
use cuda_core::internals::Recording;

use crate::{
    modules::{load_ptx, prepare},
    random_programs::Random,
};

/// The number of elements of a register.
const LEN: usize = 48;

const REGISTERS: usize = 5;

type Buffer = DeviceBuffer<f32>;

/// A step on some registers. Their numbers count modulo the number of registers that there are.
#[derive(Debug, Clone)]
enum Step {
    Change {
        register: usize,
        range: Range<usize>,
        change: Change,
    },
    /// Copies elements of one register to another one.
    Copy {
        from: usize,
        into: usize,
        len: usize,
        at: [usize; 2],
    },
    /// Adds two registers in a temporary buffer, and copies that.
    Sum {
        a: usize,
        b: usize,
        into: usize,
    },
    /// Changes both halves at the same time.
    Halves {
        register: usize,
        mid: usize,
        changes: [Change; 2],
    },
    /// Doubles a register into all others at the same time.
    Spread {
        from: usize,
    },
    /// Deals the registers to branches that run at the same time.
    Fork(Vec<Vec<Step>>),
}

#[derive(Debug, Clone, Copy)]
enum Change {
    Scale(f32),
    Add(f32),
    Fill(f32),
    Upload(f32),
}

impl Change {
    fn drawn(r: &mut Random) -> Self {
        let value = r.below(64) as f32;
        match r.below(4) {
            0 => Change::Scale(0.5 + value / 64.0),
            1 => Change::Add(value),
            2 => Change::Fill(value),
            _ => Change::Upload(value),
        }
    }
}

fn drawn(r: &mut Random, count: usize, depth: usize) -> Vec<Step> {
    (0..count).map(|_| Step::drawn(r, depth)).collect()
}

impl Step {
    fn drawn(r: &mut Random, depth: usize) -> Self {
        let mut register = || r.below(REGISTERS);
        let (a, b, into) = (register(), register(), register());
        match r.below(if depth > 0 { 9 } else { 7 }) {
            0 | 1 => {
                let start = r.below(LEN);
                let range =
                    if r.below(2) == 0 { 0..LEN } else { start..start + r.below(LEN - start) };
                Step::Change { register: a, range, change: Change::drawn(r) }
            }
            2 | 3 => {
                let len = r.below(LEN) + 1;
                let at = [(); 2].map(|()| r.below(LEN - len + 1));
                Step::Copy { from: a, into, len, at }
            }
            4 => Step::Sum { a, b, into },
            5 => {
                let changes = [(); 2].map(|()| Change::drawn(r));
                Step::Halves { register: a, mid: r.below(LEN + 1), changes }
            }
            6 => Step::Spread { from: a },
            _ => {
                let branches = 2 + r.below(2);
                let part = |_| {
                    let count = r.below(4);
                    drawn(r, count, depth - 1)
                };
                Step::Fork((0..branches).map(part).collect())
            }
        }
    }
}

#[derive(Clone)]
struct Kernels {
    scale: Function,
    add_scalar: Function,
    vecadd: Function,
}

impl Kernels {
    fn load(device: &Device) -> Self {
        let basic = load_ptx(device, include_str!("../../../../kernels/basic.ptx")).unwrap();
        let vecadd = load_ptx(device, include_str!("../../../../kernels/vecadd.ptx")).unwrap();
        Self {
            scale: basic.function("scale").unwrap(),
            add_scalar: basic.function("add_scalar").unwrap(),
            vecadd: vecadd.function("vecadd").unwrap(),
        }
    }

    fn change<'a, T>(&self, target: T, len: usize, change: Change) -> BoxedOp<'a, T>
    where
        T: BufferTarget<Element = f32> + KernelArg + 'a,
    {
        let (n, config) = (len as u32, LaunchConfig::for_num_elems(len.max(1) as u32));
        match change {
            Change::Scale(factor) => {
                // SAFETY: reads and writes the target, of n elements.
                unsafe { launch(&self.scale, config, (Returned(target), factor, n)) }.boxed()
            }
            Change::Add(term) => {
                // SAFETY: reads and writes the target, of n elements.
                unsafe { launch(&self.add_scalar, config, (Returned(target), term, n)) }.boxed()
            }
            Change::Fill(value) => fill(target, value).boxed(),
            Change::Upload(value) => upload_into(target, counted(value, len)).boxed(),
        }
    }

    /// `a + b`, in a temporary buffer.
    fn sum<'a>(&self, a: &'a Buffer, b: &'a Buffer) -> BoxedOp<'a, Buffer> {
        let vecadd = self.vecadd.clone();
        uninitialized(LEN)
            .then(move |c: Buffer| {
                let config = LaunchConfig::for_num_elems(LEN as u32);
                // SAFETY: reads a and b and writes c, all of `LEN` elements.
                unsafe { launch(&vecadd, config, (a, b, c, LEN as u32)) }
            })
            .map(|(_, _, c)| c)
            .boxed()
    }

    fn run(self, steps: Vec<Step>, mut registers: Vec<Buffer>) -> BoxedOp<'static, Vec<Buffer>> {
        let run = script(async move |cx| {
            let count = registers.len();
            for step in steps {
                match step {
                    Step::Change { register, range, change } => {
                        let len = range.len();
                        let target = registers[register % count].slice_mut(range)?;
                        cx.run(self.change(target, len, change)).await?;
                    }
                    Step::Copy { from, into, len, at } => {
                        let pair = [from % count, into % count];
                        if let Ok([from, into]) = registers.get_disjoint_mut(pair) {
                            let from = from.slice(at[0]..at[0] + len)?;
                            cx.run(copy(from, into.slice_mut(at[1]..at[1] + len)?)).await?;
                        }
                    }
                    Step::Sum { a, b, into } => {
                        let sum = self.sum(&registers[a % count], &registers[b % count]);
                        let sum = cx.run(sum).await?;
                        cx.run(copy(sum, &mut registers[into % count])).await?;
                    }
                    Step::Halves { register, mid, changes } => {
                        let (a, b) = registers[register % count].split_at_mut(mid)?;
                        let a = self.change(a, mid, changes[0]);
                        let b = self.change(b, LEN - mid, changes[1]);
                        cx.run(zip!(a, b)).await?;
                    }
                    Step::Spread { from } => {
                        let mut all: Vec<&mut Buffer> = registers.iter_mut().collect();
                        let from = &*all.remove(from % count);
                        cx.run(join_all(all.into_iter().map(|into| self.spread(from, into))))
                            .await?;
                    }
                    Step::Fork(parts) => {
                        registers =
                            cx.run(self.fork(parts, std::mem::take(&mut registers))).await?;
                    }
                }
            }
            Ok(registers)
        });
        run.boxed()
    }

    /// `into = from + from`.
    fn spread<'a>(&self, from: &'a Buffer, into: &'a mut Buffer) -> BoxedOp<'a, ()> {
        self.sum(from, from).then(move |sum| copy(sum, into)).map(drop).boxed()
    }

    /// Deals the registers to the parts, and takes them back.
    fn fork(&self, parts: Vec<Vec<Step>>, registers: Vec<Buffer>) -> BoxedOp<'static, Vec<Buffer>> {
        let branches = parts.len();
        let mut dealt: Vec<Vec<Buffer>> = parts.iter().map(|_| Vec::new()).collect();
        for (at, register) in registers.into_iter().enumerate() {
            dealt[at % branches].push(register);
        }
        let run = |(part, registers): (Vec<Step>, Vec<Buffer>)| {
            let part = if registers.is_empty() { Vec::new() } else { part };
            self.clone().run(part, registers)
        };
        join_all(parts.into_iter().zip(dealt).map(run))
            .map(move |dealt| {
                let mut dealt: Vec<_> = dealt.into_iter().map(Vec::into_iter).collect();
                let total = dealt.iter().map(ExactSizeIterator::len).sum();
                (0..total).filter_map(|at: usize| dealt[at % branches].next()).collect()
            })
            .boxed()
    }
}

fn counted(first: f32, len: usize) -> Vec<f32> {
    (0..len).map(|at| first + at as f32).collect()
}

/// An order of the nodes that keeps the edges.
fn some_order(r: &mut Random, recording: &Recording) -> Vec<usize> {
    let (mut order, mut left): (Vec<usize>, Vec<usize>) = (vec![], (0..recording.len()).collect());
    let mut done = vec![false; recording.len()];
    while !left.is_empty() {
        let ready = |at: &usize| {
            recording.after(*at).unwrap().iter().all(|earlier| done[*earlier as usize])
        };
        let ready: Vec<_> = (0..left.len()).filter(|at| ready(&left[*at])).collect();
        let next = left.remove(ready[r.below(ready.len())]);
        done[next] = true;
        order.push(next);
    }
    order
}

/// Submits without waiting.
fn submit<O: DeviceOp>(op: O, stream: &Stream) -> Result<<O as DeviceOp>::Output> {
    // SAFETY: outputs are used only by operations of the library.
    unsafe { op.async_on(stream) }
}

fn set(buffer: &mut Buffer, contents: &[f32], stream: &Stream) {
    submit(upload_into(buffer, contents.to_vec()), stream).unwrap();
}

fn bits(buffer: &Buffer, stream: &Stream) -> Vec<u32> {
    to_host(buffer).sync_on(stream).unwrap().into_iter().map(f32::to_bits).collect()
}

fn agree(device: &Device, kernels: &Kernels, streams: &[Stream], seed: u64) {
    let mut r = Random(seed);
    let count = 1 + r.below(10);
    let steps = drawn(&mut r, count, 2);
    let fresh = || zeros::<f32>(LEN).sync_on(&streams[0]).unwrap();
    let mut direct: Vec<_> = (0..REGISTERS).map(|_| fresh()).collect();
    let inputs = (0..REGISTERS).map(|_| fresh()).collect();
    let recorded = record(kernels.clone().run(steps.clone(), inputs), device).unwrap();
    let (mut replayed, recording) = recorded.into_parts();
    let recorded: Vec<_> = replayed.iter().map(|buffer| buffer.allocation().clone()).collect();
    let prepares_at = r.below(3);
    for round in 0..1 + r.below(4) {
        // Otherwise each round goes on from the contents of the last one.
        if round == 0 || r.below(3) > 0 {
            for (direct, replayed) in direct.iter_mut().zip(&mut replayed) {
                let contents: Vec<_> = (0..LEN).map(|_| r.below(1 << 20) as f32).collect();
                set(direct, &contents, &streams[r.below(streams.len())]);
                set(replayed, &contents, &streams[r.below(streams.len())]);
            }
        }
        if r.below(3) == 0 {
            // Another buffer with the same contents takes the place of a register.
            let register = r.below(REGISTERS);
            let [one, other] = [(); 2].map(|()| &streams[r.below(streams.len())]);
            let contents = to_host(&direct[register]).sync_on(one).unwrap();
            let buffer = submit(h2d(contents), other).unwrap();
            // Some programs do not use every register.
            if recording.declare_slot(&recorded[register]).is_ok() {
                recording.bind(&recorded[register], buffer.allocation(), true).unwrap();
                replayed[register] = buffer;
            }
        }
        direct = kernels.clone().run(steps.clone(), direct).sync_on(&streams[0]).unwrap();
        let order = some_order(&mut r, &recording);
        if round == prepares_at {
            prepare(&recording);
        }
        let stream = &streams[r.below(streams.len())];
        if recording.is_prepared() {
            recording.replay(stream).unwrap();
        } else {
            recording.replay_in_order(stream, order.iter().copied()).unwrap();
        }
        for (number, (direct, replayed)) in direct.iter().zip(&replayed).enumerate() {
            let [one, other] = [(); 2].map(|()| &streams[r.below(streams.len())]);
            assert_eq!(
                bits(direct, one),
                bits(replayed, other),
                "seed {seed:#x}, round {round}, register {number}, order {order:?}: {steps:#?}\n{:?}",
                (0..recording.len()).map(|at| recording.after(at)).collect::<Vec<_>>()
            );
        }
    }
    if recording.is_prepared() && device.info().address.starts_with("cuda") {
        // Its destruction could wait for the kernels of other tests.
        std::mem::forget(recording);
    }
}

pub fn random_recordings_agree(device: &Device, count: u64) {
    let kernels = Kernels::load(device);
    let streams: Vec<_> = (0..4).map(|_| device.new_stream().unwrap()).collect();
    (0..count).for_each(|number| agree(device, &kernels, &streams, 0x5eed_0000 + number));
}
