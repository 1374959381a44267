//! Tensors as the state of `repeat_while`, and comparisons of tensors as its condition.

use std::sync::Arc;

use cuda_tensor::{Comparison, ScalarExt, SharedTensor, Tensor, TensorOps};

use cuda_async::{
    Device, Error, Stream,
    graph::{DeviceScalar, GraphExt, repeat_while},
    memory::copy,
    prelude::*,
};

use crate::{modules::prepared, on_every_device};

on_every_device! {
    iteration_ends_when_the_residual_is_small
    loops_of_tensors_nest
    other_shape_is_an_error
    other_view_or_memory_is_an_error
    views_and_shared_tensors_are_state
    tensors_set_scalars
    only_one_element_sets_a_scalar
    scalar_of_another_device_is_not_set
}

const N: usize = 12;

/// Kernels are loaded once, because a recording cannot wait for them.
fn warmed_up(device: &Device) -> Stream {
    let stream = device.new_stream().unwrap();
    Tensor::<f32>::warm_up().sync_on(&stream).unwrap();
    Tensor::<u32>::warm_up().sync_on(&stream).unwrap();
    stream
}

fn condition(stream: &Stream) -> DeviceScalar<u32> {
    DeviceScalar::new(1u32).sync_on(stream).unwrap()
}

/// Records an operation and launches it. `None` on a device without loops in graphs.
fn launched<T>(op: impl DeviceOp<Output = T>, stream: &Stream) -> Option<Arc<T>>
where
    T: Send + Sync + 'static,
{
    match op.graph_on(stream) {
        Ok(graph) => Some(prepared(graph).launch().sync_on(stream).unwrap()),
        Err(error) => {
            assert!(matches!(error, Error::Unsupported { .. }), "{error}");
            None
        }
    }
}

/// Damped Jacobi iterations for `a x = b`, where every element of the diagonal is 4.
fn solve(
    a: &SharedTensor<f32>,
    b: &SharedTensor<f32>,
    limit: &SharedTensor<f32>,
    go: &DeviceScalar<u32>,
) -> impl DeviceOp<Output = (Tensor<f32>, Tensor<u32>)> + use<> {
    let (a, b, limit, go) = (a.clone(), b.clone(), limit.clone(), go.clone());
    let begin = go.set(1);
    let start = begin.then(|()| zip!(Tensor::<f32>::zeros([N, 1]), Tensor::<u32>::zeros(())));
    start.then(move |state| {
        let condition = go.clone();
        repeat_while(&condition, state, move |(x, passes)| {
            let (a, b, limit, go) = (a.clone(), b.clone(), limit.clone(), go.clone());
            script(async move |cx| {
                let residual = cx.run(b.sub((&a).matmul(&x))).await?;
                let again = residual.view().abs().max().compare(&limit, Comparison::Gt);
                cx.run(go.set_from(again)).await?;
                let x = cx.run(x.add_assign(residual.mul_scalar(0.25))).await?;
                let passes = cx.run(passes.add_assign(Tensor::ones(()))).await?;
                Ok((x, passes))
            })
        })
    })
}

fn iteration_ends_when_the_residual_is_small(device: &Device) {
    let stream = warmed_up(device);
    let shared = |elements: Vec<f32>, shape: &[usize]| {
        Tensor::from_host(elements, shape).sync_on(&stream).unwrap().into_shared()
    };
    let element = |at: usize| match (at / N).abs_diff(at % N) {
        0 => 4.0,
        1 => 1.0,
        _ => 0.0,
    };
    let a = shared((0..N * N).map(element).collect(), &[N, N]);
    let expected: Vec<f32> = (0..N).map(|at| at as f32 - 3.5).collect();
    let b = (&a).matmul(Tensor::from_host(expected.clone(), [N, 1]));
    let b = b.sync_on(&stream).unwrap().into_shared();
    let (limit, go) = (shared(vec![1e-3], &[]), condition(&stream));
    let (x, passes) = solve(&a, &b, &limit, &go).sync_on(&stream).unwrap();
    let x = x.to_host_vec().sync_on(&stream).unwrap();
    let passes = passes.item().sync_on(&stream).unwrap();
    assert!((5..40).contains(&passes), "{passes}");
    assert!(x.iter().zip(&expected).all(|(x, expected)| (x - expected).abs() < 1e-3), "{x:?}");
    assert_eq!(go.read().sync_on(&stream).unwrap(), 0);
    // A graph does the same, and each launch begins again.
    for _ in 0..2 {
        let Some(output) = launched(solve(&a, &b, &limit, &go), &stream) else { return };
        assert_eq!((&output.0).to_host_vec().sync_on(&stream).unwrap(), x);
        assert_eq!((&output.1).item().sync_on(&stream).unwrap(), passes);
    }
}

