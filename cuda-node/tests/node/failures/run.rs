//! Runs programs on a lease, and compares all that it reports with the model.

use std::{
    future::Future,
    ops::Range,
    pin::Pin,
    sync::Arc,
    task::{Context, Waker},
    time::Duration,
};

use cuda_async::{
    BoxedOp, Device, DeviceBuffer, DeviceFuture, Error, Function, LaunchConfig, Stream,
    graph::CudaGraph,
    kernel::Returned,
    launch,
    memory::{copy, fill, upload_into},
    policy::SingleStream,
    prelude::*,
    script, uninitialized,
};
use cuda_core::{Download, Pending, SharedSlice, SliceMut};
use cuda_lease::Lease;
use relay::Relay;
use tokio::{runtime::Handle, task::JoinHandle};

use super::{
    model::{Cell, FACTOR, UNITS, Value, fails},
    program::{How, Place, Program, REGISTERS, STREAMS, Step, Write},
};
use crate::harness::wait_until;

/// The memory of each lease.
pub const QUOTA: u64 = 64 << 20;

/// The elements of a unit of each buffer. Bytes of a large one travel in pieces.
const UNIT: [usize; REGISTERS] = [8, 8, 8, 40_000, 40_000];

/// `mad` computes `x * a + b`. `trap` writes the first element and traps. `outside` writes far beyond the buffer.
const KERNELS: &str = "
.version 7.0
.target sm_70
.address_size 64
.visible .entry mad(.param .u64 x, .param .u32 a, .param .u32 b, .param .u32 n)
{
    .reg .pred %p<2>;
    .reg .b32 %r<10>;
    .reg .b64 %rd<4>;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.s32 %r4, %r1, %r2, %r3;
    ld.param.u32 %r5, [n];
    setp.ge.u32 %p1, %r4, %r5;
    @%p1 bra DONE;
    ld.param.u64 %rd1, [x];
    mul.wide.u32 %rd2, %r4, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.param.u32 %r6, [a];
    ld.param.u32 %r7, [b];
    ld.global.u32 %r8, [%rd3];
    mad.lo.s32 %r9, %r8, %r6, %r7;
    st.global.u32 [%rd3], %r9;
DONE:
    ret;
}
.visible .entry trap(.param .u64 x)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [x];
    mov.u32 %r1, 57005;
    st.global.u32 [%rd1], %r1;
    trap;
}
.visible .entry outside(.param .u64 x)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [x];
    mov.u32 %r1, 57005;
    st.global.u32 [%rd1], %r1;
    add.s64 %rd2, %rd1, 1099511627776;
    st.global.u32 [%rd2], %r1;
    ret;
}
";

type Buffer = DeviceBuffer<u32>;
pub type Wrong = String;

#[derive(Clone)]
struct Kernels {
    mad: Function,
    trap: Function,
    outside: Function,
}

impl Kernels {
    fn load(device: &Device) -> Result<Self, Error> {
        let module = device.load_ptx_blocking(KERNELS)?;
        let function = |name| module.function(name);
        Ok(Self { mad: function("mad")?, trap: function("trap")?, outside: function("outside")? })
    }

    fn mad<'a>(&self, target: SliceMut<'a, u32>, add: u32) -> BoxedOp<'a, SliceMut<'a, u32>> {
        let count = target.len();
        let arguments = (Returned(target), FACTOR, add, count as u32);
        // SAFETY: reads and writes the target, of this number of elements.
        unsafe { launch(&self.mad, LaunchConfig::for_num_elems(count), arguments) }.boxed()
    }

    fn write<'a>(
        &self,
        target: SliceMut<'a, u32>,
        write: Write,
        from: Option<SharedSlice<u32>>,
    ) -> BoxedOp<'a, SliceMut<'a, u32>> {
        let unit = LaunchConfig::new(1, 1);
        match write {
            Write::Fill(word) => fill(target, word).boxed(),
            Write::Upload(first, step) => {
                let value = Value { first, step };
                let words: Vec<_> = value.elements(target.len()).collect();
                upload_into(target, words).boxed()
            }
            Write::Copy(_) => copy(from.unwrap(), target).map(|(_, target)| target).boxed(),
            Write::Mad(add) => self.mad(target, add),
            // SAFETY: writes one element of the target, and faults.
            Write::Trap => unsafe { launch(&self.trap, unit, (Returned(target),)) }.boxed(),
            // SAFETY: writes one element of the target. The device refuses the other write.
            Write::Outside => unsafe { launch(&self.outside, unit, (Returned(target),)) }.boxed(),
        }
    }
}

/// A lease with the relay and the runtime that its programs use.
pub struct World {
    pub lease: Lease,
    pub relay: Arc<Relay>,
    pub runtime: Handle,
}

