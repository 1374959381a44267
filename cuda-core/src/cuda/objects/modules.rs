//! Modules: loaded on a helper thread, their kernels found by launches.
//!
//! # Rules
//! - A module is in the table from the control that loads it to the control that unloads it. The state of its slot is
//!   loading, loaded or failed. A launch blocks while its module is loading. A client avoids this by waiting for
//!   [`Request::Loaded`](crate::protocol::Request::Loaded) first.
//! - A slot that is dropped gives its module to the helper thread that unloads it. The load job holds the slot too.

use std::{
    ffi::{CStr, CString, c_void},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::AtomicU32},
};

use parking_lot::{Condvar, Mutex, RwLock};
use rustc_hash::FxHashMap;

use crate::{
    cuda::{
        context::{Bound, IdCache, Primary, Reclaimable},
        driver::{
            api::{FunctionHandle, ModuleHandle, function_attribute as attribute, jit_option},
            status::{self, Failed},
        },
        streams::{taken, unknown},
    },
    protocol::{
        Answer, EntryInfo, Error, FunctionId, ModuleId, ModuleImage, Reply, Result, entries,
    },
    sync::{HelperThread, discard_panic},
};

/// Bytes of each of the compiler's two logs; the rest of a longer log is cut off.
const LOG_BYTES: usize = 16 << 10;

/// The modules of one backend.
pub(crate) struct Modules {
    primary: &'static Primary,
    table: RwLock<FxHashMap<ModuleId, Arc<ModuleSlot>>>,
    cache: IdCache,
}

/// The slot of a module. It exists before the module is loaded.
pub(crate) struct ModuleSlot {
    state: Mutex<State>,
    ended: Condvar,
}

enum State {
    /// With the requests to answer when loading ends.
    Loading(Vec<Answer>),
    Loaded(LoadedModule),
    Failed(Error),
}

/// A loaded module. Unloaded when it is dropped, by a helper thread.
struct LoadedModule {
    primary: &'static Primary,
    raw: ModuleHandle,
    functions: Box<[DriverFunction]>,
    log: String,
}

/// A kernel, and the limits of its launches.
#[derive(Debug)]
pub(crate) struct DriverFunction {
    pub(crate) raw: FunctionHandle,
    pub(crate) name: String,
    pub(crate) param_bytes: u32,
    pub(crate) max_threads: u32,
    pub(crate) static_shared: u32,
    /// Dynamic shared memory that it may be launched with at present. The first launch that needs more raises it.
    pub(crate) dynamic_shared: AtomicU32,
}

impl Modules {
    pub(crate) fn new(primary: &'static Primary) -> Self {
        Self { primary, table: RwLock::default(), cache: IdCache::default() }
    }

    /// Starts to load a module on the helper thread. Never blocks.
    pub(crate) fn load(
        &self,
        id: ModuleId,
        image: ModuleImage,
        helper: &HelperThread,
    ) -> Result<()> {
        let ModuleImage::Ptx(text) = image;
        let (primary, slot) = (self.primary, Arc::new(ModuleSlot::loading()));
        {
            let mut table = self.table.write();
            if table.contains_key(&id) {
                return Err(taken(format!("module {}", id.0)));
            }
            table.insert(id, slot.clone());
        }
        helper.run(move || slot.load(primary, text)).map_err(|error| {
            self.table.write().remove(&id);
            let what = "failed to start the helper thread that loads modules".into();
            Error::Host { what, detail: error.to_string() }
        })
    }

    /// Answers when the module is loaded, or has failed. Never blocks.
    pub(crate) fn answer_loaded(&self, id: ModuleId, answer: Answer) {
        let found = self.table.read().get(&id).cloned();
        match found {
            Some(slot) => slot.answer(answer),
            None => answer.give(Err(self.unknown(id))),
        }
    }

    /// Unloads a module that no launch uses. Later launches do not find it.
    pub(crate) fn unload(&self, id: ModuleId) -> Result<()> {
        let removed = self.table.write().remove(&id);
        let slot = removed.ok_or_else(|| self.unknown(id))?;
        let entries = match &*slot.state.lock() {
            State::Loaded(module) => module.functions.len() as u64,
            State::Loading(_) | State::Failed(_) => 0,
        };
        for entry in 0..entries {
            self.cache.evict([id.0, entry]);
        }
        Ok(())
    }

