//! Runs programs and compares their results.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    task::{Context, Waker},
};

use cuda_async::{
    BoxedOp, Device, DeviceFuture, Error, SchedulingPolicy, Stream,
    kernel::KernelArg,
    memory::{BufferSource, BufferTarget, copy},
    policy::{SingleStream, StreamPoolRoundRobin},
    prelude::*,
    uninitialized,
};
use futures::FutureExt;
use tokio::task::JoinHandle;

use super::{
    build::{Buffer, Builder, Built, Held, Kernels, Prepared, parts, slices},
    program::{Change, Cut, How, PartChange, Program, REGISTERS, Round, Run, STREAMS, Step},
    reference::{self, Fails, LEN, Words, added, counted},
};

/// The state that the programs of all threads share.
pub struct World {
    kernels: Kernels,
    streams: Vec<Stream>,
    policies: Vec<Arc<dyn SchedulingPolicy>>,
    runtime: tokio::runtime::Runtime,
}

impl World {
    pub fn new(device: &Device) -> Self {
        let pool = |streams| Arc::new(StreamPoolRoundRobin::with_streams(device, streams).unwrap());
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build();
        Self {
            kernels: Kernels::load(device),
            streams: (0..STREAMS).map(|_| device.new_stream().unwrap()).collect(),
            policies: vec![pool(4), pool(2), Arc::new(SingleStream::new(device).unwrap())],
            runtime: runtime.unwrap(),
        }
    }
}

/// The reason why a program is wrong.
pub type Wrong = String;

pub fn run(world: &World, program: &Program) -> Result<(), Wrong> {
    let mut machine = Machine::new(world)?;
    for (number, step) in program.steps.iter().enumerate() {
        machine.step(step).map_err(|wrong| format!("step {number}: {wrong}"))?;
    }
    (0..REGISTERS).try_for_each(|register| machine.check(register, &world.streams[register]))
}

/// The outcome of a run.
enum Ended {
    Output(Output),
    Failed(Error),
    Panicked,
    /// The run was given up.
    Cancelled,
}

/// The output of a run.
pub enum Output {
    Device(Held),
    Host(Words),
}

type Steps = cuda_async::ops::Boxed<'static, Output>;

/// A run that has begun.
enum Begun {
    Ended(Ended),
    Future(DeviceFuture<Steps>),
    Task(JoinHandle<Result<Output, Error>>),
}

struct Machine<'w> {
    world: &'w World,
    /// `None` only during a change.
    registers: Vec<Option<Arc<Held>>>,
    values: Vec<Words>,
}

impl<'w> Machine<'w> {
    fn new(world: &'w World) -> Result<Self, Wrong> {
        let (registers, values) = (vec![None; REGISTERS], vec![Words::new(); REGISTERS]);
        let mut machine = Self { world, registers, values };
        for register in 0..REGISTERS {
            let start = counted(register as u32);
            let op = h2d(start.clone()).boxed();
            machine.set(register, submit(op, &world.streams[register])?, start);
        }
        Ok(machine)
    }

    fn set(&mut self, register: usize, buffer: Buffer, value: Words) {
        self.registers[register] = Some(Arc::new(Held::new(buffer)));
        self.values[register] = value;
    }

    fn held(&self, register: usize) -> Held {
        Held::Shared(self.registers[register].clone().unwrap())
    }

