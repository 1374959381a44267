//! Random programs of captures, pools, slots, launches and drops of handles give the contents of a model in which every
//! buffer has memory of its own.
//!
//! Captures overlap, so one recording uses memory that another one has allocated, and handles are dropped in between. A
//! wrong owner of memory then shows as a wrong value.

use std::{collections::HashMap, sync::Arc};

use cuda_async::{
    Device, DeviceBuffer, Function, LaunchConfig, Stream,
    graph::{
        Capture, CapturePool, CapturedGraph, begin_capture, begin_capture_with_pool, end_capture,
    },
    launch,
    memory::{copy, fill},
    prelude::*,
};

use crate::{modules::load_ptx, on_every_device, random_programs::Random};

on_every_device! { overlapping_captures_agree_with_a_model }

const LEN: usize = 8;
const SEEDS: u64 = 12;
const STEPS: usize = 80;

type Buffer = DeviceBuffer<u32>;

/// The number of a buffer in the model.
type Id = usize;

/// Work on buffers, live or recorded.
#[derive(Debug, Clone, Copy)]
enum Work {
    Fill(Id, u32),
    Add(Id, u32),
    Copy(Id, Id),
}

/// The contents of every buffer. `None` if they are unspecified: a buffer of a capture has no values before a launch.
#[derive(Default)]
struct Model(Vec<Option<u32>>);

impl Model {
    fn add(&mut self) -> Id {
        self.0.push(None);
        self.0.len() - 1
    }

    fn run(&mut self, work: Work, bound: &HashMap<Id, Id>) {
        let of = |id: Id| bound.get(&id).copied().unwrap_or(id);
        match work {
            Work::Fill(to, value) => self.0[of(to)] = Some(value),
            Work::Add(to, value) => {
                self.0[of(to)] = self.0[of(to)].map(|old| old.wrapping_add(value));
            }
            Work::Copy(from, to) => self.0[of(to)] = self.0[of(from)],
        }
    }
}

/// A handle of a buffer. A slot shares what it replaces.
enum Handle {
    Owned(Buffer),
    Shared(Arc<Buffer>),
}

impl Handle {
    fn buffer(&self) -> &Buffer {
        match self {
            Handle::Owned(buffer) => buffer,
            Handle::Shared(buffer) => buffer,
        }
    }
}

struct Open {
    capture: Capture,
    work: Vec<Work>,
}

struct Graph {
    graph: CapturedGraph,
    work: Vec<Work>,
    /// The buffers in the slots, by the recorded ones.
    bound: HashMap<Id, Id>,
}

struct Program {
    random: Random,
    streams: Vec<Stream>,
    add: Function,
    pools: [Arc<CapturePool>; 2],
    model: Model,
    handles: Vec<(Id, Handle)>,
    open: Vec<Open>,
    graphs: Vec<Graph>,
}

impl Program {
    fn new(device: &Device, seed: u64) -> Self {
        let basic = load_ptx(device, include_str!("../../../kernels/basic.ptx")).unwrap();
        Self {
            random: Random(seed),
            streams: (0..3).map(|_| device.new_stream().unwrap()).collect(),
            add: basic.function("add_scalar_u32").unwrap(),
            pools: [CapturePool::new(), CapturePool::new()],
            model: Model::default(),
            handles: Vec::new(),
            open: Vec::new(),
            graphs: Vec::new(),
        }
    }

    fn stream(&mut self) -> Stream {
        self.streams[self.random.below(3)].clone()
    }

    /// Draws an index of a list, or `None` if it is empty.
    fn index(&mut self, len: usize) -> Option<usize> {
        (len > 0).then(|| self.random.below(len))
    }

    fn step(&mut self) {
        match self.random.below(20) {
            0 | 1 if self.open.len() < 3 => self.begin(),
            0..=2 => self.live_buffer(),
            3..=5 => _ = self.allocate_in_capture(),
            6..=9 => _ = self.record(),
            10 | 11 => _ = self.run_live(),
            12 | 13 => _ = self.drop_handle(),
            14 => _ = self.end(),
            15 | 16 => _ = self.launch(),
            17 => _ = self.bind(),
            18 => _ = self.read(),
            _ => _ = self.drop_graph(),
        }
    }

    fn begin(&mut self) {
        let stream = self.stream();
        let capture = match self.random.below(3) {
            2 => begin_capture(&stream),
            pool => begin_capture_with_pool(&stream, &self.pools[pool]),
        };
        self.open.push(Open { capture: capture.unwrap(), work: Vec::new() });
    }

    fn live_buffer(&mut self) {
        let (stream, value) = (self.stream(), self.value());
        let buffer = h2d(vec![value; LEN]).sync_on(&stream).unwrap();
        let id = self.model.add();
        self.model.run(Work::Fill(id, value), &HashMap::new());
        self.handles.push((id, Handle::Owned(buffer)));
    }

    fn value(&mut self) -> u32 {
        self.random.below(1000) as u32
    }

    fn allocate_in_capture(&mut self) -> Option<()> {
        let (at, value) = (self.index(self.open.len())?, self.value());
        let Open { capture, work } = &mut self.open[at];
        let filled = zeros::<u32>(LEN).then(move |x| fill(x, value));
        let buffer = capture.record(filled).unwrap();
        let id = self.model.add();
        work.push(Work::Fill(id, value));
        self.handles.push((id, Handle::Owned(buffer)));
        Some(())
    }

    fn record(&mut self) -> Option<()> {
        let at = self.index(self.open.len())?;
        let work = self.with_work(|capture, op| capture.unwrap().record(op).unwrap(), Some(at))?;
        self.open[at].work.push(work);
        Some(())
    }

