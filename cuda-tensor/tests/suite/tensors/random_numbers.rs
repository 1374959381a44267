//! Random tensors: the published sequence, the distributions, and generators in graphs and on several streams.

use std::thread;

use cuda_async::{
    Device,
    graph::GraphExt,
    prelude::*,
    tensor::{Generator, Tensor, TensorOps, bf16, f16},
};

use crate::on_every_device;

on_every_device! {
    numbers_are_those_of_philox
    distributions_have_their_moments
    graphs_draw_new_numbers
    generators_are_used_by_several_streams
    concurrent_draws_share_no_numbers
}

/// Philox4x32-10, as in the paper.
fn philox(key: u64, block: u64) -> [u32; 4] {
    let [mut k0, mut k1] = [key as u32, (key >> 32) as u32];
    let mut c = [block as u32, (block >> 32) as u32, 0, 0];
    for _ in 0..10 {
        let p = u64::from(c[0]) * 0xd251_1f53;
        let q = u64::from(c[2]) * 0xcd9e_8d57;
        c = [(q >> 32) as u32 ^ c[1] ^ k0, q as u32, (p >> 32) as u32 ^ c[3] ^ k1, p as u32];
        k0 = k0.wrapping_add(0x9e37_79b9);
        k1 = k1.wrapping_add(0xbb67_ae85);
    }
    c
}