    fn step(&mut self, step: &Step) -> Result<(), Wrong> {
        let streams = &self.world.streams;
        let k = &self.world.kernels;
        match *step {
            Step::Round(ref round) => self.round(round)?,
            Step::Mutate { register, a, b, stream } => {
                self.mutate(register, a, b, &streams[stream])?;
            }
            Step::Replace { register, value: v, allocated, written } => {
                self.registers[register] = None;
                let fresh = submit(uninitialized(LEN).boxed(), &streams[allocated])?;
                self.set(register, submit(k.fill(fresh, v), &streams[written])?, counted(v));
            }
            Step::Double { from, into, stream } => {
                let doubled = k.add(self.held(from), self.held(from));
                let doubled = submit(doubled, &streams[stream])?;
                self.set(into, doubled, added(&self.values[from], &self.values[from]));
            }
            Step::Fan { from, into, stream } => self.fan(from, into, &streams[stream])?,
            Step::Check { register, stream } => self.check(register, &streams[stream])?,
            Step::Parts { register, cut, ref changes, ref gather } => {
                self.parts(register, cut, changes, gather)?;
            }
            Step::Borrowed { register, cut, ref changes } => {
                self.borrowed(register, cut, changes)?
            }
            Step::CheckSlice { register, ref range, stream } => {
                let got =
                    to_host(self.held(register).share(range.clone())).sync_on(&streams[stream]);
                let got = got.map_err(|error| error.to_string())?;
                compare(got, &self.values[register][range.clone()].to_vec())?;
            }
        }
        Ok(())
    }

    fn mutate(&mut self, register: usize, a: u32, b: u32, stream: &Stream) -> Result<(), Wrong> {
        let held = Held::Shared(self.registers[register].take().unwrap());
        let changed = submit(self.world.kernels.mad(held, a, b), stream)?;
        self.set(register, changed, reference::mad(&self.values[register], a, b));
        Ok(())
    }

    fn fan(&mut self, from: usize, into: usize, stream: &Stream) -> Result<(), Wrong> {
        let k = &self.world.kernels;
        let double = |stream| submit(k.add(self.held(from), self.held(from)), stream);
        let parts = self.world.streams.iter().map(double).collect::<Result<Vec<_>, _>>()?;
        let sum = reference::mad(&self.values[from], 2 * STREAMS as u32, 0);
        self.mutate(from, 5, 1, stream)?;
        let zero = submit(h2d(vec![0; LEN]).boxed(), stream)?;
        let total = parts.into_iter().try_fold(zero, |total, part| {
            submit(k.add(Held::new(total), Held::new(part)), stream)
        })?;
        self.set(into, total, sum);
        Ok(())
    }

    /// Takes the buffer of a register, or a copy of it.
    fn take(&mut self, register: usize, stream: usize) -> Result<Buffer, Wrong> {
        let held = Held::Shared(self.registers[register].take().unwrap());
        submit(self.world.kernels.own(held), &self.world.streams[stream])
    }

    fn parts(
        &mut self,
        register: usize,
        cut: Cut,
        changes: &[PartChange],
        gather: &[usize],
    ) -> Result<(), Wrong> {
        let buffer = self.take(register, changes[0].stream)?;
        let mut parts: Vec<_> = parts(buffer, cut).map_err(wrong)?.into_iter().map(Some).collect();
        for change in changes {
            let part = change.part % parts.len();
            let changed = self.changed(register, cut, change, parts[part].take().unwrap())?;
            parts[part] = Some(changed);
        }
        let streams = &self.world.streams;
        let mut whole = submit(uninitialized(LEN).boxed(), &streams[gather[0]])?;
        let places = slices(&mut whole, cut).map_err(wrong)?;
        for ((part, place), stream) in parts.into_iter().zip(places).zip(gather.iter().cycle()) {
            submit(copy(part.unwrap(), place), &streams[*stream])?;
        }
        self.registers[register] = Some(Arc::new(Held::new(whole)));
        Ok(())
    }

    fn borrowed(&mut self, register: usize, cut: Cut, changes: &[PartChange]) -> Result<(), Wrong> {
        let mut buffer = self.take(register, changes[0].stream)?;
        let mut slices = slices(&mut buffer, cut).map_err(wrong)?;
        for change in changes {
            let part = change.part % slices.len();
            let is_submitted_at_once =
                !matches!(change.change, Change::Host(_) | Change::Upload(_));
            if change.is_dropped && is_submitted_at_once {
                let op = self.change_of(register, cut, change, slices[part].reborrow());
                drop_submitted(op, &self.world.streams[change.stream]);
            } else {
                self.changed(register, cut, change, slices[part].reborrow())?;
            }
        }
        self.registers[register] = Some(Arc::new(Held::new(buffer)));
        Ok(())
    }