/// Adds 1 to `x` while it is less than `end`.
fn count_to(
    end: &SharedTensor<u32>,
    go: &DeviceScalar<u32>,
    x: Tensor<u32>,
) -> impl DeviceOp<Output = Tensor<u32>> + use<> {
    let (end, again) = (end.clone(), go.clone());
    repeat_while(go, x, move |x| {
        let (end, go) = (end.clone(), again.clone());
        x.add_assign(Tensor::ones(())).then(move |x| {
            script(async move |cx| {
                cx.run(go.set_from((&x).compare(&end, Comparison::Lt))).await?;
                Ok(x)
            })
        })
    })
}

/// Three passes of four passes each.
fn loops_of_tensors_nest(device: &Device) {
    let stream = warmed_up(device);
    let [three, four] =
        [3u32, 4].map(|value| Tensor::full(value, ()).sync_on(&stream).unwrap().into_shared());
    let [outer, inner] = [(); 2].map(|()| condition(&stream));
    let nested = || {
        let (three, four, outer, inner) =
            (three.clone(), four.clone(), outer.clone(), inner.clone());
        let zero = || Tensor::<u32>::zeros(());
        outer.set(1).then(move |()| zip!(zero(), zero(), zero())).then(move |state| {
            let condition = outer.clone();
            repeat_while(&condition, state, move |(rounds, x, total)| {
                let (three, four, outer, inner) =
                    (three.clone(), four.clone(), outer.clone(), inner.clone());
                script(async move |cx| {
                    cx.run(inner.set(1)).await?;
                    let x = cx.run(x.memcpy(Tensor::zeros(()))).await?;
                    let x = cx.run(count_to(&four, &inner, x)).await?;
                    let total = cx.run(total.add_assign(&x)).await?;
                    let rounds = cx.run(rounds.add_assign(Tensor::ones(()))).await?;
                    cx.run(outer.set_from((&rounds).compare(&three, Comparison::Lt))).await?;
                    Ok((rounds, x, total))
                })
            })
        })
    };
    let (rounds, x, total) = nested().sync_on(&stream).unwrap();
    let values = [rounds, x, total].map(|tensor| tensor.item().sync_on(&stream).unwrap());
    assert_eq!(values, [3, 4, 12]);
    if let Some(output) = launched(nested(), &stream) {
        let values =
            [&output.0, &output.1, &output.2].map(|tensor| tensor.item().sync_on(&stream).unwrap());
        assert_eq!(values, [3, 4, 12]);
    }
}

/// The error of a loop whose pass is `pass`, on the host and in a graph.
fn refused<S, O>(
    state: impl Fn() -> S,
    pass: impl Fn(S) -> O + Send + Copy,
    stream: &Stream,
) -> String
where
    S: cuda_async::graph::LoopState + Sync + 'static,
    O: DeviceOp<Output = S>,
{
    let go = condition(stream);
    // A loop that accepts the pass would not end.
    let once = || {
        let mut passes = 0;
        move |state| {
            passes += 1;
            assert_eq!(passes, 1, "the state is accepted");
            pass(state)
        }
    };
    let on_host = repeat_while(&go, state(), once()).sync_on(stream).map(drop).unwrap_err();
    let recorded = repeat_while(&go, state(), once()).graph_on(stream).map(drop).unwrap_err();
    assert_eq!(on_host, recorded);
    assert!(matches!(on_host, Error::Misuse(_)), "{on_host:?}");
    on_host.to_string()
}

fn other_shape_is_an_error(device: &Device) {
    let stream = warmed_up(device);
    let state = || Tensor::<f32>::zeros([2, 3]).sync_on(&stream).unwrap();
    let message = refused(state, |x| x.sum_dim(0), &stream);
    assert_eq!(
        message,
        "a loop: its pass took memory of shape [2, 3] and gave memory of shape [3] back; write the result into the state, with `memory::copy` for buffers and `memcpy` for tensors"
    );
    // The same memory in another shape.
    let message = refused(state, |x| value(x.reshape([3, 2]).unwrap()), &stream);
    assert!(message.contains("of shape [2, 3] and gave memory of shape [3, 2] back"), "{message}");
    let message = refused(state, |x| value(x.slice(0, ..1).unwrap()), &stream);
    assert!(message.contains("gave memory of shape [1, 3] back"), "{message}");
    // A part of a buffer.
    let buffer = || h2d([1u32, 2, 3]).sync_on(&stream).unwrap();
    let message = refused(buffer, |x| value(x.split_at(2).unwrap().0), &stream);
    assert!(message.contains("took memory of shape [3] and gave memory of shape [2]"), "{message}");
}

fn other_view_or_memory_is_an_error(device: &Device) {
    let stream = warmed_up(device);
    let expected =
        "gave other memory back than it took, another view of it, or the same in another order";
    let state = || Tensor::<f32>::zeros([3, 3]).sync_on(&stream).unwrap();
    let message = refused(state, |x| value(x.transpose(0, 1).unwrap()), &stream);
    assert!(message.contains(expected), "{message}");
    let message = refused(state, |x| x.mul_scalar(2.0), &stream);
    assert!(message.contains(expected), "{message}");
    let message = refused(|| (state(), state()), |(x, y)| value((y, x)), &stream);
    assert!(message.contains(expected), "{message}");
    let column = || state().slice(1, ..1).unwrap();
    let shift = |x: Tensor<f32>| {
        value(Tensor::from_buffer(x.into_buffer(), 9).unwrap().slice(0, 3..6).unwrap())
    };
    let message = refused(column, shift, &stream);
    assert!(message.contains("gave memory of shape [3] back"), "{message}");
}

