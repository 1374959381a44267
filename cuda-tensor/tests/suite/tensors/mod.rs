//! Tensors: creation, views, copies, elementwise operations, reductions, softmax and random numbers.

mod elementwise;
mod fourier;
mod in_loops;
mod in_place;
mod kernel_forms;
mod messages;
mod not_loaded;
mod products;
mod random_numbers;
mod random_programs;
mod reductions;
mod reference;

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use cuda_tensor::{Binary, Comparison, Number, SharedTensor, Tensor, TensorOps, bf16, f16};

use cuda_async::{
    Device, Error, cuda_cpu::CpuProvider, graph::GraphExt, h2d, memory::HostSource, prelude::*,
};

use crate::{modules::load_ptx, on_every_device};

/// All functions of two numbers.
const BINARY: [Binary; 8] = [
    Binary::Add,
    Binary::Sub,
    Binary::Mul,
    Binary::Div,
    Binary::Rem,
    Binary::Max,
    Binary::Min,
    Binary::Pow,
];

on_every_device! {
    tensors_are_created
    views_share_memory
    forms_and_lazy_operations_mix
    part_of_a_tensor_is_written
    copies_of_views_are_exact
    copies_of_columns_are_exact
    casts_are_those_of_rust
    shapes_that_do_not_fit_are_errors
    empty_tensors_work
    transposes_of_every_size_are_copied
    graphs_contain_tensor_operations
    tensors_of_two_devices_do_not_mix
    tensors_move_between_devices
    sources_that_change_their_length_are_refused
    variables_are_neither_tensors_nor_outputs
}

fn tensors_are_created(device: &Device) {
    let stream = device.new_stream().unwrap();
    let list = |op: Tensor<f32>| op.to_host_vec().sync_on(&stream).unwrap();
    assert_eq!(list(Tensor::zeros([2, 2]).sync_on(&stream).unwrap()), [0.0; 4]);
    assert_eq!(list(Tensor::ones(3).sync_on(&stream).unwrap()), [1.0; 3]);
    assert_eq!(list(Tensor::full(-0.0, ()).sync_on(&stream).unwrap())[0].to_bits(), 1 << 31);
    assert_eq!(list(Tensor::<f32>::arange(1.5..4.0).sync_on(&stream).unwrap()), [1.5, 2.5, 3.5]);
    let count = Tensor::<i8>::arange(-3..2).to_host_vec().sync_on(&stream).unwrap();
    assert_eq!(count, [-3, -2, -1, 0, 1]);
    let none = Tensor::<u64>::arange(5..5).to_host_vec().sync_on(&stream).unwrap();
    assert!(none.is_empty());
    // The last element is rounded, and would reach the end.
    assert_eq!(list(Tensor::<f32>::arange(0.1..1.1).sync_on(&stream).unwrap()), [0.1]);
    let far = Tensor::<f64>::arange(19.95..38.95).to_host_vec().sync_on(&stream).unwrap();
    assert!(far.len() == 19 && far[18] < 38.95);
    // Several of the last elements round to the end.
    let coarse = list(Tensor::<f32>::arange(33554432.0..33554440.0).sync_on(&stream).unwrap());
    assert!(coarse.len() == 6 && coarse[5] < 33554440.0, "{coarse:?}");
    let endless = Tensor::<f32>::arange(0.0..f32::INFINITY).sync_on(&stream).unwrap_err();
    assert!(endless.to_string().contains("use finite bounds"), "{endless}");
    let masks = Tensor::from_bools([true, false, true], 3);
    assert_eq!(masks.to_host_vec().sync_on(&stream).unwrap(), [true, false, true]);
    let halves = Tensor::full(f16::from_f32(1.5), 2).to_host_vec().sync_on(&stream).unwrap();
    assert_eq!(halves, [f16::from_f32(1.5); 2]);
    let brains = Tensor::<bf16>::ones(2).to_host_vec().sync_on(&stream).unwrap();
    assert_eq!(brains, [bf16::ONE; 2]);
    let filled = Tensor::<bool>::full(true, [2, 1]).to_host_vec().sync_on(&stream).unwrap();
    assert_eq!(filled, [true, true]);
    let buffer = h2d(vec![1u16, 2, 3, 4]).sync_on(&stream).unwrap();
    let tensor = Tensor::<u16>::from_buffer(buffer, [2, 2]).unwrap();
    assert_eq!((tensor.rank(), tensor.len(), tensor.shape()), (2, 4, &[2, 2][..]));
    assert_eq!(format!("{tensor:?}"), "Tensor<u16>([2, 2])");
    assert_eq!(tensor.into_buffer().len(), 4);
}