    /// A kernel. Blocks while its module is loading.
    ///
    /// # Safety
    /// No thread unloads the module while the result is used.
    #[inline]
    pub(crate) unsafe fn find(&self, id: FunctionId) -> Result<&DriverFunction> {
        let found = match self.cache.get([id.module.0, id.entry.into()]) {
            Some([address, _]) => std::ptr::with_exposed_provenance(address as usize),
            None => self.look_up(id)?,
        };
        // SAFETY: it stands in the list of a loaded module, which never changes and stays loaded, as the caller promises.
        // An unloaded module is evicted from the cache (rule 4).
        Ok(unsafe { &*found })
    }

    #[cold]
    fn look_up(&self, id: FunctionId) -> Result<*const DriverFunction> {
        let slot = self.table.read().get(&id.module).cloned();
        let slot = slot.ok_or_else(|| self.unknown(id.module))?;
        let mut state = slot.state.lock();
        let module = loop {
            match &*state {
                State::Loading(_) => slot.ended.wait(&mut state),
                State::Loaded(module) => break module,
                State::Failed(error) => return Err(error.clone()),
            }
        };
        let function = module.functions.get(id.entry as usize).ok_or_else(|| {
            let what = format!("kernel {} of module {}", id.entry, id.module.0);
            unknown(what, &self.primary.info.address)
        })?;
        let function = std::ptr::from_ref(function);
        let address = function.expose_provenance() as u64;
        self.cache.insert([id.module.0, id.entry.into()], [address, 0]);
        Ok(function)
    }

    /// Takes out every module, for a backend that is dropped.
    pub(crate) fn take(&mut self) -> Vec<Arc<ModuleSlot>> {
        std::mem::take(self.table.get_mut()).into_values().collect()
    }

    #[cold]
    fn unknown(&self, id: ModuleId) -> Error {
        unknown(format!("module {}", id.0), &self.primary.info.address)
    }
}

impl ModuleSlot {
    fn loading() -> Self {
        Self { state: Mutex::new(State::Loading(Vec::new())), ended: Condvar::new() }
    }

    /// Loads the module. Runs on the helper thread.
    fn load(self: Arc<Self>, primary: &'static Primary, text: String) {
        // If this job is the last owner, the module was unloaded before it was loaded.
        let loaded = if Arc::strong_count(&self) == 1 {
            Err(unknown("a module that was unloaded", &primary.info.address))
        } else {
            LoadedModule::load(primary, text)
        };
        let ended = loaded.map_or_else(State::Failed, State::Loaded);
        let (answers, reply) = {
            let mut state = self.state.lock();
            let before = std::mem::replace(&mut *state, ended);
            self.ended.notify_all();
            let State::Loading(answers) = before else { return };
            (answers, state.reply())
        };
        let Some(reply) = reply else { return };
        for answer in answers {
            let give = || answer.give(reply.clone());
            if let Err(payload) = catch_unwind(AssertUnwindSafe(give)) {
                discard_panic(payload);
            }
        }
    }

    fn answer(&self, answer: Answer) {
        let mut state = self.state.lock();
        if let State::Loading(answers) = &mut *state {
            answers.push(answer);
            return;
        }
        let reply = state.reply();
        drop(state);
        if let Some(reply) = reply {
            answer.give(reply);
        }
    }
}

impl State {
    /// The reply, unless it is still loading.
    fn reply(&self) -> Option<Result<Reply>> {
        match self {
            State::Loading(_) => None,
            State::Loaded(module) => {
                let max_threads = module.functions.iter().map(|it| it.max_threads).collect();
                Some(Ok(Reply::Loaded { max_threads, log: module.log.clone() }))
            }
            State::Failed(error) => Some(Err(error.clone())),
        }
    }
}

impl LoadedModule {
    /// Compiles and loads PTX, and moves the code of every kernel to the device. Blocks: the driver waits for running
    /// kernels, and has other threads' launches wait meanwhile.
    fn load(primary: &'static Primary, text: String) -> Result<Self> {
        primary.alive()?;
        let kernels = entries(&text)?;
        refuse_too_much_shared(primary, &text)?;
        let version = ptx_version(&text);
        let text = CString::new(text).map_err(|error| Error::InvalidPtx {
            detail: format!("there is a NUL character at byte {}", error.nul_position()),
        })?;
        let bound = primary.bind_own_thread()?;
        let (raw, log) = compile(primary, &text, version, &bound)?;
        // From here on, dropping it unloads it.
        let mut module = LoadedModule { primary, raw, functions: Box::default(), log };
        let functions = kernels.iter().map(|kernel| module.function(kernel, &bound));
        module.functions = functions.collect::<Result<_>>()?;
        Ok(module)
    }

