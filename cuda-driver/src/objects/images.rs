//! Images of modules: compiles PTX with the driver's compiler, or loads machine code (a cubin or a fatbin), and turns
//! refusals of the driver into errors.

use std::ffi::{CStr, c_void};

use cuda_core::protocol::{EntryInfo, Error, Feature, ParamInfo, ParamType, Result};
use cuda_ptx::{ScalarType, Space, Variable};

use crate::{
    context::{Bound, Primary},
    driver::{
        api::{FunctionHandle, ModuleHandle, jit_option},
        status::{self, Failed},
    },
};

/// Bytes of each of the compiler's two logs; the rest of a longer log is cut off.
const LOG_BYTES: usize = 16 << 10;

/// Compiles and loads PTX of this version. Returns the module and the compiler's log.
pub(super) fn compile(
    primary: &Primary,
    text: &CStr,
    version: Option<(u32, u32)>,
    _: &Bound,
) -> Result<(ModuleHandle, String)> {
    let (mut info, mut errors) = (vec![0_u8; LOG_BYTES], vec![0_u8; LOG_BYTES]);
    let mut names = [
        jit_option::INFO_LOG,
        jit_option::INFO_LOG_BYTES,
        jit_option::ERROR_LOG,
        jit_option::ERROR_LOG_BYTES,
    ];
    let size = std::ptr::without_provenance_mut::<c_void>(LOG_BYTES);
    let mut values = [info.as_mut_ptr().cast(), size, errors.as_mut_ptr().cast(), size];
    let mut raw = ModuleHandle::NULL;
    // SAFETY: the text ends with a NUL; each option has its value, each buffer its size; the
    // buffers outlive the call.
    let loaded = unsafe {
        primary.api.module_load(
            &mut raw,
            text.as_ptr().cast(),
            names.len() as u32,
            names.as_mut_ptr(),
            values.as_mut_ptr(),
        )
    };
    match loaded {
        Ok(()) => Ok((raw, log(&info))),
        Err(failed) => Err(ptx_refused(primary, failed, version, &log(&errors))),
    }
}

/// Loads a cubin or a fatbin. The image is complete, as the caller of `Device::load_cubin` promises.
pub(super) fn load_machine_code(
    primary: &Primary,
    image: &[u8],
    _: &Bound,
) -> Result<ModuleHandle> {
    let mut raw = ModuleHandle::NULL;
    let none = std::ptr::null_mut();
    // SAFETY: the image is complete; there are no options; writes one handle.
    unsafe { primary.api.module_load(&mut raw, image.as_ptr().cast(), 0, none, none.cast()) }
        .map_err(|failed| machine_code_refused(primary, failed))?;
    Ok(raw)
}

/// Returns the kernels of a module, with the offsets and sizes of their parameters.
///
/// # Errors
/// [`Error::Unsupported`] if the driver is older than CUDA 12.4.
pub(super) fn kernels_of(
    primary: &Primary,
    module: ModuleHandle,
    bound: &Bound,
) -> Result<Vec<(FunctionHandle, EntryInfo)>> {
    let failed = |failed| primary.error(failed);
    let too_old = || Error::unsupported(Feature::MachineCode, &primary.info.address);
    // SAFETY: the module is loaded.
    let functions = unsafe { primary.api.functions(module) }.map_err(failed)?;
    let describe = |raw: FunctionHandle| {
        // SAFETY: the kernel is one of the module's.
        let name = unsafe { primary.api.function_name(raw) }.map_err(failed)?;
        let (params, variables) = (params_of(primary, raw, bound)?, [].into());
        let name = name.ok_or_else(too_old)?;
        Ok((raw, EntryInfo { name, params, variables, max_threads: 0 }))
    };
    functions.ok_or_else(too_old)?.into_iter().map(describe).collect()
}