fn views_share_memory(device: &Device) {
    let stream = device.new_stream().unwrap();
    let x = Tensor::<i32>::arange(0..24).sync_on(&stream).unwrap().reshape([2, 3, 4]).unwrap();
    let shared = x.into_shared();
    let list = |x: SharedTensor<i32>| x.to_host_vec().sync_on(&stream).unwrap();
    let part = shared.clone().slice(2, 1..3).unwrap().index(0, 1).unwrap();
    assert_eq!((part.shape(), part.is_contiguous()), (&[3, 2][..], false));
    assert_eq!(list(part.clone()), [13, 14, 17, 18, 21, 22]);
    assert_eq!(list(part.clone().transpose(0, 1).unwrap()), [13, 17, 21, 14, 18, 22]);
    assert!(part.clone().reshape(6).is_err());
    let column = shared.clone().index(1, 0).unwrap().index(1, 2).unwrap();
    assert_eq!(list(column.clone()), [2, 14]);
    let repeated = column.unsqueeze(1).unwrap().broadcast([2, 2]).unwrap();
    assert_eq!(list(repeated), [2, 2, 14, 14]);
    assert!(shared.clone().into_owned().is_err());
    drop(part);
    assert_eq!(list(shared.clone().permute(&[2, 0, 1]).unwrap())[..4], [0, 4, 8, 12]);
    assert!(shared.into_owned().is_ok());
}

fn forms_and_lazy_operations_mix(device: &Device) {
    let stream = device.new_stream().unwrap();
    let x = Tensor::from_host(vec![1.0f64, 2.0], 2).sync_on(&stream).unwrap();
    let shared = Arc::new(Tensor::from_host(vec![10.0f64, 20.0], 2).sync_on(&stream).unwrap());
    let owned = Tensor::from_host(vec![100.0f64, 200.0], 2).sync_on(&stream).unwrap();
    let sum = (&x).add(shared.clone()).add(x.view()).add(owned).add(Tensor::ones(1));
    assert_eq!(sum.to_host_vec().sync_on(&stream).unwrap(), [113.0, 225.0]);
    assert_eq!(shared.to_host_vec().sync_on(&stream).unwrap(), [10.0, 20.0]);
    let scaled = x.sub_scalar(1.0).map_scalar_left(Binary::Div, 8.0).neg();
    assert_eq!(scaled.to_host_vec().sync_on(&stream).unwrap(), [f64::NEG_INFINITY, -8.0]);
}

fn part_of_a_tensor_is_written(device: &Device) {
    let stream = device.new_stream().unwrap();
    let mut x = Tensor::<u8>::zeros([3, 4]).sync_on(&stream).unwrap();
    let part = x.view_mut().slice(0, 1..).unwrap().slice(1, ..2).unwrap();
    let part = part.memcpy(Tensor::from_host(vec![1u8, 2, 3, 4], [2, 2])).sync_on(&stream).unwrap();
    assert_eq!(part.shape(), [2, 2]);
    let repeated = x.view_mut().slice(0, ..1).unwrap().broadcast([3, 4]).unwrap();
    let wrong = repeated.memcpy(Tensor::ones([3, 4])).sync_on(&stream).unwrap_err();
    assert!(matches!(wrong, Error::Misuse(_)), "{wrong}");
    assert_eq!(x.to_host_vec().sync_on(&stream).unwrap(), [0, 0, 0, 0, 1, 2, 0, 0, 3, 4, 0, 0]);
}

