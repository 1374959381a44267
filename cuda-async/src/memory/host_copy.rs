//! Copies between ordinary and pinned host memory.
//!
//! One thread copies at about a fifth of the speed of a GPU's bus, and slower still into new memory, whose pages the
//! system provides at the first write. So several threads share a large copy. They start with the first large copy,
//! and sleep between copies. Async code makes a large copy on a thread of its own.

use std::{
    sync::OnceLock,
    task::{Context, Poll},
    thread,
};

use cuda_core::{
    Element, Error, Result,
    internals::sync::{HelperThread, Receiver},
};
use parking_lot::Mutex;
use rayon::{ThreadPool, ThreadPoolBuilder};

use super::huge_pages;
use crate::context::{ExecutionContext, RunMode};

/// The number of bytes that one poll copies between ordinary and pinned memory.
pub const COPY_CHUNK: usize = 1 << 20;

/// The maximum number of bytes of pinned memory that one copy has in flight. An upload in
/// [`async_on`](crate::DeviceOp::async_on) cannot wait, so it has no limit.
pub const COPY_BYTES: usize = 16 << 20;

/// The number of bytes of a large copy that threads share at a time, and that go to or from the device at once.
pub(super) const BATCH: usize = 8 << 20;

/// Copies of fewer bytes are made by the thread that polls, chunk by chunk.
const LARGE: usize = 4 << 20;

/// The number of bytes that a thread takes at a time.
const SHARE: usize = COPY_CHUNK / 2;

const MAX_HELPERS: usize = 7;

/// The threads that make a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Copier {
    /// The thread that polls, which yields after each chunk.
    Poll,
    /// The thread that polls, with others. Only for runs that block their thread anyway.
    Threads,
    /// The thread of [`LargeCopy`], with others.
    Helper,
}

impl Copier {
    /// The copier for a copy of `bytes` bytes in this poll. `movable` says that another thread can own both sides.
    pub(super) fn of(cx: &ExecutionContext, bytes: usize, movable: bool) -> Self {
        if !is_large(bytes) {
            return Self::Poll;
        }
        match cx.mode_of_poll() {
            RunMode::Blocking | RunMode::Detached => Self::Threads,
            RunMode::Async if movable => Self::Helper,
            RunMode::Async => Self::Poll,
        }
    }

    /// The number of elements that it copies at a time.
    pub(super) const fn elements<T>(self) -> usize {
        let bytes = match self {
            Self::Poll => COPY_CHUNK,
            Self::Threads | Self::Helper => BATCH,
        };
        match size_of::<T>() {
            0 => usize::MAX,
            size if size > bytes => 1,
            size => bytes / size,
        }
    }
}

/// A copy on the thread that makes large copies. Dropping it does not stop the copy.
pub struct LargeCopy<T>(Receiver<T>);

impl<T: Send + 'static> LargeCopy<T> {
    /// Starts a copy. The process has one thread for them: each copy uses several threads itself.
    ///
    /// # Errors
    /// [`Error::Host`] if the thread cannot be started.
    pub fn start(copy: impl FnOnce() -> T + Send + 'static) -> Result<Self> {
        static COPIER: OnceLock<HelperThread> = OnceLock::new();
        let copier = COPIER.get_or_init(|| HelperThread::new("cuda-copy"));
        let started = copier.start(copy);
        let what = "failed to start the thread that copies host memory";
        started.map(Self).map_err(|error| Error::host(what, &error))
    }

    /// Ready with the result of the copy in `copying`, which is taken out. A run that only submits waits for it here,
    /// since it never polls again.
    ///
    /// # Errors
    /// [`Error::Host`] if the copy panicked; [`Error::AlreadyEnded`] if there is none.
    pub fn poll(
        copying: &mut Option<Self>,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<T>> {
        let Some(Self(running)) = copying else { return Poll::Ready(Err(Error::AlreadyEnded)) };
        let polled = match cx.mode_of_poll() {
            RunMode::Async | RunMode::Blocking => running.poll(task),
            RunMode::Detached => Poll::Ready(running.wait()),
        };
        if polled.is_ready() {
            *copying = None;
        }
        polled.map(|result| result.ok_or_else(panicked))
    }
}

