//! Kernels: parameters, shapes, shared memory, cost.

use std::{borrow::Cow, time::Instant};

use cuda_core::{
    LaunchConfig,
    protocol::{Access, AllocId, Error, FunctionId, Launch, ModuleId, Region, Relocation, Work},
};

use crate::{
    harness::gpu,
    kernels::{EMPTY, SHARED, SLOW_STORE, VECADD, slow_store_params},
};

const ONE: LaunchConfig = LaunchConfig::new(1, 1);

#[test]
fn two_vectors_are_added() {
    let Some(gpu) = gpu() else { return };
    let stream = gpu.stream();
    let n = 10_000_u32;
    let a = gpu.upload(stream, &(0..n).collect::<Vec<_>>());
    let b = gpu.upload(stream, &(0..n).map(|i| 3 * i).collect::<Vec<_>>());
    let out = gpu.alloc(stream, u64::from(n) * 4);
    let mut params = [0; 28];
    params[24..].copy_from_slice(&n.to_ne_bytes());
    let places = [(0, a), (8, b), (16, out)];
    let config = LaunchConfig::for_num_elems(n);
    gpu.launch(stream, gpu.kernel(VECADD), config, &params, &places).unwrap();
    let expected: Vec<_> = (0..n).map(|i| 4 * i).collect();
    assert_eq!(gpu.download(stream, out, n as usize), expected);
}

#[test]
fn pointer_inside_a_struct_is_patched() {
    let Some(gpu) = gpu() else { return };
    let stream = gpu.stream();
    let to = gpu.upload(stream, &[0]);
    let store = gpu.kernel(SLOW_STORE);
    gpu.launch(stream, store, ONE, &slow_store_params(42, 0), &[(8, to)]).unwrap();
    assert_eq!(gpu.download(stream, to, 1), [42]);
}

#[test]
fn kernel_without_parameters_runs() {
    let Some(gpu) = gpu() else { return };
    let stream = gpu.stream();
    gpu.launch(stream, gpu.kernel(EMPTY), ONE, &[], &[]).unwrap();
    gpu.sync(stream).unwrap();
}

#[test]
fn more_than_48_kib_of_shared_memory_is_granted() {
    let Some(gpu) = gpu() else { return };
    let stream = gpu.stream();
    let (out, kernel) = (gpu.upload(stream, &[0]), gpu.kernel(SHARED));
    let most = gpu.backend.info().max_shared_bytes;
    for bytes in [1024, 48 << 10, most, 64] {
        let mut params = [0; 12];
        params[8..].copy_from_slice(&bytes.to_ne_bytes());
        gpu.launch(stream, kernel, ONE.shared_bytes(bytes), &params, &[(0, out)]).unwrap();
        assert_eq!(gpu.download(stream, out, 1), [bytes]);
    }
    let wrong = gpu.launch(stream, kernel, ONE.shared_bytes(most + 1), &[0; 12], &[(0, out)]);
    let message = wrong.unwrap_err().to_string();
    assert!(message.contains(&format!("the limit of this kernel is {most}")), "{message}");
}

#[test]
fn invalid_launches_are_errors() {
    let Some(gpu) = gpu() else { return };
    let (stream, kernel) = (gpu.stream(), gpu.kernel(EMPTY));
    for config in [
        LaunchConfig::new(0, 1),
        LaunchConfig::new(1, 0),
        LaunchConfig::new(1, 1025),
        ONE.grid(1, 65_536, 1),
        ONE.block(1, 1, 65),
        LaunchConfig::new(u32::MAX, 1),
    ] {
        let wrong = gpu.launch(stream, kernel, config, &[], &[]);
        assert!(matches!(wrong, Err(Error::InvalidLaunch { .. })), "{wrong:?}");
    }
    let wrong = gpu.launch(stream, kernel, ONE, &[0; 8], &[]);
    assert!(matches!(wrong, Err(Error::Arguments { .. })), "{wrong:?}");
    let store = gpu.kernel(SLOW_STORE);
    let alloc = gpu.alloc(stream, 4);
    let wrong = gpu.launch(stream, store, ONE, &[0; 24], &[(17, alloc)]);
    assert!(matches!(wrong, Err(Error::Arguments { .. })), "{wrong:?}");
    let wrong = gpu.launch(stream, store, ONE, &[0; 24], &[(8, AllocId(u64::MAX))]);
    assert!(matches!(wrong, Err(Error::NoSuchObject { .. })), "{wrong:?}");
    let nowhere = FunctionId { module: ModuleId(u64::MAX), entry: 0 };
    let wrong = gpu.launch(stream, nowhere, ONE, &[], &[]);
    assert!(matches!(wrong, Err(Error::NoSuchObject { .. })), "{wrong:?}");
    gpu.sync(stream).unwrap();
}

/// Prints the cost of launches and of their parts. This side's share should stay under 50 ns.
#[test]
fn print_cost_of_a_launch() {
    let Some(gpu) = gpu() else { return };
    let stream = gpu.stream();
    let region = Region { alloc: gpu.alloc(stream, 4), offset: 0 };
    let params = slow_store_params(1, 0);
    let relocations = [Relocation { at: 8, region, bytes: 4, access: Access::Write }];
    let launch = |function, params, relocations| {
        let (params, relocations) = (Cow::Borrowed(params), Cow::Borrowed(relocations));
        Work::Launch(Launch {
            function,
            config: ONE,
            params,
            relocations,
            variables: Default::default(),
        })
    };
    let (store, empty) = (gpu.kernel(SLOW_STORE), gpu.kernel(EMPTY));
    for _ in 0..3 {
        for name in ["store", "empty", "join"] {
            let begin = Instant::now();
            for _ in 0..500 {
                let work = match name {
                    "store" => launch(store, &params[..], &relocations[..]),
                    "empty" => launch(empty, &[], &[]),
                    // Finds the stream, binds the context, and has nothing to do.
                    _ => Work::Join,
                };
                gpu.run(stream, work).unwrap();
            }
            println!("{name}: {:?}", begin.elapsed() / 500);
            gpu.sync(stream).unwrap();
        }
    }
}

/// A launch that names a module which is still loading waits for it.
#[test]
fn launch_waits_for_a_module_that_is_loading() {
    use cuda_core::protocol::{Control, ModuleImage};
    let Some(gpu) = gpu() else { return };
    let stream = gpu.stream();
    let (module, image) = (ModuleId(1 << 40), ModuleImage::Ptx(EMPTY.into()));
    gpu.control(Control::LoadModule { id: module, image }).unwrap();
    gpu.launch(stream, FunctionId { module, entry: 0 }, ONE, &[], &[]).unwrap();
    gpu.sync(stream).unwrap();
}
