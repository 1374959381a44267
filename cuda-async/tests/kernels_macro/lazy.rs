//! Lazy arguments of declared kernels, and kernels with an entry for each of several types.

use std::sync::Arc;

use cuda_async::{
    BoxedOp, Device, DeviceBuffer, Element, Error, Stream, kernel::KernelOutput, open_blocking,
    prelude::*,
};

cuda_async::kernels! {
    #[ptx = "../kernels/saxpy.ptx"]
    pub(crate) unsafe struct Vectors; // SAFETY: each kernel stays below n, which is the length of both buffers.

    #[elements(n)]
    safe fn saxpy(x: &[f32], y: &mut [f32], a: f32, n: u32 = y.len()) where x.len() == y.len();

    /// y = a x + y, for two types.
    #[entry(f32 = "saxpy", f64 = "daxpy")]
    #[elements(n)]
    safe fn axpy<T: f32 | f64>(x: &[T], y: &mut [T], a: T, n: u32 = y.len()) where x.len() == y.len();
}

fn stream() -> Result<(Device, Stream, Vectors), Error> {
    let device = open_blocking("cpu")?;
    let (stream, vectors) = (device.new_stream()?, Vectors::for_device(&device)?);
    Ok((device, stream, vectors))
}

/// A function that hides the type of its operation.
fn ones(n: usize) -> impl DeviceOp<Output = DeviceBuffer<f32>> + use<> {
    h2d(vec![1.0f32; n])
}

#[test]
fn operations_and_buffers_mix() -> Result<(), Error> {
    let (_, stream, vectors) = stream()?;
    let y = vectors.saxpy(h2d(vec![1.0; 4]), zeros(4), 3.0).sync_on(&stream)?.1;
    let x = Arc::new(ones(4).sync_on(&stream)?);
    // The types of the output are those that the arguments yield.
    let (x, y): (Arc<DeviceBuffer<f32>>, DeviceBuffer<f32>) =
        vectors.saxpy(x, value(y), 2.0).sync_on(&stream)?;
    let mut y = y;
    let (_, same): (_, &mut DeviceBuffer<f32>) =
        vectors.saxpy(ones(4), &mut y, 1.0).sync_on(&stream)?;
    assert_eq!(same.len(), 4);
    let boxed: BoxedOp<Arc<DeviceBuffer<f32>>> = value(x).boxed();
    let op = vectors.saxpy(boxed, y, 1.0).then(|(_, y)| to_host(y));
    assert_eq!(op.sync_on(&stream)?, [7.0; 4]);
    Ok(())
}

/// A launch of owned and lazy arguments can be spawned: it borrows neither the struct nor a buffer.
#[test]
fn launch_outlives_the_struct() -> Result<(), Error> {
    fn spawned<F: IntoFuture<Output = Result<Vec<f32>, Error>, IntoFuture: Send + 'static>>(
        operation: F,
    ) -> Result<Vec<f32>, Error> {
        std::thread::scope(|scope| {
            let future = operation.into_future();
            let thread = scope.spawn(|| futures::executor::block_on(future));
            thread.join().unwrap_or(Err(Error::AlreadyEnded))
        })
    }
    let (device, stream, vectors) = stream()?;
    let x = Arc::new(ones(4).sync_on(&stream)?);
    // The second argument needs host data half way, so the launch is suspended.
    let counted = ones(4).then(to_host).then(|host| zeros::<f32>(host.len()));
    let op = vectors.saxpy(x, counted, 3.0).then(|(_, y)| to_host(y)).on(&device);
    drop(vectors);
    assert_eq!(spawned(op)?, [3.0; 4]);
    Ok(())
}

#[test]
fn launches_nest() -> Result<(), Error> {
    let (_, stream, vectors) = stream()?;
    let twice = vectors.saxpy(ones(3), zeros(3), 2.0).map(|(_, y)| y);
    let op = vectors.saxpy(twice, ones(3), 10.0).then(|(_, y)| to_host(y));
    assert_eq!(op.sync_on(&stream)?, [21.0; 3]);
    Ok(())
}

#[test]
fn conditions_wait_for_lazy_arguments() -> Result<(), Error> {
    let (_, stream, vectors) = stream()?;
    let error = vectors.saxpy(ones(3), zeros(4), 1.0).sync_on(&stream).unwrap_err();
    assert!(matches!(&error, Error::Arguments { kernel, .. } if kernel == "saxpy"), "{error}");
    Ok(())
}

#[test]
fn first_error_ends_the_operation() -> Result<(), Error> {
    let (_, stream, vectors) = stream()?;
    let failed = value(()).try_map(|()| Err::<DeviceBuffer<f32>, _>(Error::OutsideScript));
    let never =
        value(()).map(|()| -> DeviceBuffer<f32> { unreachable!("the first argument failed") });
    let error = vectors.saxpy(failed, never, 1.0).sync_on(&stream).unwrap_err();
    assert_eq!(error, Error::OutsideScript);
    Ok(())
}

/// An argument that needs host data half way suspends the launch, and blocks no thread.
#[test]
fn arguments_may_wait_for_host_data() -> Result<(), Error> {
    let (_, stream, vectors) = stream()?;
    let counted = || ones(5).then(to_host).then(|host| zeros::<f32>(host.len()));
    let op = vectors.saxpy(ones(5), counted(), 4.0);
    let op = vectors.saxpy(counted(), op.map(|(_, y)| y), 1.0).then(|(_, y)| to_host(y));
    assert_eq!(op.sync_on(&stream)?, [4.0; 5]);
    Ok(())
}

#[test]
fn each_type_launches_its_own_entry() -> Result<(), Error> {
    let (_, stream, vectors) = stream()?;
    let single = vectors.axpy(ones(3), zeros(3), 0.5).then(|(_, y)| to_host(y));
    assert_eq!(single.sync_on(&stream)?, [0.5f32; 3]);
    let double = vectors.axpy(h2d(vec![1.0f64; 3]), zeros(3), 0.1).then(|(_, y)| to_host(y));
    assert_eq!(double.sync_on(&stream)?, [0.1f64; 3]);
    Ok(())
}

/// A function that is generic over the types of the kernel and the form of its output.
fn doubled<T, Y>(
    vectors: &Vectors,
    x: Arc<DeviceBuffer<T>>,
    y: Y,
    two: T,
) -> impl DeviceOp<Output = Y> + use<T, Y>
where
    T: VectorsAxpy + Element,
    Y: KernelOutput<T>,
{
    vectors.axpy(x, y, two).map(|(_, y)| y)
}

#[test]
fn functions_are_generic_over_the_types_of_a_kernel() -> Result<(), Error> {
    let (_, stream, vectors) = stream()?;
    let x = Arc::new(h2d(vec![1.5f64; 2]).sync_on(&stream)?);
    let mut y = zeros::<f64>(2).sync_on(&stream)?;
    doubled(&vectors, x, &mut y, 2.0).sync_on(&stream)?;
    assert_eq!(to_host(y).sync_on(&stream)?, [3.0; 2]);
    Ok(())
}
