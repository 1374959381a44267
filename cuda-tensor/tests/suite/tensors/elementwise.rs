//! Elementwise operations on sizes and offsets that do and do not fill blocks of packs.

use cuda_tensor::{Binary, Comparison, Float, Number, Tensor, TensorOps, bf16, f16};

use cuda_async::{Device, prelude::*};

use super::BINARY;
use crate::on_every_device;

on_every_device! {
    binary_operations_cover_partial_blocks
    float_functions_cover_partial_blocks
    numbers_in_memory_give_the_results_of_scalars
    limits_that_are_nan_or_in_the_wrong_order
    operands_are_broadcast_in_packs_and_elements
}

/// Returns pairs of a size and the offset of the first element. The sizes are close to multiples of the elements of a
/// block. An offset of 1 makes the address unaligned to packs of 16 bytes.
fn cases<T>() -> impl Iterator<Item = (usize, usize)> {
    let block = 256 * 16 / size_of::<T>();
    let sizes = [1, 9, block - 1, block, block + 1, 2 * block, 3 * block + 17, 8 * block + 1];
    sizes.into_iter().flat_map(|n| [(n, 0), (n, 1)])
}

fn binary_operations_cover_partial_blocks(device: &Device) {
    check_binary::<f32>(device, |x| x as f32);
    check_binary::<f64>(device, |x| x as f64);
    check_binary::<f16>(device, |x| f16::from_f32(x as f32));
    check_binary::<bf16>(device, |x| bf16::from_f32(x as f32));
    check_binary::<i32>(device, |x| x as i32);
    check_binary::<u8>(device, |x| x as u8);
}

/// Checks binary operations. Every type represents the integers exactly.
fn check_binary<T: Number + PartialEq>(device: &Device, number: fn(usize) -> T) {
    let stream = device.new_stream().unwrap();
    for (n, start) in cases::<T>() {
        let expected = |f: fn(usize) -> usize| -> Vec<T> {
            (start..start + n).map(|i| number(f(i % 100))).collect()
        };
        let all: Vec<T> = (0..n + start).map(|i| number(i % 100)).collect();
        let x = Tensor::from_host(all, n + start).sync_on(&stream).unwrap().into_shared();
        let x = x.slice(0, start..).unwrap();
        let sum = x.clone().add(x.clone()).to_host_vec();
        let moved = x.clone().add_scalar(number(3)).to_host_vec();
        let from = x.clone().map_scalar_left(Binary::Sub, number(100)).to_host_vec();
        let squares = x.clone().cast::<f32>().mul(x.cast::<f32>()).to_host_vec();
        let (sum, moved, from, squares) = zip!(sum, moved, from, squares).sync_on(&stream).unwrap();
        let case = (T::NAME, n, start);
        assert!(sum == expected(|x| 2 * x), "{case:?}");
        assert!(moved == expected(|x| x + 3), "{case:?}");
        assert!(from == expected(|x| 100 - x), "{case:?}");
        assert!(squares.iter().zip(start..).all(|(square, i)| *square == (i % 100).pow(2) as f32));
    }
}

fn float_functions_cover_partial_blocks(device: &Device) {
    check_roots::<f32>(device, |x| x as f32);
    check_roots::<f64>(device, |x| x as f64);
    check_roots::<f16>(device, |x| f16::from_f32(x as f32));
    check_roots::<bf16>(device, |x| bf16::from_f32(x as f32));
}

fn check_roots<T: Float + PartialEq>(device: &Device, number: fn(usize) -> T) {
    let stream = device.new_stream().unwrap();
    for (n, start) in cases::<T>() {
        let squares: Vec<T> = (0..n + start).map(|i| number((i % 12).pow(2))).collect();
        let x = Tensor::from_host(squares, n + start).sync_on(&stream).unwrap().into_shared();
        let roots = x.slice(0, start..).unwrap().sqrt().to_host_vec().sync_on(&stream).unwrap();
        let expected: Vec<T> = (start..start + n).map(|i| number(i % 12)).collect();
        assert!(roots == expected, "{:?}", (T::NAME, n, start));
    }
}