enum Output {
    Words(Vec<u32>),
    Buffer(Buffer),
    Nothing,
}

type Op = BoxedOp<'static, Output>;

enum Awaited {
    Future(DeviceFuture<cuda_async::ops::Boxed<'static, Output>>),
    Task(JoinHandle<Result<Output, Error>>),
    Download(Download<u32>),
}

/// An operation whose result is not known yet.
struct InFlight {
    awaited: Awaited,
    may_fail: bool,
    must_fail: bool,
    /// The number of faults before it.
    faults: u64,
    /// The number of resets before it.
    epoch: u64,
    then: Then,
    /// Whether it reads or writes memory of the graph.
    is_launch: bool,
    /// Whether it faults. A task may submit it after later steps. A future that waits for credit may submit it only when it
    /// is awaited.
    is_fault: bool,
    name: String,
}

enum Then {
    /// A read gives these values.
    Read {
        cells: Vec<Cell>,
        from: Option<(Place, u64)>,
    },
    /// A write leaves these contents in the buffer.
    Write {
        register: usize,
        cells: [Cell; UNITS],
    },
    Nothing,
}

struct Register {
    buffer: Option<Arc<Buffer>>,
    cells: [Cell; UNITS],
    /// The number of writes.
    version: u64,
    /// Whether the device may have refused the allocation. Then no write makes it usable.
    may_be_refused: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Health {
    Well,
    MayBeLost,
    Lost,
}

#[derive(Clone, Copy, Default)]
struct Reports {
    may: bool,
    must: bool,
    is_busy: bool,
}

pub struct Machine {
    relay: Arc<Relay>,
    runtime: Handle,
    device: Device,
    kernels: Kernels,
    streams: Vec<Stream>,
    reports: [Reports; STREAMS],
    registers: Vec<Register>,
    output: Register,
    graph: CudaGraph<Buffer>,
    trap_graph: CudaGraph<Buffer>,
    in_flight: Vec<InFlight>,
    resets: Vec<Pending<()>>,
    hogs: Vec<DeviceBuffer<u8>>,
    health: Health,
    faults: u64,
    epoch: u64,
}

/// The constant of the kernel in the graph.
const GRAPH_ADD: u32 = 11;

fn range(place: Place) -> Range<usize> {
    let unit = UNIT[place.register];
    place.first * unit..(place.first + place.count) * unit
}

fn text(error: Error) -> Wrong {
    format!("unexpected: {error:?}")
}

impl Machine {
    pub fn new(world: &World) -> Result<Self, Wrong> {
        let (relay, runtime) = (world.relay.clone(), world.runtime.clone());
        let device = world.lease.device().clone();
        let kernels = Kernels::load(&device).map_err(text)?;
        let streams: Vec<_> =
            (0..STREAMS).map(|_| device.new_stream()).collect::<Result<_, _>>().map_err(text)?;
        let mut registers = Vec::new();
        for (register, unit) in UNIT.into_iter().enumerate() {
            let op = zeros::<u32>(unit * UNITS);
            let buffer = op.sync_on(&streams[register % STREAMS]).map_err(text)?;
            let cell = Cell { is_settled: true, ..Cell::written(Value { first: 0, step: 0 }) };
            let cells = std::array::from_fn(|_| cell.clone());
            let buffer = Some(Arc::new(buffer));
            registers.push(Register { buffer, cells, version: 0, may_be_refused: false });
        }
        let count = UNIT[0] * UNITS;
        let record = |is_trap: bool| {
            let input = registers[0].buffer.clone().unwrap();
            let kernels = kernels.clone();
            let op = uninitialized::<u32>(count).then(move |mut out: Buffer| {
                script(async move |cx| {
                    let whole = input.share(..)?;
                    cx.run(copy(whole, out.as_slice_mut())).await?;
                    cx.run(kernels.mad(out.as_slice_mut(), GRAPH_ADD)).await?;
                    if is_trap {
                        cx.run(kernels.write(out.as_slice_mut(), Write::Trap, None)).await?;
                    }
                    Ok(out)
                })
            });
            let graph = op.graph_on(&streams[0])?;
            graph.upload()?;
            Ok(graph)
        };
        let (graph, trap_graph) = (record(false).map_err(text)?, record(true).map_err(text)?);
        let cells = std::array::from_fn(|_| Cell::lost());
        let output = Register { buffer: None, cells, version: 0, may_be_refused: false };
        let (in_flight, resets, hogs, reports) = Default::default();
        let health = Health::Well;
        let (faults, epoch) = (0, 0);
        Ok(Self {
            relay,
            runtime,
            device,
            kernels,
            streams,
            reports,
            registers,
            output,
            graph,
            trap_graph,
            in_flight,
            resets,
            hogs,
            health,
            faults,
            epoch,
        })
    }