/// A pass that writes the second column of a matrix, with a shared tensor and a borrow beside it.
fn views_and_shared_tensors_are_state(device: &Device) {
    let stream = warmed_up(device);
    let mut x = Tensor::<f32>::ones([3, 3]).sync_on(&stream).unwrap();
    let step =
        Tensor::from_host(vec![1.0f32, 2.0, 3.0], [3, 1]).sync_on(&stream).unwrap().into_shared();
    let limit = Tensor::full(10.0f32, ()).sync_on(&stream).unwrap();
    let go = condition(&stream);
    let column = x.view_mut().slice(1, 1..2).unwrap();
    let (again, limit) = (&go, &limit);
    let op = repeat_while(&go, (column, step), |(column, step)| {
        script(async move |cx| {
            let column = cx.run(column.add_assign(&step)).await?;
            let copied = cx.run(column.buffer().as_slice().to_host_vec()).await.is_ok();
            assert!(copied);
            let largest = Tensor::from_host(vec![0.0f32], ());
            let largest = cx.run(largest.memcpy(step.clone().max())).await?;
            cx.run(again.set_from(largest.compare(limit, Comparison::Gt))).await?;
            Ok((column, step))
        })
    });
    let (column, step) = op.sync_on(&stream).unwrap();
    assert_eq!((column.shape(), step.shape()), (&[3, 1][..], &[3, 1][..]));
    drop(column);
    let expected = [1.0, 2.0, 1.0, 1.0, 3.0, 1.0, 1.0, 4.0, 1.0];
    assert_eq!(x.to_host_vec().sync_on(&stream).unwrap(), expected);
}

fn tensors_set_scalars(device: &Device) {
    let stream = warmed_up(device);
    let x = DeviceScalar::new(7u32).sync_on(&stream).unwrap();
    let value = || x.read().sync_on(&stream).unwrap();
    // Any shape of one element, also a part of a tensor.
    x.set_from(Tensor::full(9u32, [1, 1])).sync_on(&stream).unwrap();
    assert_eq!(value(), 9);
    let row = Tensor::<u32>::arange(0..6).sync_on(&stream).unwrap();
    x.set_from(row.view().index(0, 4).unwrap()).sync_on(&stream).unwrap();
    assert_eq!(value(), 4);
    for flag in [true, false] {
        x.set_from(Tensor::from_bools([flag], ())).sync_on(&stream).unwrap();
        assert_eq!(value(), u32::from(flag));
    }
    let wide = DeviceScalar::new(0.0f64).sync_on(&stream).unwrap();
    wide.set_from(Tensor::from_host(vec![1e300, -2.0], 2).min()).sync_on(&stream).unwrap();
    assert_eq!(wide.read().sync_on(&stream).unwrap(), -2.0);
    // In a graph each launch sets the value that the tensor then has.
    let source = Tensor::full(5u32, ()).sync_on(&stream).unwrap().into_shared();
    let buffer = source.clone().into_buffer();
    let graph = prepared(x.set_from(source).graph_on(&stream).unwrap());
    assert_eq!(value(), 0);
    graph.launch().sync_on(&stream).unwrap();
    assert_eq!(value(), 5);
    let other = Arc::new(h2d([6u32]).sync_on(&stream).unwrap());
    graph.slot(&*buffer).unwrap().set(&other).unwrap();
    graph.launch().sync_on(&stream).unwrap();
    assert_eq!(value(), 6);
    let (_, same) = copy(other, x.writable()).sync_on(&stream).unwrap();
    assert_eq!(same.scalar().read().sync_on(&stream).unwrap(), 6);
}

fn only_one_element_sets_a_scalar(device: &Device) {
    let stream = warmed_up(device);
    let x = condition(&stream);
    for shape in [2, 0] {
        let error = x.set_from(Tensor::<u32>::zeros(shape)).sync_on(&stream).unwrap_err();
        assert!(matches!(error, Error::Shape { .. }), "{error:?}");
        assert_eq!(
            error.to_string(),
            format!(
                "`set_from` of a tensor: the shape [{shape}] must have one element; reduce it first, for example with `max()`, or use `to_host_vec()`"
            )
        );
    }
    assert_eq!(x.read().sync_on(&stream).unwrap(), 1);
}

fn scalar_of_another_device_is_not_set(device: &Device) {
    let (stream, cpu) = (warmed_up(device), cuda_async::open_blocking("cpu").unwrap());
    let there = condition(&cpu.new_stream().unwrap());
    if there.device() == device {
        return;
    }
    let error = there.set_from(Tensor::full(5u32, ())).sync_on(&stream).unwrap_err();
    assert!(matches!(error, Error::WrongDevice { .. }), "{error:?}");
}
