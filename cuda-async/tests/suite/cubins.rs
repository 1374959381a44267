//! Modules from machine code. `filter_sm_90.cubin` is `kernels/filter.cu`, compiled by
//! `python3 kernels/compile.py kernels/filter.cu --arch sm_90`.

use cuda_async::{Device, Error, LaunchConfig, Module, launch, prelude::*};

use crate::{modules, on_every_device};

const CUBIN: &[u8] = include_bytes!("filter_sm_90.cubin");

on_every_device! {
    cubin_runs_where_its_architecture_is
    cubin_is_loaded_without_blocking
    images_of_other_kinds_are_refused
}

/// Loads the cubin, or returns the error of a device that has another architecture.
fn load(device: &Device) -> Result<Module, Error> {
    // SAFETY: the file is complete.
    modules::load(device, || unsafe { device.load_cubin(CUBIN) })
}

fn is_hopper(device: &Device) -> bool {
    device.info().address.starts_with("cuda") && device.info().compute_capability.0 == 9
}

fn refused(device: &Device, error: &Error) -> bool {
    let Error::LoadFailed { log } = error else { return false };
    let is_gpu = device.info().address.starts_with("cuda");
    log.contains(if is_gpu {
        "the image has no code for this GPU"
    } else {
        "load the PTX of its kernels"
    })
}

fn cubin_runs_where_its_architecture_is(device: &Device) {
    let module = match load(device) {
        Ok(module) => module,
        Err(error) => return assert!(!is_hopper(device) && refused(device, &error), "{error}"),
    };
    let info = &module.entries()[0];
    let places: Vec<_> = info.params.iter().map(|param| (param.offset, param.size)).collect();
    assert_eq!((info.name.as_str(), places), ("filter", vec![(0, 8), (8, 8), (16, 4)]));
    assert!(info.max_threads >= 1024);
    let filter = module.function("filter").unwrap();
    let stream = device.lend_stream(0).unwrap();
    let input = h2d(vec![3.0f32; 104]).sync_on(&stream).unwrap();
    let out = h2d(vec![9.0f32; 100]).sync_on(&stream).unwrap();
    let config = LaunchConfig::for_num_elems(100u32);
    // SAFETY: the input has four elements more than the output. The taps are 0, so the sums are.
    let op = unsafe { launch(&filter, config, (out, input, 100u32)) };
    let out = op.then(|(out, _)| to_host(out)).sync_on(&stream).unwrap();
    assert_eq!(out, [0.0; 100]);
    // SAFETY: refused before anything runs.
    let error =
        unsafe { launch(&filter, config, (1u64, 2u64, 3u64)) }.sync_on(&stream).unwrap_err();
    assert!(error.to_string().contains("has type b8[4] (4 bytes), the argument has 8"), "{error}");
    let error = module.variable::<f32>("taps").unwrap_err();
    assert!(matches!(error, Error::NoSuchVariable { .. }), "{error}");
}

fn cubin_is_loaded_without_blocking(device: &Device) {
    let loaded = modules::load(device, || {
        // SAFETY: the file is complete.
        let loading = unsafe { device.start_loading_cubin(CUBIN) }?;
        futures::executor::block_on(loading)
    });
    match loaded {
        Ok(module) => assert_eq!(module.function("filter").unwrap().name(), "filter"),
        Err(error) => assert!(!is_hopper(device) && refused(device, &error), "{error}"),
    }
}

fn images_of_other_kinds_are_refused(device: &Device) {
    let ptx = include_str!("../../../kernels/filter.ptx");
    for (image, advice) in [
        (ptx.as_bytes(), "load it with `load_ptx`"),
        (b"MZ", "`nvcc -cubin`"),
        (b"", "the image is empty"),
    ] {
        // SAFETY: refused by the first bytes.
        let error = unsafe { device.load_cubin(image) }.unwrap_err().to_string();
        assert!(error.contains(advice), "{error}");
    }
    let ptx = std::str::from_utf8(&CUBIN[..4]).unwrap();
    let error = device.load_ptx_blocking(ptx).unwrap_err().to_string();
    assert!(error.contains("it is a cubin; load it with `load_cubin`"), "{error}");
}
