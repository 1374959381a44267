//! Builds operations from graphs.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use cuda_async::{
    BoxedOp, Device, DeviceBuffer, Error, Function, LaunchConfig, Op, join_all, kernel::KernelArg,
    launch, memory::BufferSource, op::Submit, ops, prelude::*, uninitialised, value,
};
use cuda_core::{Arguments, Slice};

use super::{
    program::{Failure, Node, Round},
    reference::{LEN, changed},
};

pub type Buffer = DeviceBuffer<u32>;

/// A buffer in one of its forms.
pub enum Held {
    Owned(Buffer),
    /// Held by registers and by other users of a shared operation.
    Shared(Arc<Held>),
}

impl Held {
    /// Returns the buffer if it has no other owner.
    fn exclusive(self) -> Result<Buffer, Held> {
        match self {
            Held::Owned(buffer) => Ok(buffer),
            Held::Shared(shared) => Arc::try_unwrap(shared).map_err(Held::Shared)?.exclusive(),
        }
    }
}

impl BufferSource for Held {
    type Element = u32;

    fn as_slice(&self) -> Slice<'_, u32> {
        match self {
            Held::Owned(buffer) => buffer.as_slice(),
            Held::Shared(shared) => shared.as_slice(),
        }
    }
}

/// Returns the buffer for reading.
impl KernelArg for Held {
    fn push<'a>(&'a self, arguments: &mut Arguments<'a>) {
        arguments.slice(self.as_slice());
    }
}

#[derive(Clone)]
pub struct Kernels {
    mad: Function,
    add: Function,
    fill: Function,
    tape_set: Function,
    tape_get: Function,
    /// The used places on the tape. Each is written once in a turn.
    slots: Arc<AtomicU32>,
}

const SLOTS: u32 = 1 << 16;
const BLOCK: LaunchConfig = LaunchConfig::new(1, 32);
const N: u32 = LEN as u32;

impl Kernels {
    pub fn load(device: &Device) -> Self {
        let module = device.load_ptx(include_str!("kernels.ptx")).unwrap();
        let function = |name| module.function(name).unwrap();
        Self {
            mad: function("mad"),
            add: function("add"),
            fill: function("fill"),
            tape_set: function("tape_set"),
            tape_get: function("tape_get"),
            slots: Arc::default(),
        }
    }

    /// Computes `x * a + b`, in place if possible.
    pub fn mad(&self, x: Held, a: u32, b: u32) -> BoxedOp<'static, Buffer> {
        let k = self.mad.clone();
        // SAFETY: reads and writes x, of `LEN` elements.
        let run = move |x: Buffer| unsafe { launch(&k, BLOCK, (x, a, b, N)) }.map(|(x, ..)| x);
        match x.exclusive() {
            Ok(x) => run(x).boxed(),
            Err(x) => zip!(self.zero(), value(x))
                .then({
                    let k = self.clone();
                    move |(zero, x)| k.add(zero, x)
                })
                .then(run)
                .boxed(),
        }
    }

    pub fn add(&self, a: Held, b: Held) -> BoxedOp<'static, Buffer> {
        let k = self.add.clone();
        uninitialised(LEN)
            // SAFETY: reads a and b and writes c, all of `LEN` elements.
            .then(move |c: Buffer| unsafe { launch(&k, BLOCK, (a, b, c, N)) })
            .map(|(_, _, c, _)| c)
            .boxed()
    }

    pub fn fill(&self, x: Buffer, v: u32) -> BoxedOp<'static, Buffer> {
        // SAFETY: writes x, of `LEN` elements.
        unsafe { launch(&self.fill, BLOCK, (x, v, N)) }.map(|(x, ..)| x).boxed()
    }

    fn zero(&self) -> BoxedOp<'static, Held> {
        zeros(LEN).map(Held::Owned).boxed()
    }

    fn slot(&self) -> u32 {
        self.slots.fetch_add(1, Ordering::Relaxed) % SLOTS
    }

    fn tape_set(&self, slot: u32, v: u32) -> BoxedOp<'static, ()> {
        // SAFETY: the tape is the module's own, and `slot` is on it.
        unsafe { launch(&self.tape_set, BLOCK, (slot, v)) }.map(drop).boxed()
    }

    fn tape_get(&self, slot: u32) -> BoxedOp<'static, Held> {
        let k = self.tape_get.clone();
        uninitialised(LEN)
            // SAFETY: writes x, of `LEN` elements, and reads the tape, which `slot` is on.
            .then(move |x: Buffer| unsafe { launch(&k, BLOCK, (x, slot, N)) })
            .map(|(x, ..)| Held::Owned(x))
            .boxed()
    }
}