fn numbers_in_memory_give_the_results_of_scalars(device: &Device) {
    check_numbers::<f32>(device, |at| at as f32 * 0.3 - 50.0);
    check_numbers::<f16>(device, |at| f16::from_f32(at as f32 * 0.01));
    check_numbers::<bf16>(device, |at| bf16::from_f32(at as f32 * 0.01));
    check_numbers::<f64>(device, |at| 7.5 - at as f64);
    check_numbers::<i64>(device, |at| at as i64 % 7 - 3);
    check_numbers::<u8>(device, |at| at as u8);
}

/// The number is an element in the middle of another tensor. The tensor has one or two dimensions.
fn check_numbers<T: Number + PartialOrd>(device: &Device, of: fn(usize) -> T) {
    let stream = device.new_stream().unwrap();
    let numbers: Vec<T> = (0..9).map(of).collect();
    let numbers = Tensor::from_host(numbers, 9).sync_on(&stream).unwrap().into_shared();
    let all: Vec<T> = (0..1004).map(of).collect();
    let all = Tensor::from_host(all, [1, 1004]).sync_on(&stream).unwrap().into_shared();
    for (start, at) in [(0, 3), (1, 4), (1003, 5)] {
        let x = all.clone().slice(1, start..).unwrap();
        let (number, scalar) = (numbers.clone().slice(0, at..=at).unwrap(), of(at));
        for operation in BINARY {
            let ways = zip!(
                x.clone().map_scalar(operation, scalar).to_host_vec(),
                x.clone().map2(number.clone(), operation).to_host_vec(),
                x.clone().dup().map2_assign(number.clone(), operation).to_host_vec(),
                x.clone().map_scalar_left(operation, scalar).to_host_vec(),
                number.clone().map2(x.clone(), operation).to_host_vec(),
            );
            let (last, in_memory, in_place, first, first_in_memory) =
                ways.sync_on(&stream).unwrap();
            let (shown, case) =
                (|elements: &Vec<T>| format!("{elements:?}"), (T::NAME, start, operation));
            assert_eq!(shown(&in_memory), shown(&last), "{case:?}");
            assert_eq!(shown(&in_place), shown(&last), "{case:?}");
            assert_eq!(shown(&first_in_memory), shown(&first), "{case:?}");
        }
        let host = x.clone().to_host_vec().sync_on(&stream).unwrap();
        let less = x.clone().compare_scalar(scalar, Comparison::Lt).to_host_vec();
        let expected: Vec<bool> = host
            .iter()
            .map(|element| element.partial_cmp(&scalar) == Some(std::cmp::Ordering::Less))
            .collect();
        assert_eq!(less.sync_on(&stream).unwrap(), expected);
        let less = x.clone().compare(number.clone(), Comparison::Lt).to_host_vec();
        assert_eq!(less.sync_on(&stream).unwrap(), expected);
        let greater = number.clone().compare(x.clone(), Comparison::Gt).to_host_vec();
        assert_eq!(greater.sync_on(&stream).unwrap(), expected);
    }
}

fn limits_that_are_nan_or_in_the_wrong_order(device: &Device) {
    let stream = device.new_stream().unwrap();
    let x = Tensor::from_host(vec![f32::NAN, -2.0, 0.5, 9.0], 4).sync_on(&stream).unwrap();
    let clamped = |low, high| (&x).clamp(low, high).to_host_vec().sync_on(&stream).unwrap();
    let plain = clamped(-1.0, 1.0);
    assert!(plain[0].is_nan());
    assert_eq!(plain[1..], [-1.0, 0.5, 1.0]);
    assert_eq!(clamped(2.0, 1.0)[1..], [1.0; 3]);
    for (low, high) in [(-0.0, 1.0), (0.0, 1.0), (-1.0, 0.0), (-1.0, -0.0)] {
        let zeros = Tensor::from_host(vec![0.0f32, -0.0], 2).then(move |x| x.clamp(low, high));
        let zeros = zeros.to_host_vec().sync_on(&stream).unwrap();
        assert!(zeros[0].is_sign_positive() && zeros[1].is_sign_negative(), "{low} {high}");
    }
    assert!(clamped(f32::NAN, 1.0).iter().all(|element| element.is_nan()));
    let positive = (&x).compare_scalar(0.0, Comparison::Gt);
    let not = positive.compare_scalar(false, Comparison::Eq).to_host_vec();
    assert_eq!(not.sync_on(&stream).unwrap(), [true, true, false, false]);
}

