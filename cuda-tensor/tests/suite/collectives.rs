//! Collectives of several devices: CPU devices everywhere, and GPUs where there are several.

use cuda_tensor::{
    Number, Tensor, TensorOps,
    collective::{Communicator, Reduction},
};

use cuda_async::{
    BoxedOp, Device, Error, cuda_cpu::CpuProvider, devices, join_all, open_blocking, prelude::*,
};

/// Groups of devices: one to three CPU devices, the GPUs of this machine, and a mixture.
fn groups() -> Vec<Communicator> {
    let cpu = || Device::open(&CpuProvider::default(), 0).unwrap();
    let gpus: Vec<_> = devices()
        .iter()
        .filter(|info| info.address.starts_with("cuda:"))
        .map(|info| open_blocking(&info.address).unwrap())
        .collect();
    let mut groups: Vec<Vec<_>> =
        (1..=3).map(|count| (0..count).map(|_| cpu()).collect()).collect();
    if let Some(gpu) = gpus.first() {
        groups.push(vec![gpu.clone(), cpu()]);
        groups.push(gpus);
    }
    groups.iter().map(|devices| Communicator::new(devices).unwrap()).collect()
}

/// A tensor on each device, made by `values(rank)`.
fn tensors<T: Number>(
    group: &Communicator,
    shape: &[usize],
    values: impl Fn(usize) -> Vec<T>,
) -> Vec<Tensor<T>> {
    let of_ranks = group.devices().iter().enumerate();
    let made = of_ranks.map(|(rank, device)| Tensor::from_host(values(rank), shape).on(device));
    join_all(made.collect::<Vec<_>>()).sync().unwrap()
}

/// The elements on each device.
fn lists<T: Number>(group: &Communicator, tensors: Vec<Tensor<T>>) -> Vec<Vec<T>> {
    let list =
        |(tensor, device): (Tensor<T>, &Device)| tensor.to_host_vec().on(device).sync().unwrap();
    tensors.into_iter().zip(group.devices()).map(list).collect()
}

#[test]
fn all_reduce_gives_each_device_the_same() {
    for group in groups() {
        let ranks = group.devices().len();
        for reduction in [Reduction::Sum, Reduction::Product, Reduction::Max, Reduction::Min] {
            // NCCL has no 16-bit integers.
            let small = |rank: usize| (0..24).map(|at| ((rank + 2) * (at + 1)) as i16).collect();
            let reduce = |of_ranks: Vec<i64>| -> i64 {
                of_ranks
                    .into_iter()
                    .reduce(|a, b| match reduction {
                        Reduction::Sum => a + b,
                        Reduction::Product => a * b,
                        Reduction::Max => a.max(b),
                        Reduction::Min => a.min(b),
                    })
                    .unwrap()
            };
            let expected: Vec<i64> = (0..24)
                .map(|at| reduce((0..ranks).map(|rank| ((rank + 2) * (at + 1)) as i64).collect()))
                .collect();
            let x = tensors(&group, &[4, 6], small);
            let sums = lists(&group, group.all_reduce(x, reduction).sync().unwrap());
            assert!(sums.iter().all(|sum| sum.iter().zip(&expected).all(|(a, b)| *a == *b as i16)));
            let large = |rank: usize| (0..24).map(|at| ((rank + 2) * (at + 1)) as f32).collect();
            let x = tensors(&group, &[24], large);
            let sums = lists(&group, group.all_reduce(x, reduction).sync().unwrap());
            assert_eq!(sums.len(), ranks);
            assert!(sums.iter().all(|sum| sum.iter().zip(&expected).all(|(a, b)| *a == *b as f32)));
        }
    }
}

#[test]
fn all_gather_gives_each_device_all_tensors() {
    for group in groups() {
        let ranks = group.devices().len();
        let x = tensors(&group, &[2, 3], |rank| vec![rank as i32 + 1; 6]);
        let all = group.all_gather(x).sync().unwrap();
        assert!(all.iter().all(|tensor| tensor.shape() == [ranks, 2, 3]));
        let expected: Vec<i32> = (1..=ranks as i32).flat_map(|element| [element; 6]).collect();
        assert!(lists(&group, all).iter().all(|list| *list == expected));
    }
}

