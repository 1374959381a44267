//! CUDA C with a real NVRTC. `cargo xtask ci nvrtc` runs these tests twice: the sources are compiled while the tests
//! are built, and when they run.
#![allow(clippy::unwrap_used)]

use cuda_async::{
    Error,
    kernel::{
        CudaSource, KernelParam, ModuleCache, Options, Source, compile, compile_blocking,
        declared::{Declared, Kernel, NumberKind, Scalar},
        load_ptx, nvrtc,
    },
    open_blocking,
    prelude::*,
};

/// `struct Pair { float a; double b; };`
#[derive(Clone, Copy, KernelParam)]
#[repr(C)]
struct Pair {
    a: f32,
    b: f64,
}

cuda_async::kernels! {
    #[cuda = "tests/nvrtc/axpy.cu"]
    unsafe struct Axpy; // SAFETY: all accesses are below n, the length of both buffers; `pair` writes two elements.

    #[entry(f32 = "axpy_f32", f64 = "axpy_f64")]
    #[elements(n)]
    safe fn axpy<T: f32 | f64>(x: &[T], y: &mut [T], a: T, n: u32 = y.len()) where x.len() == y.len();

    #[config(grid = 1, block = 1)]
    safe fn pair(p: Pair, out: &mut [f64]) where out.len() == 2;
}

#[test]
#[ignore = "needs NVRTC: `cargo xtask ci nvrtc` runs it"]
fn declared_source_runs() {
    let device = open_blocking("cpu").unwrap();
    let stream = device.new_stream().unwrap();
    let expected = std::env::var("COMPILED_WITH_THE_TESTS").map(|value| value == "yes");
    if let Ok(expected) = expected {
        assert_eq!(Axpy::SOURCE.built_ptx().is_some(), expected);
    }
    let axpy = Axpy::loaded().sync_on(&stream).unwrap();
    let y = axpy.axpy(h2d(vec![1.0f32; 3]), zeros(3), 2.0).then(|(_, y)| to_host(y));
    assert_eq!(y.sync_on(&stream).unwrap(), [2.0; 3]);
    let y = axpy.axpy(h2d(vec![1.0f64; 3]), zeros(3), 3.0).then(|(_, y)| to_host(y));
    assert_eq!(y.sync_on(&stream).unwrap(), [3.0; 3]);
    let out = axpy.pair(Pair { a: 0.5, b: 7.0 }, zeros(2)).then(to_host);
    assert_eq!(out.sync_on(&stream).unwrap(), [0.5, 7.0]);
    assert!(Axpy::load(&device).is_ok());
}

const ZERO: &str = "extern \"C\" __global__ void zero(float *x) { x[threadIdx.x] = 0; }";

#[test]
#[ignore = "needs NVRTC: `cargo xtask ci nvrtc` runs it"]
fn compile_gives_ptx() {
    let source = Source::from_text("zero.cu", ZERO);
    let module = compile(&source, &Options::new()).then(load_ptx).sync().unwrap();
    assert_eq!(module.entries()[0].name, "zero");
    assert!(compile_blocking(&source, &Options::new()).unwrap().contains(".entry zero"));
}

#[test]
#[ignore = "needs NVRTC: `cargo xtask ci nvrtc` runs it"]
fn mistakes_come_with_lines() {
    let source = Source::from_text("bad.cu", "\n__global__ void k() { y = 1; }");
    let error = compile(&source, &Options::new()).sync().unwrap_err();
    let cause = error.downcast_ref::<nvrtc::Error>();
    assert!(matches!(cause, Some(nvrtc::Error::Compile { .. })), "{error}");
    assert!(error.to_string().contains("bad.cu(2): error"), "{error}");
}

#[test]
#[ignore = "needs NVRTC: `cargo xtask ci nvrtc` runs it"]
fn source_without_ptx_is_checked_when_it_is_loaded() {
    const FLOATS: Option<Scalar> = Some(Scalar { kind: NumberKind::Float, size: 8 });
    const WRONG: CudaSource = CudaSource::new("zero.cu", ZERO).declared(
        None,
        &[Kernel {
            entry: "zero",
            arguments: &[("x: &mut [f64]", Declared::Buffer { element: FLOATS, written: true })],
        }],
    );
    static WRONG_MODULES: ModuleCache = ModuleCache::of_source(WRONG);
    static MODULES: ModuleCache = ModuleCache::of_source(CudaSource::new("zero.cu", ZERO));
    let device = open_blocking("cpu").unwrap();
    let stream = device.new_stream().unwrap();
    let error = WRONG_MODULES.module().sync_on(&stream).unwrap_err();
    assert!(matches!(&error, Error::Arguments { kernel, .. } if kernel == "zero"), "{error}");
    let expected = "parameter 0 is `float *` in the source, but `x: &mut [f64]` has elements of another type; write `&mut [f32]`";
    assert!(error.to_string().ends_with(expected), "{error}");
    assert_eq!(WRONG_MODULES.get(&device).unwrap_err(), error);
    assert!(MODULES.module().sync_on(&stream).is_ok());
}
