//! Measures the memory bandwidth of operations on large tensors.
//!
//! `cargo bench -p benches --bench tensors [-- cpu|cuda [MIB [NAME]]]`. `NAME` is a part of the names of the operations
//! to measure. Each measurement runs 100 operations on one stream and waits for the last.
//! `benches/peers/pytorch/tensors.py` measures the same in PyTorch.

use std::{error::Error, ops::ControlFlow, sync::Arc, time::Instant};

use benches::{Effort, Way, done, medians};
use cuda_async::{Stream, in_order, iterate, memory::copy, prelude::*};
use cuda_tensor::{Comparison, DType, Float, SharedTensor, Tensor, TensorOps, bf16};

/// Operations in one measurement.
const IN_SEQUENCE: usize = 100;

const EFFORT: Effort = Effort { rounds: 5, in_a_row: 5 };

fn main() -> Result<(), Box<dyn Error>> {
    let asked: Vec<_> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let device = match asked.first() {
        Some(address) => cuda_async::open_blocking(address)?,
        None => cuda_async::default_device()?,
    };
    let mib: usize = asked.get(1).map_or(Ok(256), |mib| mib.parse())?;
    let info = device.info();
    println!("# {} ({}), driver {:?}, {mib} MiB", info.name, info.address, info.driver);
    println!("\n| operation | us | GB/s |\n|---|---:|---:|");
    let stream = device.new_stream()?;
    let table = Table { asked: asked.get(2).cloned().unwrap_or_default() };
    copies(&table, &stream, mib << 20)?;
    floats::<f32>(&table, &stream, mib << 20)?;
    floats::<bf16>(&table, &stream, mib << 20)?;
    let start = Instant::now();
    Tensor::<f64>::ones(2).sum().sync_on(&stream)?;
    println!("\nfirst sum of f64, with the load of its kernels: {:?}", start.elapsed());
    let start = Instant::now();
    Tensor::<f64>::ones(2).add(Tensor::ones(2)).sync_on(&stream)?;
    println!("first addition of f64, with the load of its kernels: {:?}", start.elapsed());
    Ok(())
}

/// The table of results.
struct Table {
    /// A part of the names of the operations to measure.
    asked: String,
}

impl Table {
    /// Prints the time of one operation, and its bandwidth. `traffic` is the number of bytes that it reads and writes.
    fn measure(&self, name: &str, traffic: usize, run: impl FnMut()) {
        if name.contains(&self.asked) {
            let micros = medians(&mut [Way::new("", run)], EFFORT)[0] / IN_SEQUENCE as f64;
            println!("| {name} | {micros:.1} | {:.0} |", traffic as f64 / micros / 1e3);
        }
    }
}

/// Measures copies by the driver, for comparison.
fn copies(table: &Table, stream: &Stream, bytes: usize) -> Result<(), Box<dyn Error>> {
    let from = Arc::new(zeros::<u32>(bytes / 4).sync_on(stream)?);
    let mut into = Some(zeros::<u32>(bytes / 4).sync_on(stream)?);
    table.measure("copy by the driver", 2 * bytes, || {
        let copies = into.take().map(|into| {
            iterate((into, 0), |(into, done)| {
                copy(from.clone(), into).map(move |(_, into)| match done + 1 {
                    IN_SEQUENCE => ControlFlow::Break(into),
                    done => ControlFlow::Continue((into, done)),
                })
            })
        });
        into = copies.map(|copies| done(copies.sync_on(stream)));
    });
    Ok(())
}

fn floats<T: Float>(table: &Table, stream: &Stream, bytes: usize) -> Result<(), Box<dyn Error>> {
    let n = bytes / size_of::<T>();
    let x = Tensor::<T>::rand(n, 1).sync_on(stream)?.into_shared();
    let of = |name: &str| format!("{name}, {}", T::NAME);
    let run = |op: &dyn Fn() -> Sequence| done(op().sync_on(stream));
    table.measure(&of("sum"), bytes, || run(&|| sequence(|| x.clone().sum())));
    let rows = |rows: usize| x.clone().reshape([n / rows, rows]);
    let square = rows(4096)?;
    table.measure(&of("sum of rows of 4096"), bytes, || {
        run(&|| sequence(|| square.clone().sum_dim(1)));
    });
    table.measure(&of("sum of columns"), bytes, || run(&|| sequence(|| square.clone().sum_dim(0))));
    table.measure(&of("argmax of rows of 4096"), bytes, || {
        run(&|| sequence(|| square.clone().argmax(1)));
    });
    for length in [1024, 8192, 65536] {
        let x: SharedTensor<T> = rows(length)?;
        table.measure(&of(&format!("softmax of rows of {length}")), 2 * bytes, || {
            run(&|| sequence(|| x.clone().softmax(1)));
        });
    }
    table.measure(&of("a + b"), 3 * bytes, || run(&|| sequence(|| x.clone().add(x.clone()))));
    let (number, row) = (Tensor::<T>::ones(()), Tensor::<T>::ones(4096));
    let number = number.sync_on(stream)?.into_shared();
    table.measure(&of("a + number on the device"), 2 * bytes, || {
        run(&|| sequence(|| x.clone().add(number.clone())));
    });
    let row = row.sync_on(stream)?.into_shared();
    table.measure(&of("rows of 4096 + row"), 2 * bytes, || {
        run(&|| sequence(|| square.clone().add(row.clone())));
    });
    let column = Tensor::<T>::ones([n / 4096, 1]).sync_on(stream)?.into_shared();
    table.measure(&of("columns of a matrix + column"), 2 * bytes, || {
        run(&|| sequence(|| square.clone().add(column.clone())));
    });
    let smaller = |x: &SharedTensor<T>, y| x.clone().compare(y, Comparison::Lt);
    table.measure(&of("a < b"), 2 * bytes + n, || run(&|| sequence(|| smaller(&x, x.clone()))));
    let mask = smaller(&x, number.clone()).sync_on(stream)?.into_shared();
    table.measure(&of("selection"), 3 * bytes + n, || {
        run(&|| sequence(|| mask.clone().select(x.clone(), x.clone())));
    });
    table.measure(&of("exp"), 2 * bytes, || run(&|| sequence(|| x.clone().exp())));
    table.measure(&of("copy"), 2 * bytes, || run(&|| sequence(|| x.clone().dup())));
    let halves = square.clone().slice(1, ..2048)?;
    table.measure(&of("copy of half of each row"), bytes, || {
        run(&|| sequence(|| halves.clone().dup()))
    });
    let columns = square.transpose(0, 1)?;
    table.measure(&of("copy of a transposed view"), 2 * bytes, || {
        run(&|| sequence(|| columns.clone().dup()));
    });
    Ok(())
}

type Sequence = cuda_async::BoxedOp<'static, ()>;

/// Runs an operation [`IN_SEQUENCE`] times on one stream. Each output is freed in stream order.
fn sequence<T: DType, O>(op: impl Fn() -> O) -> Sequence
where
    O: DeviceOp<Output = Tensor<T>> + 'static,
{
    let ops: Vec<_> = (0..IN_SEQUENCE).map(|_| op().map(drop)).collect();
    in_order(ops).map(drop).boxed()
}
