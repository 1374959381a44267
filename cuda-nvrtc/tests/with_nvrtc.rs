//! Compilations with a real NVRTC. `cargo xtask ci nvrtc` installs it and runs these tests.

#![allow(clippy::unwrap_used)]

use std::{fs, path::Path, process::Command};

use cuda_nvrtc::{
    Cache, Error, Nvrtc, Options, Origin, Source, compile_with, resolve_with, signature,
};

const SAXPY: &str = "extern \"C\" __global__ void saxpy(const float *x, float *y, float a, unsigned n) {\n\
                     unsigned i = blockIdx.x * blockDim.x + threadIdx.x;\n\
                     if (i < n) y[i] = a * x[i] + y[i];\n}\n";

fn nvrtc() -> &'static Nvrtc {
    Nvrtc::find().unwrap()
}

fn types(ptx: &str, entry: &str) -> Vec<String> {
    let types = signature::of_entry(ptx, entry).unwrap_or_default();
    types.iter().map(ToString::to_string).collect()
}

#[test]
#[ignore = "needs NVRTC: `cargo xtask ci nvrtc` runs it"]
fn types_of_all_kinds_of_kernels_are_found() {
    let text = format!(
        "{SAXPY}struct Mixed {{ float a; double b; }};\n\
         namespace ns {{ __global__ void inside(const unsigned char *__restrict__ a, bool *const b) {{ b[0] = a[0]; }} }}\n\
         template <class T> __global__ void axpy(const T *x, T *y, T a, unsigned n) {{ y[0] = a * x[0]; }}\n\
         template __global__ void axpy<double>(const double *, double *, double, unsigned);\n\
         extern \"C\" __global__ void mixed(Mixed *a, Mixed b, const void *c, long long d, const Mixed *e) {{ a[0] = b; }}\n"
    );
    let source = Source::from_text("all.cu", text);
    let ptx = nvrtc().compile_with_types(&source, &Options::new()).unwrap().text;
    assert_eq!(types(&ptx, "saxpy"), ["const float *", "float *", "float", "unsigned int"]);
    let mixed = ["Mixed *", "Mixed", "const void *", "long long", "const Mixed *"];
    assert_eq!(types(&ptx, "mixed"), mixed);
    assert_eq!(types(&ptx, "_ZN2ns6insideEPKhPb"), ["const unsigned char *", "bool *"]);
    let axpy = ["const double *", "double *", "double", "unsigned int"];
    assert_eq!(types(&ptx, "_Z4axpyIdEvPKT_PS0_S0_j"), axpy);
    assert!(ptx.contains("_Z4axpyIdEvPKT_PS0_S0_j"), "{ptx}");
    assert!(!ptx.contains(".entry _Z20cuda_nvrtc"), "the probes are not in the text");
}

#[test]
#[ignore = "needs NVRTC: `cargo xtask ci nvrtc` runs it"]
fn mistakes_are_reported_with_their_line() {
    let source =
        Source::from_text("kernels/bad.cu", "\n\n__global__ void k(float *x) { x[0] = y; }");
    let error = nvrtc().compile(&source, &Options::new()).unwrap_err();
    assert!(matches!(error, Error::Compile { .. }), "{error:?}");
    assert!(error.to_string().contains("kernels/bad.cu(3): error"), "{error}");
    let unknown = Source::from_text("k.cu", SAXPY);
    let error = nvrtc().compile(&unknown, &Options::new().flag("--no-such-option")).unwrap_err();
    assert!(error.to_string().contains("no-such-option"), "{error}");
    let nul = Source::from_text("k.cu", "a\0b");
    assert_eq!(
        nvrtc().compile(&nul, &Options::new()).unwrap_err(),
        Error::Nul { what: "k.cu".into() }
    );
}

#[test]
#[ignore = "needs NVRTC: `cargo xtask ci nvrtc` runs it"]
fn options_and_headers_are_used() {
    let source = Source::from_text(
        "k.cu",
        "#include \"a/size.cuh\"\nextern \"C\" __global__ void k(float *x) { x[0] = SIZE * N; }",
    )
    .header("a/size.cuh", "#define SIZE 3.0f");
    let options = Options::new().define("N", "7").architecture("compute_80");
    let ptx = nvrtc().compile(&source, &options).unwrap().text;
    assert!(ptx.contains(".target sm_80"), "{ptx}");
    assert!(ptx.contains("0f41A80000") || ptx.contains("1101529088"), "21.0: {ptx}");
}

#[test]
#[ignore = "needs NVRTC: `cargo xtask ci nvrtc` runs it"]
fn second_compilation_comes_from_the_cache() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::in_folder(folder.path());
    let (source, options) = (Source::from_text("k.cu", SAXPY), Options::new());
    let first = compile_with(nvrtc(), &cache, &source, &options).unwrap();
    let entries = || {
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
    };
    assert_eq!(entries().len(), 1);
    assert_eq!(compile_with(nvrtc(), &cache, &source, &options).unwrap().text, first.text);
    let [entry] = entries().try_into().unwrap();
    let other = compile_with(nvrtc(), &cache, &source, &Options::new().flag("--fmad=false"));
    let other = other.unwrap();
    assert_eq!(entries().len(), 2, "other options are another entry");
    assert_ne!(other.text, first.text);
    // With the text of the other entry, the entry is still whole: its text proves that it was read.
    let of_other = entries().into_iter().find(|path| *path != entry).unwrap();
    fs::copy(of_other, &entry).unwrap();
    assert_eq!(compile_with(nvrtc(), &cache, &source, &options).unwrap().text, other.text);
    for entry in entries() {
        fs::write(entry, "damaged").unwrap();
    }
    assert_eq!(compile_with(nvrtc(), &cache, &source, &options).unwrap().text, first.text);
}

#[test]
#[ignore = "needs NVRTC: `cargo xtask ci nvrtc` runs it"]
fn program_writes_a_file_that_needs_no_compiler() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("saxpy.cu");
    fs::write(&file, SAXPY).unwrap();
    let options = Options::new().flag("--fmad=false");
    let without = |options: &Options| resolve_with(None, &Cache::off(), "saxpy.cu", &file, options);
    assert!(without(&options).unwrap().ptx.is_none());
    let run = |arguments: &[&str], file: &Path| {
        Command::new(env!("CARGO_BIN_EXE_cuda-nvrtc")).args(arguments).arg(file).output().unwrap()
    };
    let output = run(&["--fmad=false"], &file);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (ptx, origin) = without(&options).unwrap().ptx.unwrap();
    assert_eq!(origin, Origin::File);
    assert_eq!(types(&ptx.text, "saxpy")[0], "const float *");
    assert!(
        matches!(without(&Options::new()), Err(Error::Stale { .. })),
        "made with other options"
    );
    let compiled = resolve_with(Some(nvrtc()), &Cache::off(), "saxpy.cu", &file, &options).unwrap();
    assert_eq!(compiled.ptx.unwrap().1, Origin::Compiled);
    fs::write(&file, "__global__ void k(").unwrap();
    let output = run(&[], &file);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("saxpy.cu(1): error"));
}
