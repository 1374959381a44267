//! Builds operations from graphs.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use cuda_async::{
    BoxedOp, Device, DeviceBuffer, Error, Function, LaunchConfig, Op, join_all,
    kernel::{BufferTuple, KernelArg, Returned},
    launch,
    memory::{BufferSource, BufferTarget, copy, fill, read_back, upload_into},
    ops,
    prelude::*,
    script, uninitialized, value,
};
use cuda_core::{Arguments, Feature, SharedSlice, Slice, SliceMut};

use super::{
    program::{Change, Cut, Failure, Node, Round},
    reference::{LEN, changed, counted, source_range},
};
use crate::modules::load_ptx;

pub type Buffer = DeviceBuffer<u32>;

/// A buffer in one of its forms.
pub enum Held {
    Owned(Arc<Buffer>),
    /// Held by registers and by other users of a shared operation.
    Shared(Arc<Held>),
}

impl Held {
    pub fn new(buffer: Buffer) -> Self {
        Held::Owned(Arc::new(buffer))
    }

    /// Shares some elements.
    pub fn share(&self, range: Range<usize>) -> SharedSlice<u32> {
        match self {
            Held::Owned(buffer) => buffer.share(range).unwrap(),
            Held::Shared(shared) => shared.share(range),
        }
    }

    /// Returns the buffer if it has no other owner.
    fn exclusive(self) -> Result<Buffer, Held> {
        match self {
            Held::Owned(buffer) => Arc::try_unwrap(buffer).map_err(Held::Owned),
            Held::Shared(shared) => Arc::try_unwrap(shared).map_err(Held::Shared)?.exclusive(),
        }
    }
}

impl BufferSource for Held {
    type Element = u32;

    fn as_slice(&self) -> Slice<'_, u32> {
        match self {
            Held::Owned(buffer) => (**buffer).as_slice(),
            Held::Shared(shared) => shared.as_slice(),
        }
    }
}

/// Returns the buffer for reading.
impl KernelArg for Held {
    type GivenBack<Rest: BufferTuple> = Rest::Prepend<Self>;