    /// Records a fault, certain or possible: the device may be lost, and so may all contents that are not settled.
    fn fault(&mut self) {
        self.faults += 1;
        if self.health == Health::Well {
            self.health = Health::MayBeLost;
        }
        let registers = self.registers.iter_mut().chain([&mut self.output]);
        for cell in registers.flat_map(|register| &mut register.cells) {
            cell.may_be_lost |= !cell.is_settled;
        }
        for reports in &mut self.reports {
            reports.may |= reports.is_busy;
        }
    }

    /// Records that the device is lost, if an error of the present epoch shows it.
    fn record_loss(&mut self, error: &Error) {
        if matches!(error.root(), Error::Fault(_) | Error::DeviceLost { .. })
            && self.health == Health::MayBeLost
        {
            self.health = Health::Lost;
        }
    }

    /// Checks the result of an operation.
    fn verdict<T>(
        &mut self,
        result: &Result<T, Error>,
        may_fail: bool,
        must_fail: bool,
        name: &dyn std::fmt::Debug,
    ) -> Result<(), Wrong> {
        match result {
            Ok(_) if must_fail => {
                Err(format!("{name:?} has to fail, and was reported as complete"))
            }
            Err(error) if !may_fail && !must_fail => Err(format!("{name:?} failed: {error:?}")),
            _ => Ok(()),
        }
    }

    fn cells(&self, place: Place) -> Vec<Cell> {
        self.registers[place.register].cells[place.first..place.first + place.count].to_vec()
    }

    /// The buffer of a register, which is allocated again if an operation has consumed it.
    fn buffer(&mut self, register: usize) -> Result<bool, Wrong> {
        if self.registers[register].buffer.is_some() {
            return Ok(true);
        }
        let writes =
            |of: &InFlight| matches!(of.then, Then::Write { register: to, .. } if to == register);
        while let Some(at) = self.in_flight.iter().position(writes) {
            self.join(at)?;
        }
        if self.registers[register].buffer.is_some() {
            return Ok(true);
        }
        let (may, must) = (self.health != Health::Well, self.health == Health::Lost);
        let result = zeros::<u32>(UNIT[register] * UNITS).sync_on(&self.streams[0]);
        self.verdict(&result, may, must, &"an allocation")?;
        match result {
            Ok(buffer) => {
                let cell = Cell { is_settled: true, ..Cell::written(Value { first: 0, step: 0 }) };
                let of = &mut self.registers[register];
                of.buffer = Some(Arc::new(buffer));
                of.cells = std::array::from_fn(|_| cell.clone());
                (of.version, of.may_be_refused) = (of.version + 1, false);
                Ok(true)
            }
            Err(error) => {
                self.record_loss(&error);
                Ok(false)
            }
        }
    }

    /// Waits until nothing else uses a register.
    fn make_exclusive(&mut self, register: usize) -> Result<(), Wrong> {
        if register == 0 {
            while let Some(at) = self.in_flight.iter().position(|of| of.is_launch) {
                self.join(at)?;
            }
        }
        while !self.in_flight.is_empty()
            && self.registers[register].buffer.as_mut().is_some_and(|of| Arc::get_mut(of).is_none())
        {
            self.join(0)?;
        }
        Ok(())
    }