    /// Changes one part of a register, on the device and in the reference.
    fn changed<'a, T>(
        &mut self,
        register: usize,
        cut: Cut,
        change: &PartChange,
        target: T,
    ) -> Result<T, Wrong>
    where
        T: BufferTarget<Element = u32> + BufferSource<Element = u32> + KernelArg + 'a,
    {
        let op = self.change_of(register, cut, change, target);
        let stream = &self.world.streams[change.stream];
        match change.change {
            Change::Host(_) => op.sync_on(stream).map_err(wrong),
            _ => submit(op, stream),
        }
    }

    /// Changes one part of a register in the reference, and returns the operation that changes it on the device.
    fn change_of<'a, T>(
        &mut self,
        register: usize,
        cut: Cut,
        change: &PartChange,
        target: T,
    ) -> BoxedOp<'a, T>
    where
        T: BufferTarget<Element = u32> + BufferSource<Element = u32> + KernelArg + 'a,
    {
        let ranges = cut.ranges();
        let range = ranges[change.part % ranges.len()].clone();
        let mut value = std::mem::take(&mut self.values[register]);
        reference::apply(change.change, &mut value[range.clone()], &self.values);
        self.values[register] = value;
        let prepared = Prepared::new(change.change, range.len(), &self.registers);
        self.world.kernels.change(target, prepared)
    }

    fn check(&self, register: usize, stream: &Stream) -> Result<(), Wrong> {
        let got = to_host(self.held(register)).sync_on(stream);
        compare(got.map_err(|error| error.to_string())?, &self.values[register])
    }

    fn round(&mut self, round: &Round) -> Result<(), Wrong> {
        let expected: Vec<_> =
            round.runs.iter().map(|run| reference::value(round, &self.values, run.root)).collect();
        let mut builder = Builder::new(&self.world.kernels, round, &self.registers);
        let ops: Vec<_> = round.runs.iter().map(|run| (run, builder.op(run.root))).collect();
        drop(builder);
        // Collected, so that all have begun before the first wait.
        let begun: Vec<_> = ops.into_iter().map(|(run, op)| self.begin(run, op)).collect();
        for ((run, expected), begun) in round.runs.iter().zip(expected).zip(begun) {
            let ended = self.end(begun);
            self.settle(run, expected, ended)?;
        }
        Ok(())
    }

    fn begin(&self, run: &Run, op: Built) -> Begun {
        let world = self.world;
        let reads = run.into.is_none() && !matches!(run.how, How::Detach { .. });
        let op = if reads {
            op.then(to_host).map(Output::Host).boxed()
        } else {
            op.map(Output::Device).boxed()
        };
        match run.how {
            How::Block { stream } => blocked(|| op.sync_on(&world.streams[stream])),
            How::Detach { stream, .. } => {
                // SAFETY: outputs are used only by operations of the library.
                blocked(|| unsafe { op.async_on(&world.streams[stream]) })
            }
            How::Schedule { policy } => {
                let policy = &*world.policies[policy];
                let scheduled = catch_unwind(AssertUnwindSafe(|| op.schedule(policy)));
                scheduled.map_or(Begun::Ended(Ended::Panicked), Begun::Future)
            }
            How::Spawn { policy } => Begun::Task(spawn(world, policy, op)),
            How::Drop { policy, polls } => {
                let policy = &*world.policies[policy];
                drop(catch_unwind(AssertUnwindSafe(|| poll_some(op.schedule(policy), polls))));
                Begun::Ended(Ended::Cancelled)
            }
            How::Abort { policy, yields } => {
                let task = spawn(world, policy, op);
                (0..yields).for_each(|_| std::thread::yield_now());
                task.abort();
                Begun::Ended(Ended::Cancelled)
            }
        }
    }

    fn end(&self, begun: Begun) -> Ended {
        match begun {
            Begun::Ended(ended) => ended,
            Begun::Future(future) => {
                ended(catch_unwind(AssertUnwindSafe(|| futures::executor::block_on(future))))
            }
            Begun::Task(task) => match self.world.runtime.block_on(task) {
                Ok(result) => ended::<()>(Ok(result)),
                Err(_) => Ended::Panicked,
            },
        }
    }

    fn settle(
        &mut self,
        run: &Run,
        expected: Result<Words, Fails>,
        ended: Ended,
    ) -> Result<(), Wrong> {
        let given = match (ended, &expected) {
            (Ended::Cancelled, _) => return Ok(()),
            // A step waited for the host, or another run was polling the shared part.
            (Ended::Failed(Error::NeedsHostData { .. }), _)
                if matches!(run.how, How::Detach { .. }) =>
            {
                return Ok(());
            }
            (Ended::Panicked, Err(Fails)) => return Ok(()),
            (Ended::Failed(error), Err(Fails)) if on_purpose(&error) => return Ok(()),
            (Ended::Failed(error), _) => return Err(format!("{run:?} failed: {error}")),
            (Ended::Panicked, Ok(_)) => return Err(format!("{run:?} panicked")),
            (Ended::Output(_), Err(Fails)) => return Err(format!("{run:?} did not fail")),
            (Ended::Output(given), Ok(_)) => given,
        };
        let expected = expected.unwrap_or_default();
        let compared = match (given, run.into, run.how) {
            (Output::Host(words), ..) => compare(words, &expected),
            (Output::Device(held), Some(register), _) => {
                self.registers[register] = Some(Arc::new(held));
                self.values[register] = expected;
                Ok(())
            }
            (Output::Device(held), None, How::Detach { reader, .. }) => {
                let read = to_host(held).sync_on(&self.world.streams[reader]);
                read.map_err(|error| error.to_string()).and_then(|words| compare(words, &expected))
            }
            (Output::Device(_), None, _) => Err("a buffer that was not requested".into()),
        };
        compared.map_err(|wrong| format!("{run:?}: {wrong}"))
    }
}

