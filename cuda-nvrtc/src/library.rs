//! The functions of NVRTC: the only unsafe code of the crate.
//!
//! Rules:
//! 1. A symbol has the type that NVRTC's header states. All of them exist with these types since CUDA 11.
//! 2. The library stays loaded until the process ends, so the pointers stay valid.
//! 3. A [`Program`] owns its handle: it is created once, destroyed once in `Drop`, and used through `&mut`.
//! 4. Strings given to NVRTC are NUL-terminated and outlive the call. NVRTC copies what it keeps.
//! 5. A result is written into a buffer of the size that NVRTC stated.

use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    path::{Path, PathBuf},
    ptr,
};

use libloading::Library;

use crate::find;

type Handle = *mut c_void;
type Status = c_int;

/// The status of success.
const SUCCESS: Status = 0;
/// The status of a source with mistakes: `NVRTC_ERROR_COMPILATION`.
const COMPILATION: Status = 6;

/// The functions of a loaded library.
pub(crate) struct Api {
    error_string: unsafe extern "C" fn(Status) -> *const c_char,
    version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> Status,
    create: unsafe extern "C" fn(
        *mut Handle,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> Status,
    destroy: unsafe extern "C" fn(*mut Handle) -> Status,
    compile: unsafe extern "C" fn(Handle, c_int, *const *const c_char) -> Status,
    ptx_size: Size,
    ptx: Text,
    log_size: Size,
    log: Text,
    add_name: unsafe extern "C" fn(Handle, *const c_char) -> Status,
    lowered_name: unsafe extern "C" fn(Handle, *const c_char, *mut *const c_char) -> Status,
}

type Size = unsafe extern "C" fn(Handle, *mut usize) -> Status;
type Text = unsafe extern "C" fn(Handle, *mut c_char) -> Status;

/// A call that failed: its name, and the name of its status.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) call: &'static str,
    pub(crate) status: String,
    /// Whether the source has mistakes, which the log describes.
    pub(crate) by_source: bool,
}

impl Api {
    /// Loads the library at `path`. The loader searches for a bare name.
    ///
    /// # Errors
    /// The message of the loader.
    pub(crate) fn load(path: &Path) -> Result<Self, String> {
        for builtins in find::builtins(path) {
            // SAFETY: NVIDIA's own library, whose initializers are sound. It is opened first because NVRTC opens it by
            // name.
            if let Ok(library) = unsafe { Library::new(builtins) } {
                std::mem::forget(library);
            }
        }
        // SAFETY: a library of this name is NVRTC, or was named by the user; its initializers are sound.
        let library = unsafe { Library::new(path) }.map_err(|error| reason(&error))?;
        // SAFETY: the library is NVRTC, and it is leaked before this function returns, so it stays loaded (rules 1 and
        // 2).
        let api = unsafe { Self::look_up(&library) }.map_err(|error| reason(&error))?;
        std::mem::forget(library);
        Ok(api)
    }

    /// Looks up all functions.
    ///
    /// # Safety
    /// The library is NVRTC, and stays loaded.
    unsafe fn look_up(library: &Library) -> Result<Self, libloading::Error> {
        macro_rules! symbol {
            ($name:literal) => {
                // SAFETY: the symbol has the type that NVRTC's header states (rule 1).
                *unsafe { library.get(concat!($name, "\0").as_bytes()) }?
            };
        }
        Ok(Self {
            error_string: symbol!("nvrtcGetErrorString"),
            version: symbol!("nvrtcVersion"),
            create: symbol!("nvrtcCreateProgram"),
            destroy: symbol!("nvrtcDestroyProgram"),
            compile: symbol!("nvrtcCompileProgram"),
            ptx_size: symbol!("nvrtcGetPTXSize"),
            ptx: symbol!("nvrtcGetPTX"),
            log_size: symbol!("nvrtcGetProgramLogSize"),
            log: symbol!("nvrtcGetProgramLog"),
            add_name: symbol!("nvrtcAddNameExpression"),
            lowered_name: symbol!("nvrtcGetLoweredName"),
        })
    }

    /// Returns the version, as (12, 4).
    pub(crate) fn version(&self) -> Result<(u32, u32), Failed> {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: writes two integers.
        let status = unsafe { (self.version)(&mut major, &mut minor) };
        self.check("nvrtcVersion", status)?;
        Ok((major.unsigned_abs(), minor.unsigned_abs()))
    }