    pub fn step(&mut self, step: &Step) -> Result<(), Wrong> {
        match *step {
            Step::Write { to, write, stream, how } => self.write(to, write, stream, how)?,
            Step::Read { from, stream, how } => self.read(from, stream, how)?,
            Step::Download { from, stream } => {
                if self.buffer(from.register)? {
                    let cells = self.cells(from);
                    let place =
                        self.device.pinned_uninitialized(range(from).len()).map_err(text)?;
                    let buffer = self.registers[from.register].buffer.clone().unwrap();
                    let download = buffer.download(&self.streams[stream], range(from), place);
                    let version = self.registers[from.register].version;
                    let then = Then::Read { cells: cells.clone(), from: Some((from, version)) };
                    match download {
                        Ok(download) => {
                            let (may, must) = (self.fails(&cells).0, fails(&cells).1);
                            self.submitted(stream, may, must);
                            self.add(Awaited::Download(download), &cells, false, then, step)
                        }
                        Err(error) => {
                            let (may, _) = self.fails(&cells);
                            self.verdict::<()>(&Err(error), may, false, step)?;
                        }
                    }
                }
            }
            Step::Chain { first, add, is_large, stream, how } => {
                let value = Value { first, step: add | 1 };
                let count = if is_large { 200_000 } else { 16 };
                let kernels = self.kernels.clone();
                let op = h2d(value.elements(count).collect::<Vec<_>>())
                    .then(move |mut x: Buffer| {
                        script(async move |cx| {
                            cx.run(kernels.mad(x.as_slice_mut(), add)).await?;
                            Ok(x)
                        })
                    })
                    .then(to_host)
                    .map(Output::Words)
                    .boxed();
                let then = Then::Read { cells: vec![Cell::written(value.mad(add))], from: None };
                self.run(op, &[], false, then, stream, how, step)?;
            }
            Step::Launch { stream, how } => self.launch(stream, how, step)?,
            Step::LaunchTrap { stream, how } => self.launch_trap(stream, how, step)?,
            Step::Replace { register, stream, how } => {
                if register > 0 {
                    self.make_exclusive(register)?;
                    self.registers[register].buffer = None;
                    self.registers[register].version += 1;
                    let op = zeros::<u32>(UNIT[register] * UNITS).map(Output::Buffer).boxed();
                    let cells = std::array::from_fn(|_| Cell::written(Value { first: 0, step: 0 }));
                    let then = Then::Write { register, cells };
                    self.run(op, &[], false, then, stream, how, step)?;
                }
            }
            Step::TooMuch { stream, how } => {
                let op = zeros::<u8>(2 * QUOTA as usize)
                    .then(|x| fill(x, 1))
                    .map(|_| Output::Nothing)
                    .boxed();
                self.run(op, &[], true, Then::Nothing, stream, how, step)?;
            }
            Step::Hog { stream } => {
                let op = zeros::<u8>(QUOTA as usize / 5 * 2);
                let result = op.sync_on(&self.streams[stream]);
                let (may, must) = self.fails(&[]);
                let is_full = self.hogs.len() == 2;
                self.verdict(&result, may, must || is_full, step)?;
                match result {
                    Ok(hog) => self.hogs.push(hog),
                    Err(error) => {
                        if is_full
                            && self.health == Health::Well
                            && !matches!(error.root(), Error::OutOfMemory { .. })
                        {
                            return Err(format!("no memory is left: {error:?}"));
                        }
                        self.record_loss(&error);
                    }
                }
            }
            Step::DropHogs => self.hogs.clear(),
            Step::Join { back } => {
                if let Some(at) = self.in_flight.len().checked_sub(back + 1) {
                    self.join(at)?;
                }
            }
            Step::Drop { back } => {
                if let Some(at) = self.in_flight.len().checked_sub(back + 1) {
                    let of = self.in_flight.remove(at);
                    if let Awaited::Task(task) = of.awaited {
                        task.abort();
                        _ = self.runtime.block_on(task);
                    }
                    if of.is_fault {
                        self.fault();
                    }
                }
            }
            Step::Synchronize { stream } => self.synchronize(stream)?,
            Step::SynchronizeAll => {
                let (may, _) = self.fails(&[]);
                let result = self.device.synchronize();
                self.verdict(&result, may, false, step)?;
                match result {
                    Ok(()) => {
                        let registers = self.registers.iter_mut().chain([&mut self.output]);
                        for cell in registers.flat_map(|register| &mut register.cells) {
                            cell.is_settled = true;
                        }
                    }
                    Err(error) => self.record_loss(&error),
                }
            }
            Step::NewStream { stream } => {
                let new = self.device.new_stream();
                let (may, _) = self.fails(&[]);
                self.verdict(&new, may, false, step)?;
                if let Ok(new) = new {
                    self.streams[stream] = new;
                    self.reports[stream] = Reports::default();
                }
            }
            Step::Load => {
                let loaded = Kernels::load(&self.device);
                let (may, _) = self.fails(&[]);
                self.verdict(&loaded, may, false, step)?;
                if let Ok(kernels) = loaded {
                    self.kernels = kernels;
                }
            }
            Step::Reset => {
                self.device.reset().map_err(text)?;
                self.record_reset();
            }
            Step::StartReset => {
                self.resets.push(self.device.start_reset());
                self.record_reset();
            }
            Step::Rebind => self.relay.rebind().map_err(|error| error.to_string())?,
            Step::Pause { ms } => {
                self.relay.partition(true).map_err(|error| error.to_string())?;
                std::thread::sleep(Duration::from_millis(ms));
                self.relay.partition(false).map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }

    fn record_reset(&mut self) {
        self.health = Health::Well;
        self.epoch += 1;
        let may_come = |of: &InFlight| of.is_fault && matches!(of.awaited, Awaited::Task(_));
        if self.in_flight.iter().any(may_come) {
            self.fault();
        }
    }

    fn fails(&self, cells: &[Cell]) -> (bool, bool) {
        let (may, must) = fails(cells);
        (may || self.health != Health::Well, must || self.health == Health::Lost)
    }

    fn add(
        &mut self,
        awaited: Awaited,
        inputs: &[Cell],
        faults: bool,
        then: Then,
        step: &dyn std::fmt::Debug,
    ) {
        let (may_fail, _) = self.fails(inputs);
        let must_fail = fails(inputs).1 || faults;
        let (epoch, name) = (self.epoch, format!("{step:?}"));
        let faults = self.faults;
        self.in_flight.push(InFlight {
            awaited,
            may_fail,
            must_fail,
            faults,
            epoch,
            then,
            is_launch: false,
            is_fault: false,
            name,
        });
    }

    /// Runs an operation, and checks its result or adds it to those in flight. It reads the contents `inputs`, and no others
    /// of the program.
    #[expect(clippy::too_many_arguments)]
    fn run(
        &mut self,
        op: Op,
        inputs: &[Cell],
        has_to_fail: bool,
        then: Then,
        stream: usize,
        how: How,
        step: &dyn std::fmt::Debug,
    ) -> Result<(), Wrong> {
        let (may, must) = self.fails(inputs);
        let must = must || has_to_fail;
        match how {
            How::Sync => {
                let result = op.sync_on(&self.streams[stream]);
                self.verdict(&result, may, must, step)?;
                let epoch = self.epoch;
                self.ended(result, then, epoch)?;
            }
            How::Async | How::Raw => {
                // SAFETY: outputs are used only by operations of the library.
                let result = unsafe { op.async_on(&self.streams[stream]) };
                match result {
                    Ok(output) => {
                        if let (Then::Write { register, mut cells }, Output::Buffer(buffer)) =
                            (then, output)
                        {
                            cells.iter_mut().for_each(|cell| cell.may_be_lost |= may);
                            let of = &mut self.registers[register];
                            (of.buffer, of.cells) = (Some(Arc::new(buffer)), cells);
                            (of.version, of.may_be_refused) = (of.version + 1, may);
                            if must {
                                of.buffer = None;
                            }
                        }
                    }
                    Err(Error::Busy { .. }) => {}
                    Err(error) => {
                        self.verdict::<()>(&Err(error.clone()), may, must, step)?;
                        self.record_loss(&error);
                    }
                }
            }
            How::Later => {
                let future = op.schedule(&SingleStream::from(self.streams[stream].clone()));
                self.add(Awaited::Future(future), inputs, has_to_fail, then, step);
            }
            How::Spawn => {
                let policy = SingleStream::from(self.streams[stream].clone());
                let task = self.runtime.spawn(async move { op.schedule(&policy).await });
                self.add(Awaited::Task(task), inputs, has_to_fail, then, step);
            }
            How::Drop { polls } => {
                let future = op.schedule(&SingleStream::from(self.streams[stream].clone()));
                poll_some(future, polls);
            }
        }
        Ok(())
    }

    /// Records a submission through a stream handle. The next wait for the stream reports the first failure.
    fn submitted(&mut self, stream: usize, may_fail: bool, must_fail: bool) {
        let reports = &mut self.reports[stream];
        reports.is_busy = true;
        reports.may |= may_fail || must_fail;
        reports.must |= must_fail;
    }

    fn synchronize(&mut self, stream: usize) -> Result<(), Wrong> {
        let result = self.streams[stream].synchronize();
        let Reports { may, must, .. } = std::mem::take(&mut self.reports[stream]);
        let may = may || self.health != Health::Well;
        self.verdict(&result, may, must, &format!("a wait for stream {stream}"))?;
        if let Err(error) = result
            && matches!(error.root(), Error::DeviceLost { .. })
        {
            self.record_loss(&error);
        }
        Ok(())
    }

    fn join(&mut self, at: usize) -> Result<(), Wrong> {
        let of = self.in_flight.remove(at);
        if of.is_fault {
            self.fault();
        }
        let result = match of.awaited {
            Awaited::Future(future) => future.wait(),
            Awaited::Task(task) => match self.runtime.block_on(task) {
                Ok(result) => result,
                Err(error) => return Err(format!("{}: {error}", of.name)),
            },
            Awaited::Download(download) => {
                download.wait().map(|words| Output::Words(words.to_vec()))
            }
        };
        let may_fail = of.may_fail || self.faults > of.faults;
        self.verdict(&result, may_fail, of.must_fail, &of.name)?;
        self.ended(result, of.then, of.epoch)
    }

    fn ended(
        &mut self,
        result: Result<Output, Error>,
        then: Then,
        epoch: u64,
    ) -> Result<(), Wrong> {
        match (result, then) {
            (Ok(Output::Words(words)), Then::Read { cells, from }) => {
                let count = words.len() / cells.len();
                let mut seen = Vec::new();
                for (words, cell) in words.chunks(count).zip(&cells) {
                    let value = Value::of(words);
                    match value {
                        Some(value) if cell.values.contains(&value) => seen.push(value),
                        _ => {
                            return Err(format!(
                                "read {value:?}, {:x?}, expected {cell:?}",
                                &words[..words.len().min(16)]
                            ));
                        }
                    }
                }
                if let Some((place, version)) = from
                    && self.registers[place.register].version == version
                {
                    self.registers[place.register].may_be_refused = false;
                    let cells = &mut self.registers[place.register].cells[place.first..];
                    for (cell, value) in cells.iter_mut().zip(seen) {
                        *cell = Cell { is_settled: true, ..Cell::written(value) };
                    }
                }
            }
            (Ok(Output::Buffer(buffer)), Then::Write { register, mut cells }) => {
                for cell in &mut cells {
                    cell.is_settled = true;
                }
                let of = &mut self.registers[register];
                (of.buffer, of.cells) = (Some(Arc::new(buffer)), cells);
                (of.version, of.may_be_refused) = (of.version + 1, false);
            }
            (Ok(_), _) => {}
            (Err(error), _) => {
                if epoch == self.epoch {
                    self.record_loss(&error);
                }
            }
        }
        Ok(())
    }

    /// The contents of each unit of a register after a write that succeeds.
    fn written(&self, to: Place, write: Write) -> Vec<Cell> {
        let (first, unit) = (to.first, UNIT[to.register]);
        let of = |index: usize| match write {
            Write::Fill(word) => Cell::written(Value { first: word, step: 0 }),
            Write::Upload(first, step) => {
                let at = (index * unit) as u32;
                Cell::written(Value { first: first.wrapping_add(step.wrapping_mul(at)), step })
            }
            Write::Copy(from) => {
                let from = self.registers.get(from).unwrap_or(&self.output);
                Cell { is_settled: false, ..from.cells[first + index].clone() }
            }
            Write::Mad(add) => {
                let mut cell = self.registers[to.register].cells[first + index].clone();
                cell.values.iter_mut().for_each(|value| *value = value.mad(add));
                cell.is_settled = false;
                cell
            }
            Write::Trap | Write::Outside => Cell::lost(),
        };
        (0..to.count).map(of).collect()
    }

    fn write(&mut self, to: Place, write: Write, stream: usize, how: How) -> Result<(), Wrong> {
        let step = format!("{:?}", (to, write, stream, how));
        if !self.buffer(to.register)? {
            return Ok(());
        }
        let mut source = None;
        if let Write::Copy(from) = write {
            let is_output = from == REGISTERS;
            if from == to.register
                || UNIT[if is_output { 0 } else { from }] != UNIT[to.register]
                || is_output && self.output.buffer.is_none()
                || !is_output && !self.buffer(from)?
            {
                return Ok(());
            }
            if is_output {
                while let Some(at) = self.in_flight.iter().position(|of| of.is_launch) {
                    self.join(at)?;
                }
            }
            source = Some(from);
        }
        self.make_exclusive(to.register)?;
        // The wait may have replaced a buffer.
        if self.registers[to.register].buffer.is_none() {
            return Ok(());
        }
        let from = match source {
            None => None,
            Some(from) => {
                let of = self.registers.get(from).unwrap_or(&self.output);
                let Some(buffer) = &of.buffer else { return Ok(()) };
                Some(buffer.share(range(to)).map_err(text)?)
            }
        };
        let inputs = match write {
            Write::Copy(from) => {
                let of = self.registers.get(from).unwrap_or(&self.output);
                of.cells[to.first..to.first + to.count].to_vec()
            }
            Write::Mad(_) | Write::Trap | Write::Outside => self.cells(to),
            Write::Fill(_) | Write::Upload(..) => Vec::new(),
        };
        let is_fault = matches!(write, Write::Trap | Write::Outside);
        let new = self.written(to, write);
        let (may, must) = self.fails(&inputs);
        let may_be_refused = self.registers[to.register].may_be_refused;
        let (may, must) = (may || may_be_refused, must || is_fault);
        let kernels = self.kernels.clone();
        let units = to.first..to.first + to.count;
        // The buffer moves into the operation, but not that of the first register, which the graph uses.
        if matches!(how, How::Later | How::Spawn) && to.register > 0 {
            let buffer = self.registers[to.register].buffer.take().unwrap();
            let Ok(mut buffer) = Arc::try_unwrap(buffer) else {
                return Err("a buffer is still in use by an operation that has ended".into());
            };
            let mut cells = self.registers[to.register].cells.clone();
            cells[units].clone_from_slice(&new);
            self.registers[to.register].version += 1;
            let op = script(async move |cx| {
                cx.run(kernels.write(buffer.slice_mut(range(to))?, write, from)).await?;
                Ok(Output::Buffer(buffer))
            });
            let then = Then::Write { register: to.register, cells };
            let count = self.in_flight.len();
            self.run(op.boxed(), &inputs, is_fault, then, stream, how, &step)?;
            if let Some(of) = self.in_flight.get_mut(count) {
                of.may_fail |= may_be_refused;
                of.is_fault = is_fault;
            }
            if is_fault {
                self.fault();
            }
            return Ok(());
        }
        let Some(buffer) = Arc::get_mut(self.registers[to.register].buffer.as_mut().unwrap())
        else {
            return Err("a buffer is still in use by an operation that has ended".into());
        };
        let mut target = buffer.slice_mut(range(to)).map_err(text)?;
        let stream_of = &self.streams[stream];
        let policy = SingleStream::from(stream_of.clone());
        let is_raw = matches!(how, How::Raw)
            && matches!(write, Write::Fill(_) | Write::Upload(..) | Write::Copy(_));
        // The result, and whether a success is known.
        let (result, is_known) = if is_raw {
            let result = match write {
                Write::Fill(word) => target.fill(stream_of, word),
                Write::Upload(first, step) => {
                    let mut words = self.device.pinned_uninitialized(target.len()).map_err(text)?;
                    let value = Value { first, step };
                    words
                        .iter_mut()
                        .zip(value.elements(target.len()))
                        .for_each(|(to, of)| *to = of);
                    target.upload(stream_of, 0, words)
                }
                _ => target.copy_from(stream_of, from.as_ref().unwrap().as_slice()),
            };
            (result.map(drop), false)
        } else {
            let op = kernels.write(target, write, from);
            match how {
                How::Sync => (op.sync_on(stream_of).map(drop), true),
                How::Later | How::Spawn => (op.schedule(&policy).wait().map(drop), true),
                // SAFETY: outputs are used only by operations of the library.
                How::Async | How::Raw => (unsafe { op.async_on(stream_of) }.map(drop), false),
                How::Drop { polls } => {
                    poll_some(op.schedule(&policy), polls);
                    (Ok(()), false)
                }
            }
        };
        let old = self.registers[to.register].cells[units.clone()].to_vec();
        let mut cells = new;
        let is_dropped = matches!(how, How::Drop { .. });
        match &result {
            Ok(()) if is_known => {
                self.verdict(&result, may, must, &step)?;
                cells
                    .iter_mut()
                    .for_each(|cell| (cell.may_be_lost, cell.is_settled) = (false, true));
                self.registers[to.register].may_be_refused = false;
            }
            Ok(()) => {
                for (cell, old) in cells.iter_mut().zip(&old) {
                    cell.may_be_lost |= may;
                    if must {
                        *cell = Cell::lost();
                    }
                    if is_dropped {
                        *cell = cell.clone().or(old);
                        cell.may_be_lost |= may || must;
                        cell.is_settled = false;
                    }
                }
                if is_raw {
                    self.submitted(stream, may, must);
                }
            }
            Err(Error::Busy { .. }) if !is_known => return Ok(()),
            Err(error) => {
                self.verdict(&result, may, must, &step)?;
                self.record_loss(error);
                let has_run = is_known && matches!(error.root(), Error::Fault(_));
                cells = if has_run {
                    old.iter().map(|_| Cell::lost()).collect()
                } else {
                    old.into_iter().map(|old| Cell { may_be_lost: true, ..old }).collect()
                };
            }
        }
        let of = &mut self.registers[to.register];
        of.cells[units].clone_from_slice(&cells);
        of.version += 1;
        if is_fault {
            self.fault();
        }
        Ok(())
    }

    fn read(&mut self, from: Place, stream: usize, how: How) -> Result<(), Wrong> {
        if !self.buffer(from.register)? {
            return Ok(());
        }
        let step = format!("{:?}", (from, stream, how));
        let cells = self.cells(from);
        let of = &self.registers[from.register];
        let slice = of.buffer.as_ref().unwrap().share(range(from)).map_err(text)?;
        let then = Then::Read { cells: cells.clone(), from: Some((from, of.version)) };
        let op = to_host(slice).map(Output::Words).boxed();
        self.run(op, &cells, false, then, stream, how, &step)
    }

    fn launch(&mut self, stream: usize, how: How, step: &Step) -> Result<(), Wrong> {
        let inputs = self.registers[0].cells.to_vec();
        let (may, must) = self.fails(&inputs);
        while let Some(at) = self.in_flight.iter().position(|of| of.is_launch) {
            self.join(at)?;
        }
        let new: [Cell; UNITS] = std::array::from_fn(|unit| {
            let mut cell = Cell { is_settled: false, ..inputs[unit].clone() };
            cell.values.iter_mut().for_each(|value| *value = value.mad(GRAPH_ADD));
            cell.may_be_lost |= may;
            if must { Cell::lost() } else { cell }
        });
        let old = self.output.cells.clone();
        let either: [Cell; UNITS] = std::array::from_fn(|unit| {
            let mut cell = new[unit].clone().or(&old[unit]);
            cell.may_be_lost |= may;
            cell
        });
        let graph = self.graph.clone();
        if !matches!(how, How::Sync | How::Async | How::Raw) {
            // The output is read in the same operation, before another launch writes it.
            let read = graph.launch().then(to_host).map(Output::Words).boxed();
            self.output.cells = either;
            let then = Then::Read { cells: new.to_vec(), from: None };
            let count = self.in_flight.len();
            self.run(read, &inputs, false, then, stream, how, step)?;
            if let Some(of) = self.in_flight.get_mut(count) {
                of.is_launch = true;
            }
        } else {
            let on = &self.streams[stream];
            let result = match how {
                How::Sync => graph.launch().sync_on(on),
                // SAFETY: outputs are used only by operations of the library.
                _ => unsafe { graph.launch().async_on(on) },
            };
            let is_known = matches!(how, How::Sync);
            match &result {
                Ok(_) if is_known => {
                    self.verdict(&result, may, must, step)?;
                    self.output.cells =
                        new.map(|cell| Cell { may_be_lost: false, is_settled: true, ..cell });
                }
                Ok(_) => self.output.cells = new,
                Err(Error::Busy { .. } | Error::NeedsHostData { .. }) if !is_known => return Ok(()),
                Err(error) => {
                    self.verdict(&result, may, must, step)?;
                    self.record_loss(error);
                    self.output.cells = old.map(|cell| Cell { may_be_lost: true, ..cell });
                }
            }
        }
        if let Ok(output) = self.graph.take_output() {
            self.output.buffer = Some(output);
        }
        Ok(())
    }

    fn launch_trap(&mut self, stream: usize, how: How, step: &Step) -> Result<(), Wrong> {
        let inputs = self.registers[0].cells.to_vec();
        let op = self.trap_graph.launch().map(|_| Output::Nothing).boxed();
        let count = self.in_flight.len();
        self.run(op, &inputs, true, Then::Nothing, stream, how, step)?;
        if let Some(of) = self.in_flight.get_mut(count) {
            (of.is_launch, of.is_fault) = (true, true);
        }
        self.fault();
        Ok(())
    }

    /// Joins all operations in flight, resets the device, and checks that it works.
    pub fn finish(mut self) -> Result<(), Wrong> {
        while !self.in_flight.is_empty() {
            self.join(0)?;
        }
        self.device.reset().map_err(text)?;
        self.record_reset();
        for reset in std::mem::take(&mut self.resets) {
            reset.wait().map_err(text)?;
        }
        for stream in 0..STREAMS {
            self.synchronize(stream)?;
            self.synchronize(stream)?;
        }
        self.hogs.clear();
        for register in 0..REGISTERS {
            let all = Place { register, first: 0, count: UNITS };
            self.read(all, register % STREAMS, How::Sync)?;
            self.write(all, Write::Upload(7, 3), register % STREAMS, How::Async)?;
            self.write(all, Write::Mad(5), (register + 1) % STREAMS, How::Async)?;
            self.read(all, register % STREAMS, How::Sync)?;
        }
        let launch = Step::Launch { stream: 1, how: How::Later };
        self.step(&launch)?;
        while !self.in_flight.is_empty() {
            self.join(0)?;
        }
        for stream in 0..STREAMS {
            self.synchronize(stream)?;
        }
        Ok(())
    }

    /// Ends the lease while operations are in flight, and checks that each of them ends too.
    pub fn end_early(mut self, close: impl FnOnce()) -> Result<(), Wrong> {
        self.faults += 1;
        close();
        while !self.in_flight.is_empty() {
            self.join(0)?;
        }
        for reset in std::mem::take(&mut self.resets) {
            _ = reset.wait();
        }
        let error = zeros::<u8>(1).then(to_host).sync_on(&self.streams[0]);
        error.err().map(drop).ok_or_else(|| "a lease that has ended still works".into())
    }
}

pub fn run(world: &World, program: &Program) -> Result<(), Wrong> {
    let device = world.lease.device();
    let used = || device.memory().map(|memory| memory.used);
    let before = used().map_err(text)?;
    let mut machine = Machine::new(world)?;
    for (number, step) in program.steps.iter().enumerate() {
        machine.step(step).map_err(|wrong| format!("step {number}, {step:?}: {wrong}"))?;
    }
    machine.finish().map_err(|wrong| format!("the end: {wrong}"))?;
    device.synchronize().map_err(text)?;
    wait_until("all memory is free again", || used().is_ok_and(|used| used <= before));
    Ok(())
}

fn poll_some<S: cuda_async::op::Submit>(mut future: DeviceFuture<S>, polls: usize) {
    for _ in 0..polls {
        if Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            return;
        }
        std::thread::yield_now();
    }
}
