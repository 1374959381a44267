//! Random programs on tensors of integers, f32 and f64, compared with the reference bit by bit. The environment
//! variable `RANDOM_TENSOR_PROGRAMS` sets their number.

use cuda_tensor::{Binary, Comparison, FloatUnary, SharedTensor, Signed, Tensor, TensorOps, Unary};

use cuda_async::{Device, Stream, ops::BoxedOp, prelude::*};

use super::{
    BINARY,
    reference::{Arithmetic, Host},
};
use crate::on_every_device;

on_every_device! { random_programs_agree_with_the_reference }

/// The number of programs, for all types together, if the environment variable is not set.
const PROGRAMS: usize = 120;

fn random_programs_agree_with_the_reference(device: &Device) {
    let count = std::env::var("RANDOM_TENSOR_PROGRAMS");
    let count = count.map_or(PROGRAMS, |count| count.parse().unwrap());
    let streams: Vec<_> = (0..3).map(|_| device.new_stream().unwrap()).collect();
    for seed in 0..count as u64 {
        let mut program = Program { random: Random(seed), streams: &streams };
        match seed % 10 {
            0 => program.run_signed::<i8>(),
            1 => program.run::<u8>(),
            2 => program.run_signed::<i16>(),
            3 => program.run::<u16>(),
            4 => program.run_signed::<i32>(),
            5 => program.run::<u32>(),
            6 => program.run_signed::<i64>(),
            7 => program.run::<u64>(),
            8 => program.run_floats::<f32>(f32::sqrt, f32::floor, f32::ceil, f32::round_ties_even),
            _ => program.run_floats::<f64>(f64::sqrt, f64::floor, f64::ceil, f64::round_ties_even),
        }
    }
}

/// A sequence of random numbers: SplitMix64 (Steele and others, OOPSLA 2014).
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// A tensor with its reference.
type Pair<T> = (SharedTensor<T>, Host<T>);

struct Program<'a> {
    random: Random,
    streams: &'a [Stream],
}

const COMPARISONS: [Comparison; 6] = [
    Comparison::Eq,
    Comparison::Ne,
    Comparison::Lt,
    Comparison::Le,
    Comparison::Gt,
    Comparison::Ge,
];

