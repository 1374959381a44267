//! Loading modules, good ones and bad ones.

use cuda_core::{Command, Error, FunctionId, Launch, LaunchConfig, Request};

use crate::{
    harness::gpu,
    kernels::{EMPTY, SLOW_STORE, VECADD},
};

#[test]
fn a_module_lists_its_kernels() {
    let Some(gpu) = gpu() else { return };
    let (_, info) = gpu.try_load(VECADD).unwrap();
    let [entry] = &info.entries[..] else { panic!("{info:?}") };
    assert_eq!((entry.name.as_str(), entry.max_threads, entry.param_bytes()), ("vecadd", 1024, 28));
    let types: Vec<_> = entry.params.iter().map(|param| param.ty.as_str()).collect();
    assert_eq!(types, ["u64", "u64", "u64", "u32"]);
    let (_, info) = gpu.try_load(SLOW_STORE).unwrap();
    assert_eq!(
        (info.entries[0].params[0].ty.as_str(), info.entries[0].param_bytes()),
        ("b8[24]", 24)
    );
}

#[test]
fn an_unloaded_module_is_unknown() {
    let Some(gpu) = gpu() else { return };
    let (id, _) = gpu.try_load(EMPTY).unwrap();
    gpu.backend.request(Request::UnloadModule { id }).unwrap();
    let launch = Launch {
        function: FunctionId { module: id, entry: 0 },
        config: LaunchConfig::new(1, 1),
        params: Vec::new().into(),
        relocations: Vec::new().into(),
    };
    let gone = gpu.run(gpu.stream(), Command::Launch(launch));
    assert!(matches!(gone, Err(Error::OutOfRange { .. })), "{gone:?}");
    let gone = gpu.backend.request(Request::UnloadModule { id });
    assert!(matches!(gone, Err(Error::OutOfRange { .. })), "{gone:?}");
}

#[test]
fn what_is_no_ptx_is_refused() {
    let Some(gpu) = gpu() else { return };
    for text in ["", "int main() {}", ".version 7.0\n.target sm_50\n.entry k("] {
        let wrong = gpu.try_load(text);
        assert!(matches!(wrong, Err(Error::InvalidPtx { .. })), "{wrong:?}");
    }
    let wrong = gpu.try_load(&format!("{EMPTY}\0"));
    assert!(matches!(wrong, Err(Error::InvalidPtx { .. })), "{wrong:?}");
}

#[test]
fn the_compiler_says_what_is_wrong() {
    let Some(gpu) = gpu() else { return };
    let wrong = gpu.try_load(&EMPTY.replace("ret;", "frobnicate.u32 %r1;")).unwrap_err();
    println!("{wrong}");
    assert!(matches!(wrong, Error::LoadFailed { .. }), "{wrong:?}");
    assert!(wrong.to_string().contains("frobnicate"), "{wrong}");
}

#[test]
fn ptx_of_the_future_is_too_new() {
    let Some(gpu) = gpu() else { return };
    let wrong = gpu.try_load(&EMPTY.replace("7.0", "99.3")).unwrap_err();
    println!("{wrong}");
    assert!(matches!(wrong, Error::PtxTooNew { major: 99, minor: 3, .. }), "{wrong:?}");
    let wrong = gpu.try_load(&EMPTY.replace("sm_50", "sm_990")).unwrap_err();
    println!("{wrong}");
    assert!(matches!(wrong, Error::LoadFailed { .. }), "{wrong:?}");
}