fn on_purpose(error: &Error) -> bool {
    // A shared part that panicked gives `Panicked` to every later clone.
    matches!(error, Error::Unsupported { .. } | Error::Arguments { .. } | Error::Panicked { .. })
}

fn compare(got: Words, expected: &Words) -> Result<(), Wrong> {
    if got == *expected { Ok(()) } else { Err(format!("got {got:x?}, expected {expected:x?}")) }
}

/// Submits without waiting. Every later use of the output is ordered after it.
fn submit<O: DeviceOp>(op: O, stream: &Stream) -> Result<<O as DeviceOp>::Output, Wrong> {
    // SAFETY: outputs are used only by operations of the library.
    unsafe { op.async_on(stream) }.map_err(wrong)
}

/// Drops an operation as soon as its work is submitted.
fn drop_submitted<T: Send>(op: BoxedOp<'_, T>, stream: &Stream) {
    let mut future = op.schedule(&SingleStream::from(stream.clone()));
    // A stream without credit takes the work later.
    while format!("{future:?}") != "DeviceFuture(executing)" {
        if future.poll_unpin(&mut Context::from_waker(Waker::noop())).is_ready() {
            return;
        }
    }
}

fn wrong(error: Error) -> Wrong {
    error.to_string()
}

fn ended<E>(result: Result<Result<Output, Error>, E>) -> Ended {
    match result {
        Ok(Ok(given)) => Ended::Output(given),
        Ok(Err(error)) => Ended::Failed(error),
        Err(_) => Ended::Panicked,
    }
}

fn blocked(run: impl FnOnce() -> Result<Output, Error>) -> Begun {
    Begun::Ended(ended(catch_unwind(AssertUnwindSafe(run))))
}

fn spawn(
    world: &World,
    policy: usize,
    op: BoxedOp<'static, Output>,
) -> JoinHandle<Result<Output, Error>> {
    let policy = world.policies[policy].clone();
    world.runtime.spawn(async move { op.schedule(&*policy).await })
}

fn poll_some(mut future: DeviceFuture<Steps>, polls: usize) {
    for _ in 0..polls {
        let polled = future.poll_unpin(&mut Context::from_waker(Waker::noop()));
        if polled.is_ready() {
            return;
        }
        std::thread::yield_now();
    }
}