/// Refuses PTX whose kernels declare more static shared memory than a block of the device can have. The driver
/// truncates such a size to 32 bits: it loads the module, and the first launch faults.
pub(super) fn refuse_too_much_shared(
    primary: &Primary,
    module: Option<&cuda_ptx::Module>,
) -> Result<()> {
    let most = primary.limits.shared;
    module
        .map(declared_static_shared)
        .unwrap_or_default()
        .iter()
        .try_for_each(|(kernel, bytes)| check_shared(kernel, *bytes, most))
}

/// The static shared memory that each kernel of a PTX text declares, in bytes, or less.
///
/// A lower bound, since a module may declare variables that a kernel does not use: the variables of the kernel's own
/// body, or the largest `.shared` variable of the module if that is larger.
fn declared_static_shared(module: &cuda_ptx::Module) -> Vec<(String, u64)> {
    let shared = |variable: &Variable| match variable.space {
        Space::Shared if !variable.external => variable.size.unwrap_or(0),
        _ => 0,
    };
    let largest = module.variables.iter().map(shared).max().unwrap_or(0);
    let kernels = module.functions.iter().filter(|function| function.is_entry);
    let declared = |function: &cuda_ptx::Function| {
        let own = function.body.iter().flat_map(|body| &body.variables).map(shared);
        let own = own.fold(0, u64::saturating_add);
        (function.name.clone(), own.max(largest))
    };
    kernels.map(declared).collect()
}

/// Refuses a kernel that declares more static shared memory than `most` bytes.
pub(super) fn check_shared(kernel: &str, bytes: u64, most: u32) -> Result<()> {
    if bytes <= most.into() {
        return Ok(());
    }
    Err(Error::LoadFailed {
        log: format!(
            "kernel `{kernel}` declares {bytes} bytes of static shared memory; a block of this device has at most \
             {most}; declare less, or use dynamic shared memory"
        ),
    })
}

/// The error for PTX that the driver refused.
#[cold]
fn ptx_refused(primary: &Primary, failed: Failed, version: Option<(u32, u32)>, log: &str) -> Error {
    let info = &primary.info;
    let (cuda, (major, minor)) = (info.driver.unwrap_or_default(), info.compute_capability);
    match failed.code {
        code if code == status::UNSUPPORTED_PTX_VERSION || newest_ptx(log).is_some() => {
            let detail = match newest_ptx(log) {
                Some(newest) => format!("PTX ISA {newest} and older"),
                None => format!("what the toolkit of CUDA {}.{} makes", cuda.0, cuda.1),
            };
            let (major, minor) = version.unwrap_or_default();
            Error::PtxTooNew { major, minor, detail }
        }
        status::INVALID_PTX | status::INVALID_IMAGE | status::INVALID_SOURCE => {
            Error::LoadFailed { log: or_else(log, "the compiler gave no reason") }
        }
        status::NO_BINARY_FOR_GPU => {
            let why = format!("its target is newer than this GPU, which is an sm_{major}{minor}");
            Error::LoadFailed { log: format!("{why}\n{log}").trim_end().into() }
        }
        status::JIT_COMPILER_NOT_FOUND | status::JIT_COMPILATION_DISABLED => {
            let detail = "the driver's PTX compiler is missing or switched off; install the \
                          driver completely and unset CUDA_DISABLE_PTX_JIT";
            Error::DriverUnusable { detail: detail.into() }
        }
        _ => primary.error(failed),
    }
}

/// The text in a buffer that a C function filled.
fn log(buffer: &[u8]) -> String {
    let end = buffer.iter().position(|&byte| byte == 0).unwrap_or(buffer.len());
    String::from_utf8_lossy(&buffer[..end]).trim().to_owned()
}

fn or_else(text: &str, otherwise: &str) -> String {
    if text.is_empty() { otherwise.into() } else { text.into() }
}

/// The version that `.version` states.
pub(super) fn ptx_version(text: &str) -> Option<(u32, u32)> {
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(".version"))?;
    let (major, minor) = line.split_whitespace().next()?.split_once('.')?;
    let digits = minor.find(|c: char| !c.is_ascii_digit()).map_or(minor, |end| &minor[..end]);
    Some((major.parse().ok()?, digits.parse().ok()?))
}

