//! NCCL: collectives of several GPUs.

use std::{sync::Once, time::Duration};

use cuda_core::{RawStream, Result};
use cudarc::nccl::{result, sys};
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::{
    cublas::pointer,
    library::{failed, has_nccl},
};

/// The communicators of a group of GPUs, one for each.
pub(crate) struct Communicators(Mutex<Group>);

/// The communicators, used by one thread at a time.
pub(crate) struct Group {
    raw: Vec<sys::ncclComm_t>,
    /// Whether a call failed. The GPUs may then wait for each other.
    is_broken: bool,
}

// SAFETY: NCCL allows every thread to use a communicator, one at a time, which the mutex ensures.
unsafe impl Send for Group {}

/// A collective of `count` elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Collective {
    /// Reduces `count` elements in place.
    AllReduce(sys::ncclRedOp_t),
    /// Collects `count` elements of each GPU.
    AllGather,
    /// Reduces, and gives each GPU `count` elements.
    ReduceScatter(sys::ncclRedOp_t),
}

/// Returns NCCL's type with this name, if it has the type.
pub(crate) fn data_type(name: &str) -> Option<sys::ncclDataType_t> {
    use sys::ncclDataType_t as Type;
    Some(match name {
        "i8" => Type::ncclInt8,
        "u8" => Type::ncclUint8,
        "i32" => Type::ncclInt32,
        "u32" => Type::ncclUint32,
        "i64" => Type::ncclInt64,
        "u64" => Type::ncclUint64,
        "f16" => Type::ncclFloat16,
        "bf16" => Type::ncclBfloat16,
        "f32" => Type::ncclFloat32,
        "f64" => Type::ncclFloat64,
        _ => return None,
    })
}

impl Communicators {
    /// Connects GPUs. Returns `None` where NCCL is missing. Blocks.
    ///
    /// # Errors
    /// The error of NCCL.
    pub(crate) fn new(gpus: &[u32]) -> Result<Option<Self>> {
        if !has_nccl() {
            return Ok(None);
        }
        let gpus: Vec<_> = gpus.iter().map(|gpu| *gpu as i32).collect();
        // Connect on a separate thread, because NCCL changes the current device of its thread.
        let connected: cuda_core::Result<Raw> = std::thread::scope(|scope| {
            let connect = || {
                let mut raw = Raw(vec![std::ptr::null_mut(); gpus.len()]);
                // SAFETY: writes a communicator for each of the GPUs, whose numbers it reads.
                unsafe {
                    result::comm_init_all(raw.0.as_mut_ptr(), gpus.len() as i32, gpus.as_ptr())
                }
                .map_err(failure("ncclCommInitAll"))?;
                Ok(raw)
            };
            let thread = std::thread::Builder::new().name("cuda-library".into());
            let spawned = thread.spawn_scoped(scope, connect).map_err(|error| {
                cuda_core::Error::host("failed to start the thread that connects GPUs", &error)
            })?;
            let panicked =
                |_| cuda_core::Error::Panicked { what: "the thread that connects GPUs".into() };
            spawned.join().map_err(panicked)?
        });
        let Raw(raw) = connected?;
        Ok(Some(Self(Mutex::new(Group { raw, is_broken: false }))))
    }

    /// Locks the group. All calls of one collective are made by the thread that has the lock.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Group> {
        self.0.lock()
    }
}

/// Communicators on their way from the thread that made them.
struct Raw(Vec<sys::ncclComm_t>);

// SAFETY: NCCL allows every thread to use a communicator, one at a time. This value moves them from one thread to
// another, and only its owner uses them.
unsafe impl Send for Raw {}

impl Group {
    /// Whether a call failed.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Enqueues a collective on the streams of all GPUs. `addresses` are those of the source and the target on each.
    ///
    /// # Errors
    /// The error of NCCL. The group is then broken.
    ///
    /// # Safety
    /// The memory is valid for the counts, and nothing else uses the targets until the streams have passed the call.
    pub(crate) unsafe fn call(
        &mut self,
        collective: Collective,
        of_type: sys::ncclDataType_t,
        count: usize,
        streams: &[RawStream],
        addresses: &[[u64; 2]],
    ) -> Result<()> {
        let enqueue = || -> Result<(), result::NcclError> {
            result::group_start()?;
            let ranks = self.raw.iter().zip(streams).zip(addresses);
            let called = ranks.into_iter().try_for_each(|((comm, raw), [from, to])| {
                let (from, to, stream) = (pointer(*from), pointer(*to), raw.stream.cast());
                // SAFETY: the memory is valid for the counts, and nothing else uses the targets until the streams have
                // passed the call. Only their drop destroys the communicators.
                unsafe {
                    match collective {
                        Collective::AllReduce(op) => {
                            result::all_reduce(from, to, count, of_type, op, *comm, stream)
                        }
                        Collective::AllGather => {
                            result::all_gather(from, to, count, of_type, *comm, stream)
                        }
                        Collective::ReduceScatter(op) => {
                            result::reduce_scatter(from, to, count, of_type, op, *comm, stream)
                        }
                    }
                }
                .map(drop)
            });
            // End the group even if a call failed.
            called.and(result::group_end().map(drop))
        };
        enqueue().map_err(|error| {
            self.is_broken = true;
            failure("ncclGroupEnd")(error)
        })
    }
}

impl Drop for Group {
    /// Destroys the communicators on a thread of its own, because that may wait for the GPUs.
    fn drop(&mut self) {
        let raw = Raw(std::mem::take(&mut self.raw));
        let unfinished = Unfinished::begin();
        let destroy = move || {
            let (Raw(raw), _unfinished) = ({ raw }, unfinished);
            for comm in raw {
                // SAFETY: the communicator is used by no call any more. NCCL waits for its work.
                _ = unsafe { result::comm_destroy(comm) };
            }
        };
        // If the thread cannot start, the communicators are leaked.
        _ = std::thread::Builder::new().name("cuda-nccl".into()).spawn(destroy);
    }
}

fn failure(call: &'static str) -> impl FnOnce(result::NcclError) -> cuda_core::Error {
    move |error| failed("NCCL", call)(format!("{:?}", error.0))
}

/// The longest wait of the exit. A call that waits for a GPU that has stopped never ends.
const MAX_WAIT: Duration = Duration::from_secs(5);

static RUNNING: Mutex<usize> = Mutex::new(0);
static ENDED: Condvar = Condvar::new();

/// A call of NCCL on a thread of its own, for which the exit of the process waits. Counts as a call until it is
/// dropped.
///
/// At the exit, the destructors of the library and of the driver run. A thread that is inside of them then crashes the
/// process.
struct Unfinished(());

impl Unfinished {
    /// Begins a call. The library is loaded already, so its destructors come after the wait.
    fn begin() -> Self {
        static REGISTERED: Once = Once::new();
        REGISTERED.call_once(wait_at_exit);
        *RUNNING.lock() += 1;
        Self(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        *RUNNING.lock() -= 1;
        ENDED.notify_all();
    }
}

#[cfg(target_os = "linux")]
fn wait_at_exit() {
    extern "C" fn wait() {
        ENDED.wait_while_for(&mut RUNNING.lock(), |running| *running > 0, MAX_WAIT);
    }
    // Without the handler, the exit does not wait.
    // SAFETY: the handler is a function of the program, and does not panic.
    _ = unsafe { libc::atexit(wait) };
}

#[cfg(not(target_os = "linux"))]
fn wait_at_exit() {}
