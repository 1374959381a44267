//! Tensors on the host, in plain Rust: the reference for tensors on devices.

use cuda_async::tensor::{Binary, Comparison, Number, Unary};

/// A tensor in row-major order.
#[derive(Debug, Clone, PartialEq)]
pub struct Host<T> {
    pub shape: Vec<usize>,
    pub elements: Vec<T>,
}

impl<T: Copy> Host<T> {
    pub fn new(shape: &[usize], elements: Vec<T>) -> Self {
        assert_eq!(shape.iter().product::<usize>(), elements.len());
        Self { shape: shape.to_vec(), elements }
    }

    fn index(&self, index: &[usize]) -> T {
        let place = index.iter().zip(&self.shape).fold(0, |place, (i, size)| place * size + i);
        self.elements[place]
    }

    /// Returns a tensor of `shape`. `from` maps each of its indices to an index of this tensor.
    fn pick(&self, shape: Vec<usize>, from: impl Fn(&[usize]) -> Vec<usize>) -> Self {
        let elements = indices(&shape).map(|index| self.index(&from(&index))).collect();
        Self { shape, elements }
    }

    pub fn transpose(&self, a: usize, b: usize) -> Self {
        let swap = |index: &[usize]| {
            let mut index = index.to_vec();
            index.swap(a, b);
            index
        };
        self.pick(swap(&self.shape), swap)
    }

    pub fn slice(&self, dim: usize, start: usize, end: usize) -> Self {
        let mut shape = self.shape.clone();
        shape[dim] = end - start;
        self.pick(shape, |index| {
            let mut index = index.to_vec();
            index[dim] += start;
            index
        })
    }

    pub fn broadcast(&self, shape: &[usize]) -> Self {
        self.pick(shape.to_vec(), |index| {
            let index = &index[index.len() - self.shape.len()..];
            index.iter().zip(&self.shape).map(|(i, size)| if *size == 1 { 0 } else { *i }).collect()
        })
    }

    pub fn map<U>(&self, f: impl Fn(T) -> U) -> Host<U> {
        Host { shape: self.shape.clone(), elements: self.elements.iter().map(|x| f(*x)).collect() }
    }

    pub fn map2<U: Copy, V>(&self, other: &Host<U>, f: impl Fn(T, U) -> V) -> Host<V> {
        let rank = self.shape.len().max(other.shape.len());
        let size = |shape: &[usize], dim: usize| {
            (dim + shape.len()).checked_sub(rank).map_or(1, |dim| shape[dim])
        };
        let shape: Vec<_> = (0..rank)
            .map(|dim| match (size(&self.shape, dim), size(&other.shape, dim)) {
                (1, other) => other,
                (own, _) => own,
            })
            .collect();
        let (a, b) = (self.broadcast(&shape), other.broadcast(&shape));
        let elements = a.elements.iter().zip(&b.elements).map(|(a, b)| f(*a, *b)).collect();
        Host { shape, elements }
    }

    /// Reduces each row along dimension `dim` with `f`.
    pub fn fold<U>(&self, dim: usize, f: impl Fn(&[T]) -> U) -> Host<U> {
        let mut shape = self.shape.clone();
        let size = shape.remove(dim);
        let elements = indices(&shape)
            .map(|index| {
                let row: Vec<_> = (0..size)
                    .map(|i| {
                        let mut index = index.clone();
                        index.insert(dim, i);
                        self.index(&index)
                    })
                    .collect();
                f(&row)
            })
            .collect();
        Host { shape, elements }
    }
}

/// All indices of a shape in row-major order.
fn indices(shape: &[usize]) -> impl Iterator<Item = Vec<usize>> {
    let n: usize = shape.iter().product();
    let shape = shape.to_vec();
    (0..n).map(move |mut n| {
        let mut index = vec![0; shape.len()];
        for (dim, size) in shape.iter().enumerate().rev() {
            index[dim] = n % size;
            n /= size;
        }
        index
    })
}

/// Arithmetic on the host with the rules of tensors.
pub trait Arithmetic: Number + PartialOrd {
    fn binary(operation: Binary, a: Self, b: Self) -> Self;
    fn unary(operation: Unary, x: Self) -> Self;
    fn holds(comparison: Comparison, a: Self, b: Self) -> bool {
        match comparison {
            Comparison::Eq => a == b,
            Comparison::Ne => a != b,
            Comparison::Lt => a < b,
            Comparison::Le => a <= b,
            Comparison::Gt => a > b,
            Comparison::Ge => a >= b,
        }
    }
    /// A number from random bits. Special values are frequent.
    fn random(bits: u64) -> Self;
    /// The bits. All NaNs have the same.
    fn bits(self) -> u64;
}