fn numbers_are_those_of_philox(device: &Device) {
    let stream = device.new_stream().unwrap();
    // The first known-answer test of Random123.
    assert_eq!(philox(0, 0), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
    let seed = 0x1234_5678_9abc_def0;
    let words: Vec<u32> = (0..300).flat_map(|block| philox(seed, block)).collect();
    let singles = Tensor::<f32>::rand(1199, seed).to_host_vec().sync_on(&stream).unwrap();
    let expected = words.iter().map(|word| (word >> 8) as f32 / (1 << 24) as f32);
    assert!(singles.iter().copied().eq(expected.take(1199)));
    let doubles = Tensor::<f64>::rand([3, 199], seed).to_host_vec().sync_on(&stream).unwrap();
    let expected = words.chunks(2).map(|pair| {
        ((u64::from(pair[1]) << 32 | u64::from(pair[0])) >> 11) as f64 / (1u64 << 53) as f64
    });
    assert!(doubles.iter().copied().eq(expected.take(597)));
    let halves = Tensor::<f16>::rand(100, seed).to_host_vec().sync_on(&stream).unwrap();
    let expected = words.iter().map(|word| f16::from_f32((word >> 21) as f32 / 2048.0));
    assert!(halves.iter().copied().eq(expected.take(100)));
    let brains = Tensor::<bf16>::rand(100, seed).to_host_vec().sync_on(&stream).unwrap();
    let expected = words.iter().map(|word| bf16::from_f32((word >> 24) as f32 / 256.0));
    assert!(brains.iter().copied().eq(expected.take(100)));
}

fn distributions_have_their_moments(device: &Device) {
    let stream = device.new_stream().unwrap();
    const N: usize = 40_000;
    let moments = |x: &[f64]| {
        let mean = x.iter().sum::<f64>() / x.len() as f64;
        let power = |k: i32| x.iter().map(|x| (x - mean).powi(k)).sum::<f64>() / x.len() as f64;
        (mean, power(2), power(4))
    };
    let check = |x: &[f64], (mean, variance, fourth): (f64, f64, f64)| {
        let found = moments(x);
        let near = |here: f64, there: f64| (here - there).abs() < 0.1 * there.max(0.3);
        assert!(
            near(found.0, mean) && near(found.1, variance) && near(found.2, fourth),
            "{found:?}"
        );
    };
    let uniform = Tensor::<f64>::rand(N, 1).to_host_vec().sync_on(&stream).unwrap();
    check(&uniform, (0.5, 1.0 / 12.0, 1.0 / 80.0));
    let normal = Tensor::<f64>::randn(N, 2).to_host_vec().sync_on(&stream).unwrap();
    check(&normal, (0.0, 1.0, 3.0));
    assert!(normal.iter().all(|x| x.is_finite()));
    let single = Tensor::<f32>::randn(N, 2).cast::<f64>().to_host_vec().sync_on(&stream).unwrap();
    check(&single, (0.0, 1.0, 3.0));
    let half = Tensor::<f16>::randn(N, 3).cast::<f64>().to_host_vec().sync_on(&stream).unwrap();
    check(&half, (0.0, 1.0, 3.0));
}

fn graphs_draw_new_numbers(device: &Device) {
    let stream = device.new_stream().unwrap();
    let generator = Generator::new(5).sync_on(&stream).unwrap();
    let list = |x: &Generator| x.rand::<f32>(10).to_host_vec().sync_on(&stream).unwrap();
    let expected: Vec<_> = (0..4).map(|_| list(&generator)).collect(); // loads the kernels
    assert_ne!(expected[0], expected[1]);
    generator.reseed(5).sync_on(&stream).unwrap();
    let graph = generator.rand::<f32>(10).graph_on(&stream).unwrap();
    for expected in &expected[..3] {
        let drawn = graph.launch().then(|x| x.dup()).to_host_vec().sync_on(&stream).unwrap();
        assert_eq!(drawn, *expected);
    }
    assert_eq!(list(&generator), expected[3]);
}

fn generators_are_used_by_several_streams(device: &Device) {
    let streams: Vec<_> = (0..4).map(|_| device.new_stream().unwrap()).collect();
    let generator = Generator::new(9).sync_on(&streams[0]).unwrap();
    let drawn: Vec<_> = (0..20)
        .map(|i| {
            let op = generator.rand::<f64>(3);
            // SAFETY: only the library uses the tensor.
            unsafe { op.async_on(&streams[i % 4]) }
                // The first one loads the kernels.
                .or_else(|_| generator.rand::<f64>(3).sync_on(&streams[i % 4]))
                .unwrap()
        })
        .collect();
    let drawn: Vec<_> =
        drawn.into_iter().flat_map(|x| x.to_host_vec().sync_on(&streams[0]).unwrap()).collect();
    let expected: Vec<_> = (0..40).flat_map(|block| philox(9, block)).collect();
    let expected = expected.chunks(2).map(|pair| {
        ((u64::from(pair[1]) << 32 | u64::from(pair[0])) >> 11) as f64 / (1u64 << 53) as f64
    });
    // Each tensor of three numbers begins with a new block. A block gives two numbers of f64.
    let expected: Vec<_> =
        expected.enumerate().filter(|(i, _)| i % 4 != 3).map(|(_, x)| x).collect();
    assert_eq!(drawn, expected);
}

fn concurrent_draws_share_no_numbers(device: &Device) {
    let stream = device.new_stream().unwrap();
    let generator = Generator::new(11).sync_on(&stream).unwrap();
    let both = zip!(generator.rand::<f32>(100), generator.rand::<f32>(100));
    let (a, b) = both.sync_on(&stream).unwrap();
    let mut drawn = vec![a, b];
    thread::scope(|scope| {
        let draws: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let own = device.new_stream().unwrap();
                    let draw = |_| generator.rand::<f32>(100).sync_on(&own).unwrap();
                    (0..10).map(draw).collect::<Vec<_>>()
                })
            })
            .collect();
        drawn.extend(draws.into_iter().flat_map(|draw| draw.join().unwrap()));
    });
    let mut drawn: Vec<Vec<u32>> = drawn
        .into_iter()
        .map(|x| x.to_host_vec().sync_on(&stream).unwrap().iter().map(|x| x.to_bits()).collect())
        .collect();
    let words: Vec<u32> = (0..42 * 25).flat_map(|block| philox(11, block)).collect();
    let mut expected: Vec<Vec<u32>> = words
        .chunks(100)
        .map(|part| part.iter().map(|x| ((x >> 8) as f32 / (1 << 24) as f32).to_bits()).collect())
        .collect();
    drawn.sort();
    expected.sort();
    assert!(drawn == expected);
}