    fn give_back<Rest: BufferTuple>(self, rest: Rest) -> Rest::Prepend<Self> {
        rest.prepend(self)
    }

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
        let module = load_ptx(device, include_str!("kernels.ptx")).unwrap();
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
        let run = move |x: Buffer| unsafe { launch(&k, BLOCK, (x, a, b, N)) };
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
        uninitialized(LEN)
            // SAFETY: reads a and b and writes c, all of `LEN` elements.
            .then(move |c: Buffer| unsafe { launch(&k, BLOCK, (a, b, c, N)) })
            .map(|(_, _, c)| c)
            .boxed()
    }

    pub fn fill(&self, x: Buffer, v: u32) -> BoxedOp<'static, Buffer> {
        // SAFETY: writes x, of `LEN` elements.
        unsafe { launch(&self.fill, BLOCK, (x, v, N)) }.boxed()
    }

    /// Returns the buffer itself, or a copy if it has other owners.
    pub fn own(&self, x: Held) -> BoxedOp<'static, Buffer> {
        match x.exclusive() {
            Ok(x) => value(x).boxed(),
            Err(x) => uninitialized(LEN).then(move |new| copy(x, new)).map(|(_, new)| new).boxed(),
        }
    }

    /// Applies a change to device memory.
    pub fn change<'a, T>(&self, target: T, change: Prepared) -> BoxedOp<'a, T>
    where
        T: BufferTarget<Element = u32> + BufferSource<Element = u32> + KernelArg + 'a,
    {
        let len = BufferSource::as_slice(&target).len();
        let n = len as u32;
        match change {
            Prepared::Mad(a, b) => {
                // SAFETY: reads and writes the target, of n elements.
                unsafe { launch(&self.mad, BLOCK, (Returned(target), a, b, n)) }.boxed()
            }
            Prepared::Fill(v) => fill(target, v).boxed(),
            Prepared::Count(v) => {
                // SAFETY: writes the target, of n elements.
                unsafe { launch(&self.fill, BLOCK, (Returned(target), v, n)) }.boxed()
            }
            Prepared::CountAndCopy(v) => {
                let fill = self.fill.clone();
                // SAFETY: writes x, of n elements.
                let count = move |x| unsafe { launch(&fill, BLOCK, (x, v, n)) };
                uninitialized(len)
                    .then(count)
                    .then(move |x: Buffer| copy(x, target))
                    .map(|(_, target)| target)
                    .boxed()
            }
            Prepared::Upload(v) => upload_into(target, counted(v)[..len].to_vec()).boxed(),
            Prepared::Copy(from) => copy(from, target).map(|(_, x)| x).boxed(),
            Prepared::Sum(a, b) => {
                // SAFETY: reads a and b and writes the target, all of n elements.
                unsafe { launch(&self.add, BLOCK, (a, b, Returned(target), n)) }
                    .map(|(_, _, x)| x)
                    .boxed()
            }
            Prepared::Host(v) => read_back(target)
                .then(move |(words, target)| {
                    let words: Vec<_> = words.iter().map(|word| word.wrapping_add(v)).collect();
                    upload_into(target, words)
                })
                .boxed(),
        }
    }

    /// Changes mutable slices of a buffer at the same time.
    fn pieces(&self, x: Held, cut: Cut, changes: Vec<Prepared>) -> BoxedOp<'static, Buffer> {
        let k = self.clone();
        let run = move |mut x: Buffer| {
            script(async move |cx| {
                if let Cut::At(mid) = cut {
                    let (first, second) = x.split_at_mut(mid)?;
                    let mut changes = changes.into_iter();
                    let mut changed = |at| changes.next().map(|change| k.change(at, change));
                    if let (Some(first), Some(second)) = (changed(first), changed(second)) {
                        cx.run(zip!(first, second)).await?;
                    }
                } else {
                    let changed = slices(&mut x, cut)?.into_iter().zip(changes);
                    cx.run(join_all(changed.map(|(at, change)| k.change(at, change)))).await?;
                }
                Ok(x)
            })
        };
        self.own(x).then(run).boxed()
    }

    /// Fills the elements before `at`, and copies the others from a shared slice.
    fn tail(&self, x: Held, at: usize, v: u32) -> BoxedOp<'static, Buffer> {
        let tail = x.share(at..LEN);
        uninitialized(LEN)
            .then(move |mut new: Buffer| {
                script(async move |cx| {
                    let (front, back) = new.split_at_mut(at)?;
                    cx.run(zip!(fill(front, v), copy(tail, back))).await?;
                    Ok(new)
                })
            })
            .boxed()
    }

    /// Splits a buffer into two owned parts and joins them in the other order.
    fn swap(&self, x: Held, mid: usize) -> BoxedOp<'static, Buffer> {
        let split = move |x: Buffer| {
            script(async move |cx| {
                let (first, second) = x.split_at(mid)?;
                let mut new: Buffer = cx.run(uninitialized(LEN)).await?;
                let (front, back) = new.split_at_mut(LEN - mid)?;
                cx.run(zip!(copy(second, front), copy(first, back))).await?;
                Ok(new)
            })
        };
        self.own(x).then(split).boxed()
    }

    fn zero(&self) -> BoxedOp<'static, Held> {
        zeros(LEN).map(Held::new).boxed()
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
        uninitialized(LEN)
            // SAFETY: writes x, of `LEN` elements, and reads the tape, which `slot` is on.
            .then(move |x: Buffer| unsafe { launch(&k, BLOCK, (x, slot, N)) })
            .map(Held::new)
            .boxed()
    }
}

/// A [`Change`] with the slices that it reads.
pub enum Prepared {
    Mad(u32, u32),
    Fill(u32),
    Count(u32),
    CountAndCopy(u32),
    Upload(u32),
    Copy(SharedSlice<u32>),
    Sum(SharedSlice<u32>, SharedSlice<u32>),
    Host(u32),
}