/// Copies views of `[2, 130, width]`, whose rows have whole packs or not, and begin at an aligned address or not. There
/// are enough elements for the loops of the kernels over packs.
fn copy_views<T: Number>(device: &Device, of: fn(usize) -> T) {
    let stream = device.new_stream().unwrap();
    for (width, part) in
        [(64, 0..64), (64, 16..48), (64, 1..33), (65, 0..64), (67, 3..67), (40, 0..37)]
    {
        let at = |image: usize, row: usize, column: usize| (image * 130 + row) * width + column;
        let elements: Vec<T> = (0..260 * width).map(of).collect();
        let x =
            Tensor::from_host(elements, [2, 130, width]).sync_on(&stream).unwrap().into_shared();
        let columns = part.len();
        let places = (0..2).flat_map(|image| (1..129).map(move |row| (image, row)));
        let places: Vec<_> =
            places.flat_map(|(i, r)| part.clone().map(move |c| (i, r, c))).collect();
        let expected: Vec<T> = places.iter().map(|&(i, r, c)| of(at(i, r, c))).collect();

        let view = x.clone().slice(1, 1..129).unwrap().slice(2, part.clone()).unwrap();
        let copied = view.clone().dup().to_host_vec().sync_on(&stream).unwrap();
        assert!(copied == expected, "{} {width} {part:?}", T::NAME);

        // The columns as rows: the elements of a pack are not neighbors.
        let turned = view.clone().permute(&[2, 0, 1]).unwrap();
        let copied = turned.dup().sync_on(&stream).unwrap().permute(&[1, 2, 0]).unwrap();
        let copied = copied.to_host_vec().sync_on(&stream).unwrap();
        assert!(copied == expected, "{} {width} {part:?}, permuted", T::NAME);

        let row = view.clone().index(0, 0).unwrap().index(0, 0).unwrap();
        let copied = row.broadcast([256, columns]).unwrap().dup().to_host_vec().sync_on(&stream);
        assert!(
            copied.unwrap() == expected[..columns].repeat(256),
            "{} {width}, repeated",
            T::NAME
        );

        let mut written = vec![of(7); 260 * width];
        places.iter().for_each(|&(i, r, c)| written[at(i, r, c)] = of(at(i, r, c)));
        for order in [[0, 1, 2], [2, 0, 1], [0, 2, 1]] {
            let mut target = Tensor::full(of(7), [2, 130, width]).sync_on(&stream).unwrap();
            let into = target.view_mut().slice(1, 1..129).unwrap().slice(2, part.clone()).unwrap();
            let from = view.clone().permute(&order).unwrap().dup();
            into.permute(&order).unwrap().memcpy(from).sync_on(&stream).unwrap();
            let target = target.to_host_vec().sync_on(&stream).unwrap();
            assert!(target == written, "{} {width} {part:?}, written {order:?}", T::NAME);
        }
    }
}

/// Copies the columns of `[n, 2]`, which are strided tensors of one dimension, and adds them.
fn copy_columns<T: Number + std::ops::Add<Output = T>>(device: &Device, of: fn(usize) -> T) {
    const ROWS: usize = 8195;
    let stream = device.new_stream().unwrap();
    let elements: Vec<T> = (0..2 * ROWS).map(of).collect();
    let x = Tensor::from_host(elements, [ROWS, 2]).sync_on(&stream).unwrap().into_shared();
    let column = |c: usize| x.clone().index(1, c).unwrap();
    for c in 0..2 {
        let expected: Vec<T> = (0..ROWS).map(|row| of(2 * row + c)).collect();
        let copied = column(c).dup().to_host_vec().sync_on(&stream).unwrap();
        assert!(copied == expected, "{}, column {c}", T::NAME);
    }
    let sums: Vec<T> = (0..ROWS).map(|row| of(2 * row) + of(2 * row + 1)).collect();
    let added = column(0).add(column(1)).to_host_vec().sync_on(&stream).unwrap();
    assert!(added == sums, "{}, sums", T::NAME);
}