#[test]
fn reduce_scatter_gives_each_device_its_part() {
    for group in groups() {
        let ranks = group.devices().len();
        let rows = 2 * ranks;
        let values = |rank: usize| (0..rows * 3).map(|at| (at + rank) as u64).collect();
        let x = tensors(&group, &[rows, 3], values);
        let parts = group.reduce_scatter(x, Reduction::Sum).sync().unwrap();
        assert!(parts.iter().all(|part| part.shape() == [2, 3]));
        let added: u64 = (0..ranks as u64).sum();
        for (rank, part) in lists(&group, parts).into_iter().enumerate() {
            let expected: Vec<_> =
                (0..6).map(|at| (rank * 6 + at) as u64 * ranks as u64 + added).collect();
            assert_eq!(part, expected);
        }
    }
}

#[test]
fn views_are_copied_first_and_collectives_chain() {
    for group in groups() {
        let ranks = group.devices().len() as f64;
        let x = tensors(&group, &[3, 2], |_| vec![1.0f64, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let columns = x.into_iter().map(|tensor| tensor.transpose(0, 1).unwrap()).collect();
        let again = group.clone();
        let twice = group
            .all_reduce(columns, Reduction::Sum)
            .then(move |sums| again.all_reduce(sums, Reduction::Sum));
        for sum in lists(&group, twice.sync().unwrap()) {
            assert_eq!(sum, [1.0, 3.0, 5.0, 2.0, 4.0, 6.0].map(|element| element * ranks * ranks));
        }
    }
}

#[test]
fn collectives_of_one_group_run_in_one_order_from_many_threads() {
    for group in groups() {
        let ranks = group.devices().len() as u32;
        std::thread::scope(|scope| {
            for thread in 0..4u32 {
                let group = &group;
                scope.spawn(move || {
                    for turn in 0..8u32 {
                        let x = tensors(group, &[5], |_| vec![thread * 100 + turn; 5]);
                        let sums = group.all_reduce(x, Reduction::Sum).sync().unwrap();
                        let expected = vec![(thread * 100 + turn) * ranks; 5];
                        assert!(lists(group, sums).iter().all(|sum| *sum == expected));
                    }
                });
            }
        });
    }
}

#[test]
fn wrong_tensors_are_errors() {
    let cpu = || Device::open(&CpuProvider::default(), 0).unwrap();
    let devices = [cpu(), cpu()];
    let group = Communicator::new(&devices).unwrap();
    let made = |sizes: [usize; 2], on: [usize; 2]| {
        let make = |rank: usize| Tensor::<f32>::ones(sizes[rank]).on(&devices[on[rank]]).sync();
        vec![make(0).unwrap(), make(1).unwrap()]
    };
    let error = |tensors| group.all_reduce(tensors, Reduction::Sum).sync().unwrap_err();
    let few = made([3, 3], [0, 1]).into_iter().take(1).collect();
    assert!(error(few).to_string().contains("the number of tensors is 1 and must be 2"));
    assert!(
        error(made([3, 4], [0, 1]))
            .to_string()
            .contains("tensor 1 of a collective: the shape [4] must be [3]")
    );
    assert!(matches!(error(made([3, 3], [1, 0])), Error::WrongDevice { .. }));
    let odd = group.reduce_scatter(made([3, 3], [0, 1]), Reduction::Sum).sync().unwrap_err();
    assert!(odd.to_string().contains("must be a multiple of 2"), "{odd}");
    let twice = [devices[0].clone(), devices[0].clone()];
    assert!(Communicator::new(&twice).unwrap_err().to_string().contains("twice"));
    assert!(Communicator::new(&[]).is_err());
}

#[test]
fn collective_in_a_graph_is_an_error_that_names_it() {
    for group in groups() {
        let x = || tensors(&group, &[6], |_| vec![1i16; 6]);
        let stream = group.devices()[0].new_stream().unwrap();
        let refused = |op: BoxedOp<'static, Vec<Tensor<i16>>>, name: &str| {
            let error = op.graph_on(&stream).map(drop).unwrap_err();
            let expected = format!("operation \"{name}\" waits for host data");
            assert!(error.to_string().contains(&expected), "{error}");
        };
        refused(group.all_reduce(x(), Reduction::Sum).boxed(), "all_reduce");
        refused(group.all_gather(x()).boxed(), "all_gather");
        if 6 % group.devices().len() == 0 {
            refused(group.reduce_scatter(x(), Reduction::Sum).boxed(), "reduce_scatter");
        }
    }
}