impl Prepared {
    /// Prepares a change of `len` elements.
    pub fn new(change: Change, len: usize, registers: &[Option<Arc<Held>>]) -> Self {
        let source = |register: usize, at| {
            registers[register].as_ref().unwrap().share(source_range(at, len))
        };
        match change {
            Change::Mad(a, b) => Prepared::Mad(a, b),
            Change::Fill(v) => Prepared::Fill(v),
            Change::Count(v) => Prepared::Count(v),
            Change::CountAndCopy(v) => Prepared::CountAndCopy(v),
            Change::Upload(v) => Prepared::Upload(v),
            Change::Copy { from, at } => Prepared::Copy(source(from, at)),
            Change::Sum { a, b, at } => Prepared::Sum(source(a, at), source(b, at)),
            Change::Host(v) => Prepared::Host(v),
        }
    }
}

/// Mutable slices of a buffer.
pub fn slices(x: &mut Buffer, cut: Cut) -> Result<Vec<SliceMut<'_, u32>>, Error> {
    match cut {
        Cut::At(mid) => x.split_at_mut(mid).map(|(first, second)| vec![first, second]),
        Cut::Every(size) => x.chunks_mut(size),
    }
}

/// Owned parts of a buffer.
pub fn parts(x: Buffer, cut: Cut) -> Result<Vec<Buffer>, Error> {
    match cut {
        Cut::At(mid) => x.split_at(mid).map(|(first, second)| vec![first, second]),
        Cut::Every(size) => x.chunks(size),
    }
}

pub type Built = BoxedOp<'static, Held>;
type Many = Op<ops::Shared<ops::Boxed<'static, Held>>>;

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
            Node::Upload(x) => h2d(vec![x; LEN]).map(Held::new).boxed(),
            Node::Uninitialized(x) => {
                uninitialized(LEN).then(move |b| k.fill(b, x)).map(Held::new).boxed()
            }
            Node::Register(register) => {
                value(Held::Shared(self.registers[register].clone().unwrap())).boxed()
            }
            Node::Mad(of, a, b) => self.op(of).then(move |x| k.mad(x, a, b)).map(Held::new).boxed(),
            Node::Add(a, b) => {
                zip!(self.op(a), self.op(b)).then(move |(a, b)| add(&k, a, b)).boxed()
            }
            Node::Sum(parts) => {
                let parts: Vec<_> = parts.iter().map(|part| self.op(*part)).collect();
                join_all(parts).then(move |parts| summed(&k, parts)).boxed()
            }
            Node::Host(of) => {
                self.op(of).then(to_host).map(changed).then(h2d).map(Held::new).boxed()
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
            Node::Pieces(of, cut, changes) => {
                let pieces = cut.ranges().into_iter().zip(changes.iter().cycle());
                let prepared = |(range, change): (Range<usize>, &Change)| {
                    Prepared::new(*change, range.len(), self.registers)
                };
                let changes = pieces.map(prepared).collect();
                self.op(of).then(move |x| k.pieces(x, cut, changes)).map(Held::new).boxed()
            }
            Node::Tail(of, at, v) => {
                self.op(of).then(move |x| k.tail(x, at, v)).map(Held::new).boxed()
            }
            Node::Swap(of, mid) => self.op(of).then(move |x| k.swap(x, mid)).map(Held::new).boxed(),
            Node::Fail(of, failure) => failing(&k, self.op(of), failure),
        }
    }
}

fn add(k: &Kernels, a: Held, b: Held) -> Built {
    k.add(a, b).map(Held::new).boxed()
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
        Failure::Error => Err(Error::unsupported(Feature::Work, "a random program")),
        // Not `panic!`, which would print thousands of reports.
        Failure::Panic => std::panic::resume_unwind(Box::new("on purpose")),
        // SAFETY: refused before anything runs.
        Failure::Arguments => Ok(unsafe { launch(&k, BLOCK, (x, 1u32)) }),
    })
    .boxed()
}