    fn check(&self, call: &'static str, status: Status) -> Result<(), Failed> {
        if status == SUCCESS {
            return Ok(());
        }
        // SAFETY: returns a static string for every status.
        let text = unsafe { (self.error_string)(status) };
        let text = if text.is_null() {
            format!("status {status}")
        } else {
            // SAFETY: a NUL-terminated string that is never freed.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        };
        Err(Failed { call, status: text, by_source: status == COMPILATION })
    }
}

/// The number of strings that a call takes.
fn count(call: &'static str, strings: usize) -> Result<c_int, Failed> {
    c_int::try_from(strings).map_err(|_| Failed {
        call,
        status: format!("{strings} strings are too many"),
        by_source: false,
    })
}

/// A program that is compiled once.
pub(crate) struct Program<'a> {
    api: &'a Api,
    handle: Handle,
}

impl<'a> Program<'a> {
    /// Creates a program of a source with headers, each with its name.
    pub(crate) fn new(
        api: &'a Api,
        name: &CStr,
        text: &CStr,
        headers: &[(CString, CString)],
    ) -> Result<Self, Failed> {
        let names: Vec<_> = headers.iter().map(|(name, _)| name.as_ptr()).collect();
        let texts: Vec<_> = headers.iter().map(|(_, text)| text.as_ptr()).collect();
        let mut handle = ptr::null_mut();
        let count = count("nvrtcCreateProgram", headers.len())?;
        // SAFETY: the strings are NUL-terminated and outlive the call (rule 4). Both arrays have `count` strings.
        let status = unsafe {
            (api.create)(
                &mut handle,
                text.as_ptr(),
                name.as_ptr(),
                count,
                texts.as_ptr(),
                names.as_ptr(),
            )
        };
        api.check("nvrtcCreateProgram", status)?;
        Ok(Self { api, handle })
    }

    /// Requests the mangled name of an expression. Call it before `compile`.
    pub(crate) fn add_name(&mut self, expression: &CStr) -> Result<(), Failed> {
        // SAFETY: the handle is not destroyed (rule 3). The string is NUL-terminated and outlives the call (rule 4).
        let status = unsafe { (self.api.add_name)(self.handle, expression.as_ptr()) };
        self.api.check("nvrtcAddNameExpression", status)
    }

    /// Compiles the program.
    pub(crate) fn compile(&mut self, flags: &[CString]) -> Result<(), Failed> {
        let pointers: Vec<_> = flags.iter().map(|flag| flag.as_ptr()).collect();
        let count = count("nvrtcCompileProgram", flags.len())?;
        // SAFETY: the handle is not destroyed (rule 3). The array has `count` strings, which are NUL-terminated and
        // outlive the call (rule 4).
        let status = unsafe { (self.api.compile)(self.handle, count, pointers.as_ptr()) };
        self.api.check("nvrtcCompileProgram", status)
    }

    /// Returns the mangled name of an expression, after `compile`.
    pub(crate) fn lowered_name(&mut self, expression: &CStr) -> Result<String, Failed> {
        let mut name = ptr::null();
        // SAFETY: the handle is not destroyed (rule 3). The string is NUL-terminated and outlives the call (rule 4).
        // The call writes one pointer.
        let status =
            unsafe { (self.api.lowered_name)(self.handle, expression.as_ptr(), &mut name) };
        self.api.check("nvrtcGetLoweredName", status)?;
        if name.is_null() {
            return Ok(String::new());
        }
        // SAFETY: a NUL-terminated string that lives as long as the program, and is copied here.
        Ok(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
    }

    /// Returns the PTX, after `compile`.
    pub(crate) fn ptx(&mut self) -> Result<String, Failed> {
        self.text("nvrtcGetPTX", self.api.ptx_size, self.api.ptx)
    }

    /// Returns the compiler's messages.
    pub(crate) fn log(&mut self) -> Result<String, Failed> {
        self.text("nvrtcGetProgramLog", self.api.log_size, self.api.log)
    }

    fn text(&mut self, call: &'static str, size_of: Size, text_of: Text) -> Result<String, Failed> {
        let mut size = 0;
        // SAFETY: the handle is not destroyed (rule 3). The call writes one integer.
        let status = unsafe { size_of(self.handle, &mut size) };
        self.api.check(call, status)?;
        let mut buffer = vec![0_u8; size];
        // SAFETY: the handle is not destroyed (rule 3), and the buffer has the size that NVRTC stated (rule 5).
        let status = unsafe { text_of(self.handle, buffer.as_mut_ptr().cast()) };
        self.api.check(call, status)?;
        let end = buffer.iter().position(|byte| *byte == 0).unwrap_or(size);
        buffer.truncate(end);
        Ok(String::from_utf8_lossy(&buffer).into_owned())
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: this value owns the handle, which is destroyed once, here (rule 3).
        _ = unsafe { (self.api.destroy)(&mut self.handle) };
    }
}

/// The message of the system's loader, which libloading keeps as the error's source.
fn reason(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// Returns the absolute path of a library. If there is no such file, the loader finds it by the given name, which is
/// returned.
pub(crate) fn path_of(given: &Path) -> PathBuf {
    given.canonicalize().unwrap_or_else(|_| given.to_owned())
}