/// Whether several threads share a copy of this many bytes.
pub const fn is_large(bytes: usize) -> bool {
    bytes >= LARGE
}

/// Copies all elements of `from` to `to`, which has as many. Large copies are shared by several threads. Returns when
/// all is copied.
pub(super) fn copy<T: Element>(from: &[T], to: &mut [T]) {
    let bytes = size_of_val(from);
    if bytes <= SHARE {
        return to.copy_from_slice(from);
    }
    let share = (SHARE / size_of::<T>().max(1)).max(1);
    let shares = Mutex::new(from.chunks(share).zip(to.chunks_mut(share)));
    let work = || {
        loop {
            let next = shares.lock().next();
            let Some((from, to)) = next else { return };
            to.copy_from_slice(from);
        }
    };
    let Some(helpers) = helpers() else { return work() };
    let count = helpers.current_num_threads().min(bytes.div_ceil(SHARE) - 1);
    helpers.in_place_scope(|scope| {
        (0..count).for_each(|_| scope.spawn(|_| work()));
        work();
    });
}

/// The threads that share copies with the one that makes them: half as many as there are cores, at least 1. `None` if
/// they cannot be started.
fn helpers() -> Option<&'static ThreadPool> {
    static HELPERS: OnceLock<Option<ThreadPool>> = OnceLock::new();
    let start = || {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let builder = ThreadPoolBuilder::new().num_threads((cores / 2).clamp(1, MAX_HELPERS));
        builder.thread_name(|index| format!("cuda-copy-{index}")).build().ok()
    };
    HELPERS.get_or_init(start).as_ref()
}

/// Empties a vector and reserves memory for `len` elements.
///
/// # Errors
/// [`Error::OutOfHostMemory`].
pub(super) fn reserved<T: Element>(mut memory: Vec<T>, len: usize) -> Result<Vec<T>> {
    memory.clear();
    memory.try_reserve_exact(len).map_err(|_| no_memory::<T>(len))?;
    Ok(memory)
}

/// Returns a vector of `len` elements for a large download, in `memory` if its capacity is large enough. The values are
/// unspecified. The system provides new memory when it is first written, in huge pages where it has them.
///
/// # Errors
/// [`Error::OutOfHostMemory`].
pub(super) fn writable<T: Element>(mut memory: Vec<T>, len: usize) -> Result<Vec<T>> {
    if memory.capacity() >= len {
        memory.resize(len, T::zeroed());
        return Ok(memory);
    }
    drop(memory);
    let zeroed = bytemuck::allocation::try_zeroed_vec(len);
    let mut memory = zeroed.map_err(|()| no_memory::<T>(len))?;
    huge_pages::advise(&mut memory);
    Ok(memory)
}

#[cold]
fn no_memory<T>(len: usize) -> Error {
    Error::OutOfHostMemory { requested: (len as u64).saturating_mul(size_of::<T>() as u64) }
}

#[cold]
fn panicked() -> Error {
    let detail = "it panicked; a `HostSource` of your own may be the cause".into();
    Error::Host { what: "a copy of host memory".into(), detail }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_by_several_threads_is_complete() {
        for len in [0, 1, SHARE, SHARE + 1, 5 * SHARE / 2, BATCH + 3] {
            let from: Vec<_> = (0..len as u32).map(|i| (i % 251) as u8).collect();
            let mut to = writable(Vec::new(), len).unwrap();
            copy(&from, &mut to);
            assert!(from == to, "{len}");
        }
        let (from, mut to) = (vec![[7u64; 3]; 100_000], writable(Vec::new(), 100_000).unwrap());
        copy(&from, &mut to);
        assert_eq!(to[..], from[..]);
    }

    #[test]
    fn oversized_host_allocation_is_an_error() {
        let len = usize::MAX / 16;
        for none in [writable::<u64>(Vec::new(), len), reserved(Vec::new(), len)] {
            assert!(matches!(none, Err(Error::OutOfHostMemory { .. })));
        }
    }
}