    fn function(&self, entry: &EntryInfo, _: &Bound) -> Result<DriverFunction> {
        let (primary, api) = (self.primary, self.primary.api);
        let failed = |failed| primary.error(failed);
        let name = CString::new(entry.name.as_str())
            .map_err(|error| Error::InvalidPtx { detail: error.to_string() })?;
        let mut raw = FunctionHandle::NULL;
        // SAFETY: writes one handle; the module is loaded, and the name ends with a NUL.
        unsafe { api.module_function(&mut raw, self.raw, name.as_ptr()) }.map_err(failed)?;
        let ask = |attribute| -> Result<u32> {
            let mut value = 0;
            // SAFETY: writes one integer; the function is one of the module's.
            unsafe { api.function_get(&mut value, attribute, raw) }.map_err(failed)?;
            Ok(value.max(0).unsigned_abs())
        };
        // At the first launch this would delay the launch until every running kernel has ended.
        // SAFETY: as above.
        unsafe { api.function_load(raw) }.map_err(failed)?;
        let static_shared = ask(attribute::STATIC_SHARED)?;
        check_shared(&entry.name, static_shared.into(), primary.limits.shared)?;
        Ok(DriverFunction {
            raw,
            name: entry.name.clone(),
            param_bytes: entry.param_bytes(),
            max_threads: ask(attribute::MAX_THREADS_PER_BLOCK)?.min(primary.limits.threads),
            static_shared,
            dynamic_shared: AtomicU32::new(ask(attribute::MAX_DYNAMIC_SHARED)?),
        })
    }
}

impl Drop for LoadedModule {
    fn drop(&mut self) {
        self.primary.reclaim.put(Box::new(Unloaded(self.raw)));
    }
}

/// The handle of a module that was dropped.
struct Unloaded(ModuleHandle);

impl Reclaimable for Unloaded {
    fn reclaim(
        self: Box<Self>,
        primary: &'static Primary,
        _: &Bound,
    ) -> Option<Box<dyn Reclaimable>> {
        // SAFETY: its slot was dropped, so no launch uses it (rule 4).
        _ = unsafe { primary.api.module_unload(self.0) };
        None
    }

    fn waits_for_device(&self, _: &Primary) -> bool {
        true
    }
}

/// Refuses PTX whose kernels declare more static shared memory than a block of the device can have. The driver truncates
/// such a size to 32 bits: it loads the module, and the first launch faults.
fn refuse_too_much_shared(primary: &Primary, text: &str) -> Result<()> {
    let most = primary.limits.shared;
    declared_static_shared(text)
        .iter()
        .try_for_each(|(kernel, bytes)| check_shared(kernel, *bytes, most))
}

/// The static shared memory that each kernel of a PTX text declares, in bytes, or less.
///
/// A lower bound, since a module may declare variables that a kernel does not use: the variables of the kernel's own
/// body, or the largest `.shared` variable of the module if that is larger. A text that cuda-ptx cannot parse is
/// left to the driver.
fn declared_static_shared(text: &str) -> Vec<(String, u64)> {
    use cuda_ptx::{Space, Variable};
    if !text.contains(".shared") {
        return Vec::new();
    }
    let Ok(module) = cuda_ptx::parse(text) else { return Vec::new() };
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

fn check_shared(kernel: &str, bytes: u64, most: u32) -> Result<()> {
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

fn compile(
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
        Err(failed) => Err(refused(primary, failed, version, &log(&errors))),
    }
}

#[cold]
fn refused(primary: &Primary, failed: Failed, version: Option<(u32, u32)>, log: &str) -> Error {
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
fn ptx_version(text: &str) -> Option<(u32, u32)> {
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
        let declared = declared_static_shared(SHARED);
        assert_eq!(declared, [("a".into(), (1 << 40) + 64), ("b".into(), 100)]);
        assert_eq!(declared_static_shared("no PTX with .shared"), []);
    }

    #[test]
    fn kernel_with_more_static_shared_memory_than_the_device_is_refused() {
        assert_eq!(check_shared("k", 232_448, 232_448), Ok(()));
        let error = check_shared("k", 1 << 40, 232_448).unwrap_err().to_string();
        assert!(error.contains("kernel `k` declares 1099511627776 bytes"), "{error}");
        assert!(error.contains("at most 232448"), "{error}");
    }
}
