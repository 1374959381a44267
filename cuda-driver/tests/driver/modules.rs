//! Loading modules, good ones and bad ones.

use cuda_core::{
    LaunchConfig,
    protocol::{Control, Error, FunctionId, ModuleId, ModuleImage, Request},
};

use crate::{
    harness::gpu,
    kernels::{EMPTY, SLOW_STORE, VECADD},
};

const ONE: LaunchConfig = LaunchConfig::new(1, 1);

#[test]
fn loaded_module_reports_the_largest_block_of_each_kernel() {
    let Some(gpu) = gpu() else { return };
    let (_, max_threads, _) = gpu.try_load(VECADD).unwrap();
    assert_eq!(max_threads, [1024]);
    let two = format!("{SLOW_STORE}.visible .entry small() .maxntid 64, 1, 1 {{ ret; }}");
    let (_, max_threads, _) = gpu.try_load(&two).unwrap();
    assert_eq!(max_threads, [1024, 64]);
}

#[test]
fn unloaded_module_is_unknown() {
    let Some(gpu) = gpu() else { return };
    let (id, ..) = gpu.try_load(EMPTY).unwrap();
    let (stream, function) = (gpu.stream(), FunctionId { module: id, entry: 0 });
    gpu.launch(stream, function, ONE, &[], &[]).unwrap();
    gpu.sync(stream).unwrap();
    gpu.control(Control::UnloadModule { id }).unwrap();
    let gone = gpu.launch(stream, function, ONE, &[], &[]).map(drop);
    for gone in [
        gone,
        gpu.control(Control::UnloadModule { id }),
        gpu.request(Request::Loaded { module: id }).map(drop),
    ] {
        assert!(matches!(gone, Err(Error::NoSuchObject { .. })), "{gone:?}");
    }
}

#[test]
fn module_is_unloaded_while_it_loads() {
    let Some(gpu) = gpu() else { return };
    for id in (0..20).map(|number| ModuleId(5000 + number)) {
        let image = ModuleImage::Ptx(EMPTY.into());
        gpu.control(Control::LoadModule { id, image }).unwrap();
        gpu.control(Control::UnloadModule { id }).unwrap();
    }
    gpu.try_load(EMPTY).unwrap();
}

#[test]
fn id_of_a_loaded_module_is_taken() {
    let Some(gpu) = gpu() else { return };
    let (id, ..) = gpu.try_load(EMPTY).unwrap();
    let again = gpu.control(Control::LoadModule { id, image: ModuleImage::Ptx(EMPTY.into()) });
    assert!(matches!(again, Err(Error::Misuse(_))), "{again:?}");
}

#[test]
fn text_that_is_not_ptx_is_refused() {
    let Some(gpu) = gpu() else { return };
    for text in ["", "int main() {}", ".version 7.0\n.target sm_50\n.entry k("] {
        let wrong = gpu.try_load(text);
        assert!(matches!(wrong, Err(Error::InvalidPtx { .. })), "{wrong:?}");
    }
    let wrong = gpu.try_load(&format!("{EMPTY}\0"));
    assert!(matches!(wrong, Err(Error::InvalidPtx { .. })), "{wrong:?}");
}

#[test]
fn log_of_the_compiler_is_in_the_error() {
    let Some(gpu) = gpu() else { return };
    let wrong = gpu.try_load(&EMPTY.replace("ret;", "frobnicate.u32 %r1;")).unwrap_err();
    println!("{wrong}");
    assert!(matches!(wrong, Error::LoadFailed { .. }), "{wrong:?}");
    assert!(wrong.to_string().contains("frobnicate"), "{wrong}");
}

#[test]
fn newer_ptx_version_is_an_error() {
    let Some(gpu) = gpu() else { return };
    let wrong = gpu.try_load(&EMPTY.replace("7.0", "99.3")).unwrap_err();
    println!("{wrong}");
    assert!(matches!(wrong, Error::PtxTooNew { major: 99, minor: 3, .. }), "{wrong:?}");
    let wrong = gpu.try_load(&EMPTY.replace("sm_50", "sm_990")).unwrap_err();
    println!("{wrong}");
    assert!(matches!(wrong, Error::LoadFailed { .. }), "{wrong:?}");
}

/// The driver truncates such a size to 32 bits and loads the module; the launch would fault.
#[test]
fn more_static_shared_memory_than_a_block_can_have_is_refused() {
    let Some(gpu) = gpu() else { return };
    for bytes in [1_u64 << 40, (1 << 32) + 16] {
        let text = format!(".shared .align 4 .b8 huge[{bytes}]; mov.u32 %r0, huge; ret;");
        let text = EMPTY.replace("ret;", &format!(".reg .b32 %r<1>; {text}"));
        let wrong = gpu.try_load(&text).unwrap_err();
        println!("{wrong}");
        assert!(matches!(wrong, Error::LoadFailed { .. }), "{wrong:?}");
        assert!(wrong.to_string().contains(&format!("declares {bytes} bytes")), "{wrong}");
    }
}