fn copies_of_columns_are_exact(device: &Device) {
    copy_columns::<u8>(device, |at| (at % 128) as u8);
    copy_columns::<f32>(device, |at| at as f32);
    copy_columns::<u64>(device, |at| at as u64);
}

fn copies_of_views_are_exact(device: &Device) {
    copy_views::<u8>(device, |at| at as u8);
    copy_views::<i16>(device, |at| at as i16);
    copy_views::<f32>(device, |at| at as f32);
    copy_views::<u64>(device, |at| at as u64);
}

fn casts_are_those_of_rust(device: &Device) {
    let stream = device.new_stream().unwrap();
    let numbers = vec![
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        -0.0,
        0.5,
        -1.5,
        1e10,
        -1e10,
        1e300,
        3e38,
        1e-40,
        65519.0,
        65520.0,
        1.0 + 2f64.powi(-11) + 2f64.powi(-40),
        9.3e18,
        -9.3e18,
        255.9,
        4294967295.5,
    ];
    let x =
        Tensor::from_host(numbers.clone(), numbers.len()).sync_on(&stream).unwrap().into_shared();
    macro_rules! check {
        ($($ty:ident)*) => {$(
            let cast = x.clone().cast::<$ty>().to_host_vec().sync_on(&stream).unwrap();
            let expected: Vec<_> = numbers.iter().map(|x| *x as $ty).collect();
            assert_eq!(format!("{cast:?}"), format!("{expected:?}"), stringify!($ty));
        )*};
    }
    check!(i8 u8 i16 u16 i32 u32 i64 u64 f32 f64);
    let halves = x.clone().cast::<f16>().to_host_vec().sync_on(&stream).unwrap();
    for (half, number) in halves.iter().zip(&numbers).skip(1) {
        // The distance to the result is at most that to its neighbors. `f16::from_f64` ignores the last bits.
        let near = |bits: u16| (f16::from_bits(bits).to_f64() - number).abs();
        let (own, bits) = (near(half.to_bits()), half.to_bits());
        let overflows = number.abs() >= 65520.0;
        assert_eq!(half.is_infinite(), overflows, "{half} {number}");
        let best = own <= near(bits.wrapping_sub(1)) && own <= near(bits.wrapping_add(1));
        assert!(overflows || bits & 0x7fff == 0 || best, "{half} {number}");
        assert_eq!(half.is_sign_negative(), number.is_sign_negative());
    }
    let brains = x.clone().cast::<bf16>().to_host_vec().sync_on(&stream).unwrap();
    let expected: Vec<_> = numbers.iter().map(|x| bf16::from_f64(*x)).collect();
    assert_eq!(format!("{brains:?}"), format!("{expected:?}"));
    let truth = x.clone().cast::<bool>().to_host_vec().sync_on(&stream).unwrap();
    assert_eq!(truth, numbers.iter().map(|x| *x != 0.0).collect::<Vec<_>>());
    let large =
        vec![i64::MAX, i64::MIN, (1 << 53) + 1, 1 << 24 | 1, 2049, 65519, 65520, -1, 0x1_0100_0001];
    let y = Tensor::from_host(large.clone(), large.len()).sync_on(&stream).unwrap().into_shared();
    let narrow = y.clone().cast::<u16>().to_host_vec().sync_on(&stream).unwrap();
    assert_eq!(narrow, large.iter().map(|x| *x as u16).collect::<Vec<_>>());
    let floats = y.clone().cast::<f32>().to_host_vec().sync_on(&stream).unwrap();
    assert_eq!(floats, large.iter().map(|x| *x as f32).collect::<Vec<_>>());
    let halves = y.clone().cast::<f16>().to_host_vec().sync_on(&stream).unwrap();
    // 2049 is halfway between 2048 and 2050, and rounds to the even mantissa, 2048.
    assert_eq!(halves[4], f16::from_f32(2048.0));
    assert_eq!((halves[0], halves[5], halves[6]), (f16::INFINITY, f16::MAX, f16::INFINITY));
    let brains = y.cast::<bf16>().to_host_vec().sync_on(&stream).unwrap();
    // Rounding to f32 first would give a tie. The integer is above it.
    assert_eq!(brains[8].to_f64(), 0x1_0200_0000u64 as f64);
    let flags = Tensor::from_bools([true, false], 2).cast::<f32>().to_host_vec();
    assert_eq!(flags.sync_on(&stream).unwrap(), [1.0, 0.0]);
}

