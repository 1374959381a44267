//! A case of the benchmark, which the device and plain Rust run in turn.

use cuda_async::{DeviceBuffer, Element};

use crate::machine::Machine;

/// The same work in two implementations.
pub trait Work {
    fn plain(&mut self);
    fn device(&mut self);
    /// Runs both implementations and compares their results.
    fn agrees(&mut self) -> bool;
}

/// Work that writes an array of `T`.
pub struct Array<'a, T: Element, P, D> {
    pub machine: &'a Machine,
    pub plain: P,
    pub device: D,
    pub out: Vec<T>,
    pub buffer: DeviceBuffer<T>,
    /// The largest difference of results, relative for values above 1.
    pub tolerance: f64,
}

impl<T, P, D> Work for Array<'_, T, P, D>
where
    T: Element + Into<f64>,
    P: FnMut(&mut [T]),
    D: FnMut(&Machine, &mut DeviceBuffer<T>),
{
    fn plain(&mut self) {
        (self.plain)(&mut self.out);
    }

    fn device(&mut self) {
        (self.device)(self.machine, &mut self.buffer);
    }

    fn agrees(&mut self) -> bool {
        self.plain();
        self.device();
        let got = benches::done(self.machine.download(&self.buffer));
        let close = |(got, want): (&T, &T)| {
            let (got, want): (f64, f64) = ((*got).into(), (*want).into());
            (got - want).abs() <= self.tolerance * want.abs().max(1.0)
        };
        got.len() == self.out.len() && got.iter().zip(&self.out).all(close)
    }
}
