//! `into_candle_cuda`: the tensor of candle is in the same memory where possible.

use cuda_async::{
    prelude::*,
    tensor::{SharedTensor, Tensor},
};

use crate::gpu::{address, elements, gpus};

#[test]
fn contiguous_tensor_keeps_its_memory() {
    for (_, stream, device) in gpus() {
        let x = Tensor::<i64>::arange(0..24).sync_on(&stream).unwrap().reshape([2, 3, 4]).unwrap();
        let first = x.buffer().lend_raw(&stream).unwrap();
        let theirs = x.into_candle_cuda(&device).sync_on(&stream).unwrap();
        assert!(theirs.device().same_device(&device) && theirs.is_contiguous());
        assert_eq!(theirs.dims(), [2, 3, 4]);
        assert_eq!(address::<i64>(&theirs), first);
        assert_eq!(elements::<i64>(&theirs), (0..24).collect::<Vec<_>>());
        // Views by candle.
        let turned = theirs.get(1).unwrap().t().unwrap();
        assert_eq!(elements::<i64>(&turned)[..4], [12, 16, 20, 13]);
    }
}

#[test]
fn part_of_a_tensor_keeps_its_memory() {
    for (_, stream, device) in gpus() {
        let x = Tensor::<i64>::arange(0..24).sync_on(&stream).unwrap().reshape([6, 4]).unwrap();
        let first = x.buffer().lend_raw(&stream).unwrap();
        let part = x.slice(0, 2..4).unwrap().into_candle_cuda(&device).sync_on(&stream).unwrap();
        assert_eq!(address::<i64>(&part), first + 8 * 8);
        assert_eq!(part.dims(), [2, 4]);
        assert_eq!(elements::<i64>(&part), (8..16).collect::<Vec<_>>());
        // A scalar.
        let x = Tensor::<i64>::arange(0..3).sync_on(&stream).unwrap().index(0, 2).unwrap();
        let scalar = x.into_candle_cuda(&device).sync_on(&stream).unwrap();
        assert_eq!(scalar.to_scalar::<i64>().unwrap(), 2);
    }
}

#[test]
fn layouts_that_are_not_contiguous_are_copied() {
    for (_, stream, device) in gpus() {
        let x = || Tensor::<i64>::arange(0..6).then(|x| x.reshape([2, 3]).map(value));
        let turned = x().then(|x| x.transpose(0, 1).map(value));
        let theirs = turned.then(|x| x.into_candle_cuda(&device)).sync_on(&stream).unwrap();
        assert_eq!(theirs.to_vec2::<i64>().unwrap(), [[0, 3], [1, 4], [2, 5]]);
        let wide = x().then(|x| x.slice(0, 1..)?.broadcast([2, 3]).map(value));
        let theirs = wide.then(|x| x.into_candle_cuda(&device)).sync_on(&stream).unwrap();
        assert_eq!(theirs.to_vec2::<i64>().unwrap(), [[3, 4, 5], [3, 4, 5]]);
        let none = Tensor::<f32>::zeros([0, 2]).then(|x| x.into_candle_cuda(&device));
        assert_eq!(none.sync_on(&stream).unwrap().dims(), [0, 2]);
    }
}

#[test]
fn shared_tensor_is_copied_only_if_other_handles_use_it() {
    for (_, stream, device) in gpus() {
        let x = Tensor::from_host(vec![1.0f32, 2.0], 2).sync_on(&stream).unwrap().into_shared();
        let first = x.buffer().lend_raw(&stream).unwrap();
        let copy = x.clone().into_candle_cuda(&device).sync_on(&stream).unwrap();
        assert_ne!(address::<f32>(&copy), first);
        let same = x.into_candle_cuda(&device).sync_on(&stream).unwrap();
        assert_eq!(address::<f32>(&same), first);
        assert_eq!(copy.to_vec1::<f32>().unwrap(), same.to_vec1::<f32>().unwrap());
    }
}

#[test]
fn round_trip_copies_memory_that_candle_may_use() {
    for (_, stream, device) in gpus() {
        let x = Tensor::<i64>::arange(0..1 << 16).sync_on(&stream).unwrap();
        let first = x.buffer().lend_raw(&stream).unwrap();
        let theirs = x.into_candle_cuda(&device).sync_on(&stream).unwrap();
        // SAFETY: no code writes the elements.
        let back = unsafe { SharedTensor::<i64>::from_candle_cuda(theirs.clone()) };
        let back = back.sync_on(&stream).unwrap();
        assert_eq!(back.buffer().lend_raw(&stream).unwrap(), first);
        drop(theirs);
        // The memory belongs to candle, which may still use it. So each conversion copies it.
        let again = back.clone().into_candle_cuda(&device).sync_on(&stream).unwrap();
        let once_more = back.into_candle_cuda(&device).sync_on(&stream).unwrap();
        assert!(![address::<i64>(&again), address::<i64>(&once_more)].contains(&first));
        assert_eq!(again.to_vec1::<i64>().unwrap(), (0..1 << 16).collect::<Vec<_>>());
        assert_eq!(once_more.to_vec1::<i64>().unwrap(), (0..1 << 16).collect::<Vec<_>>());
    }
}

#[test]
fn candle_frees_the_memory_of_converted_tensors() {
    for (ours, stream, device) in gpus() {
        for _ in 0..64 {
            let x = Tensor::<u8>::zeros(512 << 20).then(|x| x.into_candle_cuda(&device));
            let theirs = x.sync_on(&stream).unwrap();
            // SAFETY: no code writes the elements.
            let x = unsafe { SharedTensor::<u8>::from_candle_cuda(theirs) };
            drop(x.sync_on(&stream).unwrap());
        }
        // If the memory leaked, the loop would have allocated 32 GiB.
        assert!(ours.memory().unwrap().used < 24 << 30);
    }
}