impl Program<'_> {
    fn stream(&mut self) -> Stream {
        let stream = self.random.below(self.streams.len());
        self.streams[stream].clone()
    }

    fn source<T: Arithmetic>(&mut self) -> Pair<T> {
        let rank = self.random.below(4);
        let shape: Vec<_> = (0..rank).map(|_| self.random.pick(&[0, 1, 2, 3, 5, 40])).collect();
        let n = shape.iter().product();
        let elements: Vec<_> = (0..n).map(|_| T::random(self.random.bits())).collect();
        let host = Host::new(&shape, elements.clone());
        let tensor = Tensor::from_host(elements, shape).sync_on(&self.stream()).unwrap();
        (tensor.into_shared(), host)
    }

    fn view<T: Arithmetic>(&mut self, (x, host): Pair<T>) -> Pair<T> {
        let rank = host.shape.len();
        if rank == 0 {
            return (x, host);
        }
        let (a, b) = (self.random.below(rank), self.random.below(rank));
        match self.random.below(4) {
            0 => (x.transpose(a, b).unwrap(), host.transpose(a, b)),
            1 => {
                let end = self.random.below(host.shape[a] + 1);
                let start = self.random.below(end + 1);
                (x.slice(a, start..end).unwrap(), host.slice(a, start, end))
            }
            2 => {
                let at = self.random.below(rank + 1);
                let mut shape = host.shape.clone();
                shape.insert(at, 1);
                (x.unsqueeze(at).unwrap(), Host::new(&shape, host.elements))
            }
            _ => (x, host),
        }
    }

    /// Runs an operation, compares the result with the reference, and returns both.
    fn check<T: Arithmetic>(&mut self, op: BoxedOp<'static, Tensor<T>>, host: Host<T>) -> Pair<T> {
        let tensor = op.sync_on(&self.stream()).unwrap();
        let tensor = tensor.into_shared();
        let bits = |elements: &[T]| elements.iter().map(|x| x.bits()).collect::<Vec<_>>();
        let here = tensor.clone().to_host_vec().sync_on(&self.stream()).unwrap();
        assert_eq!(tensor.shape(), host.shape, "seed of {:?}", self.random.0);
        assert_eq!(bits(&here), bits(&host.elements), "{:?}", self.random.0);
        (tensor, host)
    }

    fn step<T: Arithmetic>(&mut self, pair: Pair<T>, float: bool) -> Pair<T> {
        let (x, host) = self.view(pair);
        let rank = host.shape.len();
        match self.random.below(9) {
            0 | 1 => {
                let operation = self.random.pick(&BINARY[..if float { 7 } else { 8 }]);
                let (other, of_other) = self.partner(&x, &host);
                if self.random.below(2) == 0 {
                    let op = x.map2(other, operation).boxed();
                    self.check(op, host.map2(&of_other, |a, b| T::binary(operation, a, b)))
                } else {
                    let op = other.map2(x, operation).boxed();
                    self.check(op, of_other.map2(&host, |a, b| T::binary(operation, a, b)))
                }
            }
            2 => {
                let operation = self.random.pick(&BINARY[..if float { 7 } else { 8 }]);
                let scalar = T::random(self.random.bits());
                if self.random.below(2) == 0 {
                    let op = x.map_scalar(operation, scalar).boxed();
                    self.check(op, host.map(|x| T::binary(operation, x, scalar)))
                } else {
                    let op = x.map_scalar_left(operation, scalar).boxed();
                    self.check(op, host.map(|x| T::binary(operation, scalar, x)))
                }
            }
            3 => {
                let comparison = self.random.pick(&COMPARISONS);
                let (other, of_other) = self.partner(&x, &host);
                let op = x.clone().compare(other.clone(), comparison).select(x, other).boxed();
                let mask = host.map2(&of_other, |a, b| T::holds(comparison, a, b));
                let both = host.map2(&of_other, |a, b| (a, b));
                self.check(op, mask.map2(&both, |mask, (a, b)| if mask { a } else { b }))
            }
            4 if rank > 0 => {
                let dim = self.random.below(rank);
                if host.shape[dim] == 0 {
                    return (x, host);
                }
                let max = self.random.below(2) == 0;
                let operation = if max { Binary::Max } else { Binary::Min };
                let folded = host.fold(dim, |row| {
                    row.iter().copied().reduce(|a, b| T::binary(operation, a, b)).unwrap()
                });
                // The sign of a zero depends on the order of the elements. Adding 0 makes it positive.
                let folded = folded.map(|x| T::binary(Binary::Add, x, zero()));
                let op = if max { x.max_dim(dim).boxed() } else { x.min_dim(dim).boxed() };
                self.check(op.add_scalar(zero()).boxed(), folded)
            }
            5 if rank > 0 && !float => {
                let dim = self.random.below(rank);
                let product = self.random.below(2) == 0;
                let (operation, start) =
                    if product { (Binary::Mul, T::ONE) } else { (Binary::Add, zero()) };
                let folded = host
                    .fold(dim, |row| row.iter().fold(start, |a, b| T::binary(operation, a, *b)));
                let op = if product { x.product_dim(dim).boxed() } else { x.sum_dim(dim).boxed() };
                self.check(op, folded)
            }
            6 => {
                let [low, high] = [(); 2].map(|()| T::random(self.random.bits()));
                let clamped = |x| T::binary(Binary::Min, high, T::binary(Binary::Max, low, x));
                self.check(x.clamp(low, high).boxed(), host.map(clamped))
            }
            7 => {
                let comparison = self.random.pick(&COMPARISONS);
                let scalar = T::random(self.random.bits());
                let mask = x.clone().compare_scalar(scalar, comparison);
                let op = mask.select(x, Tensor::full(scalar, ())).boxed();
                let chosen = |x| if T::holds(comparison, x, scalar) { x } else { scalar };
                self.check(op, host.map(chosen))
            }
            _ => self.check(x.dup().boxed(), host),
        }
    }

    /// Returns a tensor whose shape can be broadcast together with that of `x`.
    fn partner<T: Arithmetic>(&mut self, x: &SharedTensor<T>, host: &Host<T>) -> Pair<T> {
        match self.random.below(3) {
            0 => (x.clone(), host.clone()),
            1 => {
                let scalar = T::random(self.random.bits());
                let tensor = Tensor::full(scalar, ()).sync_on(&self.stream()).unwrap();
                (tensor.into_shared(), Host::new(&[], vec![scalar]))
            }
            _ => {
                let mut shape = host.shape.clone();
                for size in &mut shape {
                    if self.random.below(3) == 0 {
                        *size = 1;
                    }
                }
                let n = shape.iter().product();
                let elements: Vec<_> = (0..n).map(|_| T::random(self.random.bits())).collect();
                let host = Host::new(&shape, elements.clone());
                let tensor = Tensor::from_host(elements, shape).sync_on(&self.stream()).unwrap();
                (tensor.into_shared(), host)
            }
        }
    }

    fn run<T: Arithmetic>(&mut self) {
        let mut pair = self.source::<T>();
        for _ in 0..6 {
            pair = self.step(pair, false);
        }
    }

    fn run_signed<T: Arithmetic + Signed>(&mut self) {
        let mut pair = self.source::<T>();
        for _ in 0..4 {
            pair = self.step(pair, false);
            let operation = self.random.pick(&[Unary::Neg, Unary::Abs, Unary::Relu]);
            let host = pair.1.map(|x| T::unary(operation, x));
            pair = self.check(pair.0.map1(operation).boxed(), host);
        }
    }

    fn run_floats<T>(
        &mut self,
        sqrt: fn(T) -> T,
        floor: fn(T) -> T,
        ceil: fn(T) -> T,
        round: fn(T) -> T,
    ) where
        T: Arithmetic + cuda_tensor::Float,
    {
        let mut pair = self.source::<T>();
        for _ in 0..4 {
            pair = self.step(pair, true);
            let (operation, reference) = self.random.pick(&[
                (FloatUnary::Sqrt, sqrt),
                (FloatUnary::Floor, floor),
                (FloatUnary::Ceil, ceil),
                (FloatUnary::Round, round),
            ]);
            let host = pair.1.map(reference);
            pair = self.check(pair.0.map_float(operation).boxed(), host);
        }
    }
}

fn zero<T: Arithmetic>() -> T {
    T::binary(Binary::Sub, T::ONE, T::ONE)
}