fn shapes_that_do_not_fit_are_errors(device: &Device) {
    let stream = device.new_stream().unwrap();
    let x = Tensor::<f32>::zeros([2, 3]).sync_on(&stream).unwrap();
    let check = |error: Error, text: &str| {
        assert!(matches!(error, Error::OutOfRange { .. } | Error::Shape { .. }), "{error:?}");
        assert!(error.to_string().contains(text), "{error}");
    };
    let sum = (&x).add(Tensor::zeros([3, 2])).sync_on(&stream);
    check(sum.unwrap_err(), "[2, 3] cannot be broadcast together with [3, 2]");
    check((&x).sum_dim(2).sync_on(&stream).unwrap_err(), "the dimension is 2");
    check((&x).softmax(5).sync_on(&stream).unwrap_err(), "the dimension is 5");
    check((&x).item().sync_on(&stream).unwrap_err(), "must have one element");
    check(
        Tensor::from_host([1.0f32; 5], [2, 3]).sync_on(&stream).unwrap_err(),
        "the number of elements is 5 and must be 6",
    );
    check(Tensor::<f32>::zeros([1; 9]).sync_on(&stream).unwrap_err(), "must be at most 8");
    check(
        Tensor::<f32>::zeros([usize::MAX, 2]).sync_on(&stream).unwrap_err(),
        "must have at most 2^63 - 1 elements",
    );
    let huge = Tensor::<f32>::zeros(isize::MAX as usize).sync_on(&stream).map(drop).unwrap_err();
    assert!(matches!(huge, Error::OutOfMemory { .. }), "{huge:?}");
    check(x.reshape([4, 2]).unwrap_err(), "[2, 3] cannot become [4, 2]");
}

fn empty_tensors_work(device: &Device) {
    let stream = device.new_stream().unwrap();
    let empty = Tensor::<f32>::zeros([0, 3]).sync_on(&stream).unwrap().into_shared();
    let list = |x: SharedTensor<f32>| x.to_host_vec().sync_on(&stream).unwrap();
    assert!(list(empty.clone()).is_empty());
    assert!(list(empty.clone().transpose(0, 1).unwrap()).is_empty());
    assert!(
        empty.clone().exp().add(empty.clone()).to_host_vec().sync_on(&stream).unwrap().is_empty()
    );
    assert_eq!(empty.clone().sum_dim(0).to_host_vec().sync_on(&stream).unwrap(), [0.0; 3]);
    assert!(empty.clone().sum_dim(1).to_host_vec().sync_on(&stream).unwrap().is_empty());
    assert_eq!(empty.clone().product().item().sync_on(&stream).unwrap(), 1.0);
    assert!(empty.clone().softmax(1).to_host_vec().sync_on(&stream).unwrap().is_empty());
    let long = Tensor::<f32>::zeros([0, 9000]).softmax(1).to_host_vec();
    assert!(long.sync_on(&stream).unwrap().is_empty());
    // Longer than the rows that a block keeps in registers.
    let longer = zip!(
        Tensor::<f32>::zeros([0, 100_000]).softmax(1),
        Tensor::<f64>::zeros([100_000, 0]).softmax(0)
    );
    let (longer, columns) = longer.sync_on(&stream).unwrap();
    assert_eq!((longer.shape(), columns.shape()), (&[0, 100_000][..], &[100_000, 0][..]));
    assert!(empty.clone().softmax(0).to_host_vec().sync_on(&stream).unwrap().is_empty());
    assert!(empty.clone().argmax(1).to_host_vec().sync_on(&stream).unwrap().is_empty());
    assert!(matches!(empty.clone().argmax(0).sync_on(&stream), Err(Error::OutOfRange { .. })));
    assert!(matches!(empty.clone().max().sync_on(&stream), Err(Error::OutOfRange { .. })));
    let part = Tensor::<u8>::ones([2, 2]).sync_on(&stream).unwrap().slice(1, 2..2).unwrap();
    assert!(part.to_host_vec().sync_on(&stream).unwrap().is_empty());
    assert!(Tensor::<f32>::rand(0, 1).to_host_vec().sync_on(&stream).unwrap().is_empty());
}