fn operands_are_broadcast_in_packs_and_elements(device: &Device) {
    check_broadcast::<f32>(device, |at| at as f32);
    check_broadcast::<f16>(device, |at| f16::from_f32(at as f32));
    check_broadcast::<bf16>(device, |at| bf16::from_f32(at as f32));
    check_broadcast::<f64>(device, |at| at as f64);
    check_broadcast::<u8>(device, |at| at as u8);
    check_broadcast::<i64>(device, |at| at as i64);
}

/// The number at a row and a column, before it is converted to the element type.
type Place = Box<dyn Fn(usize, usize) -> usize>;

/// A matrix with a row, a column, itself transposed, and columns of a wider matrix. Rows with and without whole packs,
/// more packs than a block takes, and addresses that are aligned to no pack. All numbers are exact in each type.
fn check_broadcast<T: Number + PartialOrd>(device: &Device, of: fn(usize) -> T) {
    let stream = device.new_stream().unwrap();
    let matrix = |rows: usize, columns: usize| {
        let all: Vec<T> = (0..rows * columns).map(|at| of(at * 7 % 101)).collect();
        let all = Tensor::from_host(all, [rows, columns]).sync_on(&stream).unwrap();
        (all.into_shared(), move |row: usize, column: usize| (row * columns + column) * 7 % 101)
    };
    for (rows, columns, skipped) in
        [(3, 16, 0), (33, 256, 0), (33, 256, 1), (5, 15, 0), (64, 64, 16)]
    {
        let (x, of_x) = matrix(rows, columns);
        let (y, of_y) = matrix(rows.max(columns), rows.max(columns) + skipped);
        let part = |rows: usize, columns: usize| {
            let y = y.clone().slice(0, ..rows).unwrap();
            y.slice(1, skipped..skipped + columns).unwrap()
        };
        let in_part = move |row: usize, column: usize| of_y(row, skipped + column);
        let others: [(_, Place); 4] = [
            (part(1, columns), Box::new(move |_, column| in_part(0, column))),
            (part(rows, 1), Box::new(move |row, _| in_part(row, 0))),
            (part(rows, columns), Box::new(in_part)),
            (part(columns, rows).transpose(0, 1).unwrap(), Box::new(move |r, c| in_part(c, r))),
        ];
        for (index, (y, of_y)) in others.into_iter().enumerate() {
            let case = (T::NAME, rows, columns, skipped, index);
            let pairs: Vec<_> = (0..rows * columns)
                .map(|at| (at / columns, at % columns))
                .map(|(row, column)| (of_x(row, column), of_y(row, column)))
                .collect();
            let [sum, in_place, chosen] = [
                x.clone().add(y.clone()).to_host_vec().boxed(),
                x.clone().dup().add_assign(y.clone()).to_host_vec().boxed(),
                x.clone()
                    .compare(y.clone(), Comparison::Lt)
                    .select(x.clone(), y.clone())
                    .to_host_vec()
                    .boxed(),
            ]
            .map(|op| op.sync_on(&stream).unwrap());
            let sums: Vec<T> = pairs.iter().map(|(x, y)| of(x + y)).collect();
            assert!(sum == sums, "{case:?}");
            assert!(in_place == sums, "{case:?}");
            let smaller: Vec<T> = pairs.iter().map(|(x, y)| of(*x.min(y))).collect();
            assert!(chosen == smaller, "{case:?}");
        }
    }
}