macro_rules! integers {
    ($($ty:ident)*) => {$(
        impl Arithmetic for $ty {
            fn binary(operation: Binary, a: Self, b: Self) -> Self {
                match operation {
                    Binary::Add => a.wrapping_add(b),
                    Binary::Sub => a.wrapping_sub(b),
                    Binary::Mul => a.wrapping_mul(b),
                    Binary::Div if b == 0 => 0,
                    Binary::Div => a.wrapping_div(b),
                    Binary::Rem if b == 0 => 0,
                    Binary::Rem => a.wrapping_rem(b),
                    Binary::Max => a.max(b),
                    Binary::Min => a.min(b),
                    Binary::Pow => integer_power(a, b),
                    _ => unreachable!("{operation:?}"),
                }
            }

            fn unary(operation: Unary, x: Self) -> Self {
                match operation {
                    Unary::Neg => (0 as $ty).wrapping_sub(x),
                    #[allow(unused_comparisons)]
                    Unary::Abs => if x < 0 { (0 as $ty).wrapping_sub(x) } else { x },
                    Unary::Relu => x.max(0),
                    _ => unreachable!("{operation:?}"),
                }
            }

            fn random(bits: u64) -> Self {
                match bits % 8 {
                    0 => 0,
                    1 => $ty::MIN,
                    2 => $ty::MAX,
                    3 => (0 as $ty).wrapping_sub(1),
                    4 | 5 => (bits >> 8) as $ty % 10,
                    _ => (bits >> 3) as $ty,
                }
            }

            fn bits(self) -> u64 {
                self as u64
            }
        }
    )*};
}

/// `a` to the power of `b`, wrapping, by the rules of `Binary::Pow`.
fn integer_power<T: Arithmetic>(a: T, b: T) -> T {
    let zero = T::binary(Binary::Sub, T::ONE, T::ONE);
    let two = T::binary(Binary::Add, T::ONE, T::ONE);
    if b < zero {
        let odd = T::binary(Binary::Rem, b, two) != zero;
        return match a {
            a if a == T::ONE => T::ONE,
            a if a == T::binary(Binary::Sub, zero, T::ONE) => {
                if odd {
                    a
                } else {
                    T::ONE
                }
            }
            _ => zero,
        };
    }
    let (mut left, mut base, mut result) = (b, a, T::ONE);
    while left > zero {
        if T::binary(Binary::Rem, left, two) != zero {
            result = T::binary(Binary::Mul, result, base);
        }
        base = T::binary(Binary::Mul, base, base);
        left = T::binary(Binary::Div, left, two);
    }
    result
}

integers!(i8 u8 i16 u16 i32 u32 i64 u64);

macro_rules! floats {
    ($($ty:ident)*) => {$(
        impl Arithmetic for $ty {
            fn binary(operation: Binary, a: Self, b: Self) -> Self {
                match operation {
                    Binary::Add => a + b,
                    Binary::Sub => a - b,
                    Binary::Mul => a * b,
                    Binary::Div => a / b,
                    Binary::Rem => a % b,
                    Binary::Max if a > b || a.is_nan() => a,
                    Binary::Min if a < b || a.is_nan() => a,
                    Binary::Max | Binary::Min => b,
                    _ => unreachable!("{operation:?}"),
                }
            }

            fn unary(operation: Unary, x: Self) -> Self {
                match operation {
                    Unary::Neg => -x,
                    Unary::Abs => x.abs(),
                    Unary::Relu => if x < 0.0 { 0.0 } else { x },
                    _ => unreachable!("{operation:?}"),
                }
            }

            fn random(bits: u64) -> Self {
                match bits % 12 {
                    0 => 0.0,
                    1 => -0.0,
                    2 => $ty::INFINITY,
                    3 => $ty::NAN,
                    4 => $ty::MIN_POSITIVE / 3.0,
                    5 => $ty::from_bits((bits >> 7) as _),
                    _ => (bits >> 4) as u32 as i32 as $ty / 1024.0,
                }
            }

            fn bits(self) -> u64 {
                if self.is_nan() { u64::MAX } else { self.to_bits().into() }
            }
        }
    )*};
}

floats!(f32 f64);