/// The newest version that the compiler takes, if its log says that the text is newer.
fn newest_ptx(log: &str) -> Option<&str> {
    let (_, said) = log.split_once("Unsupported .version")?;
    let (_, rest) = said.split_once("current version is '")?;
    rest.split_once('\'').map(|(newest, _)| newest)
}

#[cold]
fn machine_code_refused(primary: &Primary, failed: Failed) -> Error {
    let (major, minor) = primary.info.compute_capability;
    let log = match failed.code {
        status::NO_BINARY_FOR_GPU => format!(
            "the image has no code for this GPU (sm_{major}{minor}); compile its kernels with `-arch=sm_{major}{minor}`"
        ),
        status::INVALID_IMAGE | status::INVALID_SOURCE => {
            "the driver cannot read the image; make it with a toolkit that is no newer than the driver".into()
        }
        _ => return primary.error(failed),
    };
    Error::LoadFailed { log }
}

fn params_of(primary: &Primary, function: FunctionHandle, _: &Bound) -> Result<Vec<ParamInfo>> {
    let mut params = Vec::new();
    loop {
        let index = params.len();
        // SAFETY: the module of the kernel is loaded.
        let info = unsafe { primary.api.param_info(function, index) };
        let Some((offset, size)) = info.map_err(|failed| primary.error(failed))? else {
            return Ok(params);
        };
        let (Ok(offset), Ok(size)) = (u32::try_from(offset), u32::try_from(size)) else {
            let log = format!(
                "the driver states {size} bytes at byte {offset} for parameter {index} of a kernel"
            );
            return Err(Error::LoadFailed { log });
        };
        let ty = ParamType::Array { element: ScalarType::B8, count: size };
        params.push(ParamInfo { name: format!("p{index}"), ty, offset, size, align: 1 });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn version_is_found_behind_comments_and_spaces() {
        assert_eq!(ptx_version("// .version 1.0\n.version 8.4\n"), Some((8, 4)));
        assert_eq!(ptx_version("\n  .version 9.0// new\n.target sm_90"), Some((9, 0)));
        assert_eq!(ptx_version(".target sm_90"), None);
        assert_eq!(ptx_version(".version x"), None);
    }

    #[test]
    fn newest_version_is_read_from_the_log() {
        let log = "ptxas application ptx input, line 1; fatal   : Unsupported .version 99.3; \
                   current version is '9.0'";
        assert_eq!(newest_ptx(log), Some("9.0"));
        assert_eq!(newest_ptx("fatal : something else"), None);
    }

    #[test]
    fn log_ends_at_its_nul_if_it_has_one() {
        assert_eq!(log(b"a line\n\0rest"), "a line");
        assert_eq!(log(b"full"), "full");
        assert_eq!(log(b""), "");
    }

    const SHARED: &str = ".version 7.0\n.target sm_50\n.shared .b8 outer[100];\n\
        .visible .entry a() { .shared .b8 x[64]; .shared .b8 y[1099511627776]; ret; }\n\
        .visible .entry b() { .shared .b8 x[64]; ret; }";

    #[test]
    fn declared_shared_memory_counts_the_body_or_the_largest_variable_of_the_module() {
        let declared = declared_static_shared(&cuda_ptx::parse(SHARED).unwrap());
        assert_eq!(declared, [("a".into(), (1 << 40) + 64), ("b".into(), 100)]);
    }

    #[test]
    fn kernel_with_more_static_shared_memory_than_the_device_is_refused() {
        assert_eq!(check_shared("k", 232_448, 232_448), Ok(()));
        let error = check_shared("k", 1 << 40, 232_448).unwrap_err().to_string();
        assert!(error.contains("kernel `k` declares 1099511627776 bytes"), "{error}");
        assert!(error.contains("at most 232448"), "{error}");
    }
}
