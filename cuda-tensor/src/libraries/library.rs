//! NVIDIA's libraries: whether they are installed, [`Library`], which opens one once for each key, such as a GPU, on a
//! thread of its own, and the error of a call ([`LibraryError`]).

#[cfg(not(feature = "candle-cuda"))]
use std::sync::OnceLock;
use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use cuda_async::{
    context::ExecutionContext,
    internals::wait_by_wakers,
    op::{Op, Submit, Submitted},
};
use cuda_core::{
    Device, Error, Result,
    internals::sync::{Receiver, one_shot},
};
use futures_util::{FutureExt, future::Shared};
use parking_lot::Mutex;

/// The maximum number of keys. Nothing is opened for further keys.
const MAX_KEYS: usize = 256;

/// A library. Opening it may take a second, so a separate thread opens it, with the GPU's context.
pub(crate) struct Library<K, T> {
    name: &'static str,
    /// The operation that opens it, for errors.
    opened_by: &'static str,
    is_present: fn() -> bool,
    open: fn(&K) -> Result<T>,
    opened: Mutex<Vec<(K, Shared<Opening<T>>)>>,
}

impl<K: PartialEq + Clone + Send + 'static, T: Send + Sync + 'static> Library<K, T> {
    /// Creates a library that is opened by `open`, on a thread that has the GPU's context.
    pub(crate) const fn new(
        name: &'static str,
        opened_by: &'static str,
        is_present: fn() -> bool,
        open: fn(&K) -> Result<T>,
    ) -> Self {
        Self { name, opened_by, is_present, open, opened: Mutex::new(Vec::new()) }
    }

    /// Gives the value that the library opened for `key(gpu)` on the operation's device. Gives `None` on a device that
    /// is not a GPU of this process, if the library is missing, or if it has too many keys.
    pub(crate) fn of<F>(&'static self, key: F) -> Op<Opened<K, T, F>>
    where
        F: FnOnce(u32) -> K + Send,
    {
        Op::new(Opened { library: self, state: State::Idle(key) })
    }

    /// Returns the opening for a key. The first call for a key, and the first one after a failure, starts it.
    fn opening(&'static self, gpu: u32, key: K) -> Result<Option<Shared<Opening<T>>>> {
        let mut opened = self.opened.lock();
        let found = opened.iter().position(|(other, _)| *other == key);
        if let Some(at) = found {
            if !matches!(opened[at].1.peek(), Some(Err(_))) {
                return Ok(Some(opened[at].1.clone()));
            }
            drop(opened.swap_remove(at));
        }
        if opened.len() >= MAX_KEYS {
            return Ok(None);
        }
        let (sender, receiver) = one_shot();
        let (open, of_key) = (self.open, key.clone());
        let task = move || sender.send(bind(gpu).and_then(|()| open(&of_key)).map(Arc::new));
        let thread = std::thread::Builder::new().name("cuda-library".into()).spawn(task);
        thread.map_err(|error| {
            Error::host("failed to start the thread that opens a library", &error)
        })?;
        let opening = Opening { receiver, name: self.name }.shared();
        opened.push((key, opening.clone()));
        Ok(Some(opening))
    }
}

/// Makes the context of a GPU current on this thread.
fn bind(gpu: u32) -> Result<()> {
    let bound =
        cudarc::driver::CudaContext::new(gpu as usize).and_then(|context| context.bind_to_thread());
    bound.map_err(|error| failed("the driver", "cuCtxSetCurrent")(format!("{:?}", error.0)))
}

/// Returns the number of the GPU, if the device is a GPU of this process.
fn gpu(device: &Device) -> Option<u32> {
    device.info().address.strip_prefix("cuda:")?.parse().ok()
}

/// A library that is being opened.
pub(crate) struct Opening<T> {
    receiver: Receiver<Result<Arc<T>>>,
    name: &'static str,
}

impl<T> Future for Opening<T> {
    type Output = Result<Arc<T>>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        let opened = ready!(self.receiver.poll(task));
        Poll::Ready(opened.unwrap_or_else(|| {
            let what = format!("the thread that opens {}", self.name);
            Err(Error::Panicked { what: what.into() })
        }))
    }
}

/// The steps of [`Library::of`].
pub(crate) struct Opened<K: 'static, T: 'static, F> {
    library: &'static Library<K, T>,
    state: State<F, T>,
}

enum State<F, T> {
    Idle(F),
    Opening(Shared<Opening<T>>),
}

impl<K, T, F> Submit for Opened<K, T, F>
where
    K: PartialEq + Clone + Send + 'static,
    T: Send + Sync + 'static,
    F: FnOnce(u32) -> K + Send,
{
    type Output = Option<Arc<T>>;

    fn submit(self, task: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        let Self { library, state } = self;
        let mut opening = match state {
            State::Opening(opening) => opening,
            State::Idle(key) => {
                let Some(gpu) = gpu(cx.device()).filter(|_| (library.is_present)()) else {
                    return Ok(Submitted::Ready(None));
                };
                let Some(opening) = library.opening(gpu, key(gpu))? else {
                    return Ok(Submitted::Ready(None));
                };
                opening
            }
        };
        if let Some(opened) = opening.peek() {
            return opened.clone().map(|opened| Submitted::Ready(Some(opened)));
        }
        wait_by_wakers(cx, library.name, task).map_err(|error| match error {
            Error::NeedsHostData { .. } => Error::NotLoaded { by: library.opened_by.into() },
            error => error,
        })?;
        Ok(match Pin::new(&mut opening).poll(task)? {
            Poll::Ready(opened) => Submitted::Ready(Some(opened)),
            Poll::Pending => Submitted::Pending(Self { library, state: State::Opening(opening) }),
        })
    }
}

/// A library refused a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LibraryError {
    library: &'static str,
    call: &'static str,
    status: String,
}

impl LibraryError {
    /// Returns the name of the library, such as `cuBLAS`.
    pub fn library(&self) -> &'static str {
        self.library
    }

    /// Returns the name of the function, such as `cublasGemmEx`.
    pub fn call(&self) -> &'static str {
        self.call
    }

    /// Returns the library's name for the status.
    pub fn status(&self) -> &str {
        &self.status
    }
}

impl std::fmt::Display for LibraryError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: `{}` returned {}", self.library, self.call, self.status)
    }
}

impl std::error::Error for LibraryError {}

/// Converts a status of a library into an error.
pub(super) fn failed(library: &'static str, call: &'static str) -> impl FnOnce(String) -> Error {
    move |status| Error::other(LibraryError { library, call, status })
}

macro_rules! present {
    ($($(#[$doc:meta])* $name:ident: $module:ident;)*) => {$(
        // candle makes cudarc link the libraries when the program is built, so a running program has them.
        $(#[$doc])*
        #[cfg(feature = "candle-cuda")]
        pub(super) const fn $name() -> bool {
            true
        }

        $(#[$doc])*
        #[cfg(not(feature = "candle-cuda"))]
        pub(super) fn $name() -> bool {
            static FOUND: OnceLock<bool> = OnceLock::new();
            // SAFETY: loads and unloads a library of NVIDIA, whose start-up code any program may run.
            *FOUND.get_or_init(|| unsafe { cudarc::$module::sys::is_culib_present() })
        }
    )*};
}

present! {
    /// Returns whether cuBLAS can be loaded.
    has_cublas: cublas;
    /// Returns whether cuBLASLt can be loaded.
    has_cublaslt: cublaslt;
    /// Returns whether cuFFT can be loaded.
    has_cufft: cufft;
    /// Returns whether NCCL can be loaded.
    has_nccl: nccl;
}