pub type Built = BoxedOp<'static, Held>;
type Many = Op<ops::Shared<Box<dyn Submit<Output = Held>>>>;

/// Builds the operations of one graph.
pub struct Builder<'a> {
    kernels: Kernels,
    round: &'a Round,
    registers: &'a [Option<Arc<Held>>],
    uses: Vec<usize>,
    shared: Vec<Option<Many>>,
    slots: Vec<u32>,
}

impl<'a> Builder<'a> {
    pub fn new(kernels: &Kernels, round: &'a Round, registers: &'a [Option<Arc<Held>>]) -> Self {
        let slots = round.nodes.iter().map(|_| kernels.slot()).collect();
        let shared = round.nodes.iter().map(|_| None).collect();
        Self { kernels: kernels.clone(), round, registers, uses: round.uses(), shared, slots }
    }

    pub fn op(&mut self, node: usize) -> Built {
        if self.uses[node] < 2 {
            return self.single(node);
        }
        if self.shared[node].is_none() {
            self.shared[node] = Some(self.single(node).shared());
        }
        let shared = self.shared[node].clone().unwrap();
        shared.map(Held::Shared).boxed()
    }

    fn single(&mut self, node: usize) -> Built {
        let (k, slot) = (self.kernels.clone(), self.slots[node]);
        match self.round.nodes[node].clone() {
            Node::Upload(x) => h2d(vec![x; LEN]).map(Held::Owned).boxed(),
            Node::Uninitialised(x) => {
                uninitialised(LEN).then(move |b| k.fill(b, x)).map(Held::Owned).boxed()
            }
            Node::Register(register) => {
                value(Held::Shared(self.registers[register].clone().unwrap())).boxed()
            }
            Node::Mad(of, a, b) => {
                self.op(of).then(move |x| k.mad(x, a, b)).map(Held::Owned).boxed()
            }
            Node::Add(a, b) => {
                zip!(self.op(a), self.op(b)).then(move |(a, b)| add(&k, a, b)).boxed()
            }
            Node::Sum(parts) => {
                let parts: Vec<_> = parts.iter().map(|part| self.op(*part)).collect();
                join_all(parts).then(move |parts| summed(&k, parts)).boxed()
            }
            Node::Host(of) => {
                self.op(of).then(to_host).map(changed).then(h2d).map(Held::Owned).boxed()
            }
            Node::Fork(of, v) => self.op(of).then(move |x| forked(k, x, slot, v)).boxed(),
            Node::Join(of, v) => joined(k, self.op(of), slot, v),
            Node::Mark(of, v) => {
                self.op(of).then(move |x| k.tape_set(slot, v).map(move |()| x)).boxed()
            }
            Node::Told(of) => {
                let slot = self.slots[of];
                // The tape first, so that the buffer's own access history does not order it.
                let told = move |x| k.tape_get(slot).then(move |told| add(&k, told, x));
                self.op(of).then(told).boxed()
            }
            Node::Fail(of, failure) => failing(&k, self.op(of), failure),
        }
    }
}

fn add(k: &Kernels, a: Held, b: Held) -> Built {
    k.add(a, b).map(Held::Owned).boxed()
}

fn summed(k: &Kernels, parts: Vec<Held>) -> Built {
    parts.into_iter().fold(k.zero(), |sum, part| {
        let k = k.clone();
        sum.then(move |sum| add(&k, sum, part)).boxed()
    })
}

fn forked(k: Kernels, x: Held, slot: u32, v: u32) -> Built {
    let both = k.clone();
    k.tape_set(slot, v)
        .then(move |()| {
            let get = || both.tape_get(slot);
            zip!(get(), zip!(get(), get()))
        })
        .then(move |(a, (b, c))| summed(&k, vec![a, b, c, x]))
        .boxed()
}

fn joined(k: Kernels, of: Built, slot: u32, v: u32) -> Built {
    zip!(of, zip!(value(()), k.tape_set(slot, v)))
        .then(move |(x, _)| k.tape_get(slot).then(move |told| add(&k, told, x)))
        .boxed()
}

fn failing(k: &Kernels, of: Built, failure: Failure) -> Built {
    let k = k.mad.clone();
    of.then(move |x| match failure {
        Failure::Error => Err(Error::unsupported("failing on purpose", "a random program")),
        // Not `panic!`, which would print thousands of reports.
        Failure::Panic => std::panic::resume_unwind(Box::new("on purpose")),
        // SAFETY: refused before anything runs.
        Failure::Arguments => Ok(unsafe { launch(&k, BLOCK, (x, 1u32)) }.map(|(x, _)| x)),
    })
    .boxed()
}