/// Transposes matrices with and without rows and columns of whole groups of elements, from an aligned address or not.
fn transpose<T: Number>(device: &Device, of: fn(usize) -> T) {
    let stream = device.new_stream().unwrap();
    let small = [[1, 1, 7], [1, 33, 31], [1, 64, 5], [3, 32, 32], [2, 70, 1]];
    // More than a tile.
    let large = [[1, 132, 136], [1, 131, 256], [2, 260, 130], [1, 129, 131]];
    for [batch, rows, columns] in small.into_iter().chain(large) {
        for skip in 0..2 {
            let n = batch * rows * columns;
            let elements: Vec<T> = (0..skip + n).map(of).collect();
            let x = Tensor::from_host(elements, skip + n).sync_on(&stream).unwrap().into_shared();
            let x = x.slice(0, skip..).unwrap().reshape([batch, rows, columns]).unwrap();
            let y = x.transpose(1, 2).unwrap().to_host_vec().sync_on(&stream).unwrap();
            let at = |b: usize, row: usize, column: usize| (b * rows + row) * columns + column;
            let places = (0..batch).flat_map(|b| (0..columns).map(move |c| (b, c)));
            let expected = places.flat_map(|(b, c)| (0..rows).map(move |r| of(skip + at(b, r, c))));
            assert!(y.into_iter().eq(expected), "{} {batch} {rows} {columns}", T::NAME);
        }
    }
}

fn transposes_of_every_size_are_copied(device: &Device) {
    transpose::<u8>(device, |at| (at % 251) as u8);
    transpose::<i16>(device, |at| at as i16);
    transpose::<f32>(device, |at| at as f32);
    transpose::<u64>(device, |at| at as u64);
}

fn graphs_contain_tensor_operations(device: &Device) {
    let stream = device.new_stream().unwrap();
    let x = Tensor::<f32>::ones([4, 8]).sync_on(&stream).unwrap().into_shared();
    let op = |x: SharedTensor<f32>| x.mul_scalar(2.0).softmax(1).sum_dim(0);
    let direct = op(x.clone()).to_host_vec().sync_on(&stream).unwrap(); // loads the kernels
    let refused = x.clone().to_host_vec().graph_on(&stream).map(drop).unwrap_err();
    assert_eq!(refused, Error::needs_host_data("to_host_vec"));
    assert!(refused.to_string().contains("`graph.launch().to_host_vec()`"), "{refused}");
    let one = x.clone().slice(0, ..1).unwrap().slice(1, ..1).unwrap();
    let refused = one.item().graph_on(&stream).map(drop).unwrap_err();
    assert_eq!(refused, Error::needs_host_data("item"));
    let graph = op(x).graph_on(&stream).unwrap();
    for _ in 0..3 {
        let output =
            graph.launch().then(|output| output.dup()).to_host_vec().sync_on(&stream).unwrap();
        assert_eq!(output, direct);
    }
}