    fn run_live(&mut self) -> Option<()> {
        let stream = self.stream();
        let work = self.with_work(|_, op| op.sync_on(&stream).unwrap(), None)?;
        self.model.run(work, &HashMap::new());
        Some(())
    }

    /// Draws work, and passes it to `run`.
    fn with_work(
        &mut self,
        run: impl for<'a> FnOnce(Option<&Capture>, cuda_async::BoxedOp<'a, ()>),
        capture: Option<usize>,
    ) -> Option<Work> {
        let (kind, value) = (self.random.below(3), self.value());
        let owned = |(_, handle): &(Id, Handle)| matches!(handle, Handle::Owned(_));
        let targets: Vec<_> =
            (0..self.handles.len()).filter(|at| owned(&self.handles[*at])).collect();
        let to = targets[self.index(targets.len())?];
        let from = self.index(self.handles.len())?;
        let capture = capture.map(|at| &self.open[at].capture);
        let (id, source) = (self.handles[to].0, self.handles[from].0);
        if kind == 2 {
            let [to, from] = self.handles.get_disjoint_mut([to, from]).ok()?;
            let Handle::Owned(target) = &mut to.1 else { return None };
            run(capture, copy(from.1.buffer(), target).map(drop).boxed());
            return Some(Work::Copy(source, id));
        }
        let Handle::Owned(target) = &mut self.handles[to].1 else { return None };
        if kind == 0 {
            run(capture, fill(target, value).map(drop).boxed());
            return Some(Work::Fill(id, value));
        }
        let config = LaunchConfig::for_num_elems(LEN as u32);
        // SAFETY: reads and writes the target, of `LEN` elements.
        let op = unsafe { launch(&self.add, config, (target, value, LEN as u32)) };
        run(capture, op.map(drop).boxed());
        Some(Work::Add(id, value))
    }

    fn drop_handle(&mut self) -> Option<()> {
        let at = self.index(self.handles.len())?;
        self.handles.swap_remove(at);
        Some(())
    }

    fn end(&mut self) -> Option<()> {
        let at = self.index(self.open.len())?;
        let Open { capture, work } = self.open.swap_remove(at);
        if self.random.below(8) == 0 {
            // A capture that is dropped has no effect.
            return Some(());
        }
        let graph = end_capture(capture).unwrap();
        if self.random.below(2) == 0 {
            graph.upload().unwrap();
        }
        self.graphs.push(Graph { graph, work, bound: HashMap::new() });
        Some(())
    }

    fn launch(&mut self) -> Option<()> {
        let (at, stream) = (self.index(self.graphs.len())?, self.stream());
        let waits = self.random.below(3) == 0;
        let Graph { graph, work, bound } = &self.graphs[at];
        let mut is_launched = false;
        if !waits {
            // SAFETY: only the library uses the buffers of the graph.
            is_launched = unsafe { graph.launch().async_on(&stream) }.is_ok();
        }
        if !is_launched {
            graph.launch().sync_on(&stream).unwrap();
        }
        work.iter().for_each(|work| self.model.run(*work, bound));
        Some(())
    }

    /// Puts a buffer into a slot. Most buffers are refused: the graph may not use them, or use them elsewhere.
    fn bind(&mut self) -> Option<()> {
        let graph = self.index(self.graphs.len())?;
        let (recorded, other) = (self.index(self.handles.len())?, self.index(self.handles.len())?);
        if recorded == other {
            return None;
        }
        let Graph { graph, bound, .. } = &mut self.graphs[graph];
        let slot = graph.slot(self.handles[recorded].1.buffer()).ok()?;
        let recorded = self.handles[recorded].0;
        let (id, handle) = self.handles.swap_remove(other);
        let (shared, is_bound) = match handle {
            Handle::Shared(shared) => {
                let set = slot.set(&shared);
                (Some(shared), set.is_ok())
            }
            Handle::Owned(buffer) => match slot.replace(buffer) {
                Ok(shared) => (Some(shared), true),
                // The buffer is dropped.
                Err(_) => (None, false),
            },
        };
        self.handles.extend(shared.map(|shared| (id, Handle::Shared(shared))));
        if is_bound {
            bound.insert(recorded, id);
        }
        Some(())
    }

    fn read(&mut self) -> Option<()> {
        let at = self.index(self.handles.len())?;
        self.check(at);
        Some(())
    }

    fn check(&mut self, at: usize) {
        let stream = self.stream();
        let (id, handle) = &self.handles[at];
        let words = to_host(handle.buffer()).sync_on(&stream).unwrap();
        if let Some(expected) = self.model.0[*id] {
            assert_eq!(words, [expected; LEN], "buffer {id}");
        }
    }

    fn drop_graph(&mut self) -> Option<()> {
        if self.random.below(4) == 0 {
            self.pools[self.random.below(2)].clear();
        }
        let at = self.index(self.graphs.len())?;
        self.graphs.swap_remove(at);
        Some(())
    }
}

fn overlapping_captures_agree_with_a_model(device: &Device) {
    for seed in 0..SEEDS {
        let mut program = Program::new(device, seed);
        for step in 0..STEPS {
            let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| program.step()));
            ran.unwrap_or_else(|_| panic!("seed {seed}, step {step}"));
        }
        // Every graph once more, so that all memory that is shared in error is written.
        while program.end().is_some() {}
        (0..8).for_each(|_| _ = program.launch());
        (0..program.handles.len()).for_each(|at| program.check(at));
    }
}
