//! Modules: PTX in, kernels out.

use std::{
    ffi::{CStr, CString, c_void},
    sync::atomic::AtomicU32,
};

use parking_lot::RwLock;
use rustc_hash::FxHashMap;

use super::{
    api::{FunctionHandle, ModuleHandle, function_attribute as attribute, jit_option},
    context::{Bound, Primary},
    recent::Recent,
    status::{self, Failed},
    streams::{taken, unknown},
};
use crate::{
    EntryInfo, Error, FunctionId, ModuleId, ModuleImage, ModuleInfo, Result, entries::entry_params,
};

/// Bytes of each of the compiler's two logs; what does not fit is cut off.
const LOG_BYTES: usize = 16 << 10;

/// The modules of one backend.
pub(super) struct Modules {
    primary: &'static Primary,
    table: RwLock<FxHashMap<ModuleId, Module>>,
    recent: Recent,
}

struct Module {
    raw: ModuleHandle,
    functions: Vec<Function>,
}

/// A kernel, and what its launches must fit.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) raw: FunctionHandle,
    pub(super) name: String,
    pub(super) param_bytes: u32,
    pub(super) max_threads: u32,
    pub(super) static_shared: u32,
    /// Dynamic shared memory that it may be launched with as it is; raised by the first launch that
    /// needs more.
    pub(super) dynamic_shared: AtomicU32,
}

impl Modules {
    pub(super) fn new(primary: &'static Primary) -> Self {
        Self { primary, table: RwLock::default(), recent: Recent::default() }
    }

    /// Compiles and loads a module.
    pub(super) fn load(
        &self,
        id: ModuleId,
        image: ModuleImage,
        bound: &Bound,
    ) -> Result<ModuleInfo> {
        let ModuleImage::Ptx(text) = image;
        let signatures = cuda_ptx::signatures(&text)
            .map_err(|error| Error::InvalidPtx { detail: error.to_string() })?;
        let version = ptx_version(&text);
        let text = CString::new(text).map_err(|error| Error::InvalidPtx {
            detail: format!("there is a NUL character at byte {}", error.nul_position()),
        })?;
        let (raw, log) = self.compile(&text, version, bound)?;
        let mut loaded = Module { raw, functions: Vec::with_capacity(signatures.len()) };
        let mut entries = Vec::with_capacity(signatures.len());
        for signature in signatures {
            let params = entry_params(&signature.params);
            let mut entry = EntryInfo { name: signature.name, params, max_threads: 0 };
            match self.function(raw, &entry, bound) {
                Ok(function) => {
                    entry.max_threads = function.max_threads;
                    loaded.functions.push(function);
                    entries.push(entry);
                }
                Err(error) => {
                    self.unload_raw(raw, bound);
                    return Err(error);
                }
            }
        }
        let mut table = self.table.write();
        if table.contains_key(&id) {
            drop(table);
            self.unload_raw(raw, bound);
            return Err(taken(format!("module {}", id.0)));
        }
        table.insert(id, loaded);
        Ok(ModuleInfo { entries, log })
    }

    /// Unloads a module.
    pub(super) fn unload(&self, id: ModuleId, bound: &Bound) -> Result<()> {
        // Nobody launches a function of it now, and from here on nobody finds one.
        let removed = self.table.write().remove(&id);
        let module = removed.ok_or_else(|| self.unknown(id))?;
        for entry in 0..module.functions.len() as u64 {
            self.recent.forget([id.0, entry]);
        }
        self.unload_raw(module.raw, bound);
        Ok(())
    }

    /// A kernel.
    ///
    /// # Safety
    /// Nobody unloads its module while the result is used.
    #[inline]
    pub(super) unsafe fn find(&self, id: FunctionId) -> Result<&Function> {
        let found = match self.recent.get([id.module.0, id.entry.into()]) {
            Some([address, _]) => std::ptr::with_exposed_provenance(address as usize),
            None => self.look_up(id)?,
        };
        // SAFETY: it stands in the list of a module that is loaded and stays so, as the caller promises; lists
        // are not changed after loading, and what is unloaded is forgotten (rule 4).
        Ok(unsafe { &*found })
    }

    #[cold]
    fn look_up(&self, id: FunctionId) -> Result<*const Function> {
        let table = self.table.read();
        let module = table.get(&id.module).ok_or_else(|| self.unknown(id.module))?;
        let function = module.functions.get(id.entry as usize).ok_or_else(|| {
            let what = format!("kernel {} of module {}", id.entry, id.module.0);
            unknown(what, &self.primary.info.address)
        })?;
        let function = std::ptr::from_ref(function);
        let address = function.expose_provenance() as u64;
        self.recent.put([id.module.0, id.entry.into()], [address, 0]);
        Ok(function)
    }

    /// Takes everything out, for a backend that is dropped.
    pub(super) fn take(&mut self) -> Vec<ModuleHandle> {
        std::mem::take(self.table.get_mut()).into_values().map(|module| module.raw).collect()
    }