fn tensors_of_two_devices_do_not_mix(device: &Device) {
    let (stream, cpu) = (device.new_stream().unwrap(), cuda_async::open_blocking("cpu").unwrap());
    let here = Tensor::<f32>::ones(4).sync_on(&stream).unwrap();
    let there = Tensor::<f32>::ones(4).sync_on(&cpu.new_stream().unwrap()).unwrap();
    if here.device() == there.device() {
        return;
    }
    let error = here.compare(there, Comparison::Eq).sync_on(&stream).map(drop).unwrap_err();
    assert!(matches!(error, Error::WrongDevice { .. }), "{error:?}");
}

fn tensors_move_between_devices(device: &Device) {
    let (stream, second) =
        (device.new_stream().unwrap(), Device::open(&CpuProvider::default(), 0).unwrap());
    let x = Tensor::<i32>::arange(0..24).sync_on(&stream).unwrap().reshape([2, 3, 4]).unwrap();
    let x = x.into_shared().permute(&[2, 0, 1]).unwrap().slice(0, 1..3).unwrap();
    let expected = x.clone().to_host_vec().sync_on(&stream).unwrap();
    let there = cuda_tensor::to_device(x, &second).sync_on(&stream).unwrap();
    assert!(*there.device() == second && there.shape() == [2, 2, 3]);
    let back = cuda_tensor::to_device(there, device).sync_on(&stream).unwrap();
    assert_eq!(back.to_host_vec().sync_on(&stream).unwrap(), expected);
    let none =
        cuda_tensor::to_device(Tensor::<u8>::zeros([0, 3]), &second).sync_on(&stream).unwrap();
    assert_eq!(none.shape(), [0, 3]);
}

/// Foreign code that gives fewer elements when it is asked again.
struct Shrinking(AtomicUsize);

impl HostSource for Shrinking {
    type Element = f32;

    fn elements(&self) -> cuda_async::Result<&[f32]> {
        static NUMBERS: [f32; 64] = [1.0; 64];
        Ok(if self.0.fetch_add(1, Ordering::Relaxed) == 0 { &NUMBERS } else { &NUMBERS[..1] })
    }
}

fn sources_that_change_their_length_are_refused(device: &Device) {
    let stream = device.new_stream().unwrap();
    let x = Tensor::from_host(Shrinking(0.into()), 64).add_scalar(1.0).to_host_vec();
    let error = x.sync_on(&stream).unwrap_err();
    assert!(matches!(error, Error::OutOfRange { .. }), "{error:?}");
}

cuda_async::kernels! {
    #[ptx = "../kernels/filter.ptx"]
    unsafe struct Filter; // SAFETY: `filter` reads n + 4 elements of `input` and writes n of `out`.

    static taps: [f32; 5];

    #[elements(n)]
    safe fn filter(out: &mut [f32], input: &[f32], n: u32 = out.len()) where input.len() == n + 4;
}

fn variables_are_neither_tensors_nor_outputs(device: &Device) {
    let stream = device.new_stream().unwrap();
    let filter = Filter::of_module(&load_ptx(device, Filter::PTX).unwrap()).unwrap();
    let input = || h2d(vec![1.0f32; 9]);
    let mut taps = filter.taps().unwrap();
    for error in [
        filter.filter(filter.taps().unwrap(), input()).sync_on(&stream).map(drop),
        filter.filter(&mut taps, input()).sync_on(&stream).map(drop),
        filter.filter(taps.as_slice_mut(), input()).sync_on(&stream).map(drop),
    ] {
        let error = error.unwrap_err();
        assert!(error.to_string().contains("variable of a module"), "{error}");
    }
    let error = Tensor::<f32>::from_buffer(taps, 5).unwrap_err();
    assert!(matches!(error, Error::Misuse(_)), "{error:?}");
    // As an input it is one.
    let taps = filter.taps().unwrap();
    let (out, _) = filter.filter(zeros(1), taps).sync_on(&stream).unwrap();
    assert_eq!(to_host(out).sync_on(&stream).unwrap().len(), 1);
}