    fn compile(
        &self,
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
            self.primary.api.module_load(
                &mut raw,
                text.as_ptr().cast(),
                names.len() as u32,
                names.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        match loaded {
            Ok(()) => Ok((raw, log(&info))),
            Err(failed) => Err(self.refused(failed, version, &log(&errors))),
        }
    }

    fn function(&self, module: ModuleHandle, entry: &EntryInfo, _: &Bound) -> Result<Function> {
        let api = self.primary.api;
        let failed = |failed| self.primary.error(failed);
        let name = CString::new(entry.name.as_str())
            .map_err(|error| Error::InvalidPtx { detail: error.to_string() })?;
        let mut raw = FunctionHandle::NULL;
        // SAFETY: writes one handle; the module was loaded just now, and the name ends with a NUL.
        unsafe { api.module_function(&mut raw, module, name.as_ptr()) }.map_err(failed)?;
        let ask = |attribute| -> Result<u32> {
            let mut value = 0;
            // SAFETY: writes one integer; the function is one of the module's.
            unsafe { api.function_get(&mut value, attribute, raw) }.map_err(failed)?;
            Ok(value.max(0).unsigned_abs())
        };
        Ok(Function {
            raw,
            name: entry.name.clone(),
            param_bytes: entry.param_bytes(),
            max_threads: ask(attribute::MAX_THREADS_PER_BLOCK)?,
            static_shared: ask(attribute::STATIC_SHARED)?,
            dynamic_shared: AtomicU32::new(ask(attribute::MAX_DYNAMIC_SHARED)?),
        })
    }

    fn unload_raw(&self, raw: ModuleHandle, _: &Bound) {
        // Nobody could do anything about a failure: a lost device says so at its next use.
        // SAFETY: loaded here, in no table, so no launch uses it (rule 4).
        _ = unsafe { self.primary.api.module_unload(raw) };
    }

    #[cold]
    fn refused(&self, failed: Failed, version: Option<(u32, u32)>, log: &str) -> Error {
        let info = &self.primary.info;
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
                let why =
                    format!("its target is newer than this GPU, which is an sm_{major}{minor}");
                Error::LoadFailed { log: format!("{why}\n{log}").trim_end().into() }
            }
            status::JIT_COMPILER_NOT_FOUND | status::JIT_COMPILATION_DISABLED => {
                let detail = "the driver's PTX compiler is missing or switched off; install the \
                              driver completely and unset CUDA_DISABLE_PTX_JIT";
                Error::DriverUnusable { detail: detail.into() }
            }
            _ => self.primary.error(failed),
        }
    }

    #[cold]
    fn unknown(&self, id: ModuleId) -> Error {
        unknown(format!("module {}", id.0), &self.primary.info.address)
    }
}

/// The text that a C function left in a buffer.
fn log(buffer: &[u8]) -> String {
    let end = buffer.iter().position(|&byte| byte == 0).unwrap_or(buffer.len());
    String::from_utf8_lossy(&buffer[..end]).trim().to_owned()
}

fn or_else(text: &str, otherwise: &str) -> String {
    if text.is_empty() { otherwise.into() } else { text.into() }
}

/// What stands behind `.version`.
fn ptx_version(text: &str) -> Option<(u32, u32)> {
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(".version"))?;
    let (major, minor) = line.split_whitespace().next()?.split_once('.')?;
    let digits = minor.find(|c: char| !c.is_ascii_digit()).map_or(minor, |end| &minor[..end]);
    Some((major.parse().ok()?, digits.parse().ok()?))
}

/// What the compiler says it takes at most, if it says that a text is newer.
fn newest_ptx(log: &str) -> Option<&str> {
    let (_, said) = log.split_once("Unsupported .version")?;
    let (_, rest) = said.split_once("current version is '")?;
    rest.split_once('\'').map(|(newest, _)| newest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_found_where_it_may_stand() {
        assert_eq!(ptx_version("// .version 1.0\n.version 8.4\n"), Some((8, 4)));
        assert_eq!(ptx_version("\n  .version 9.0// new\n.target sm_90"), Some((9, 0)));
        assert_eq!(ptx_version(".target sm_90"), None);
        assert_eq!(ptx_version(".version x"), None);
    }

    #[test]
    fn the_log_tells_what_the_compiler_takes() {
        let log = "ptxas application ptx input, line 1; fatal   : Unsupported .version 99.3; \
                   current version is '9.0'";
        assert_eq!(newest_ptx(log), Some("9.0"));
        assert_eq!(newest_ptx("fatal : something else"), None);
    }

    #[test]
    fn a_log_ends_at_its_nul_and_may_have_none() {
        assert_eq!(log(b"a line\n\0rest"), "a line");
        assert_eq!(log(b"full"), "full");
        assert_eq!(log(b""), "");
    }
}
