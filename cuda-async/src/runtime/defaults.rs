//! The default device and the default policy of the process, and the policy of each device, for operations that
//! [`DeviceOp::on`](crate::ops::DeviceOp::on) sends there.
//!
//! A policy holds streams, and a stream holds its device. A device that owned its policy would never be closed. So the
//! device owns the policy's constructor. A policy lives while it is used. The next one borrows streams from the
//! device's pool, to which the previous one returned its streams.

use std::{
    panic::catch_unwind,
    sync::{Arc, OnceLock, Weak},
    task::{Context, Poll, Waker},
    thread::{self, ThreadId},
};

use arc_swap::ArcSwapOption;
use cuda_core::{
    Device, Error, Misuse, Result, Stream,
    internals::{
        attachment,
        sync::{WakerSet, discard_panic},
    },
};
use parking_lot::{Condvar, Mutex};

use crate::{
    policy::{SchedulingPolicy, StreamPoolRoundRobin},
    runtime::devices::open_blocking,
};

type Policy = Arc<dyn SchedulingPolicy>;

static DEFAULT: Mutex<Default> = Mutex::new(Default::Unset);
static OPENED: Condvar = Condvar::new();
/// The reason why the first GPU is not the default device.
static FALLBACK: OnceLock<Error> = OnceLock::new();
/// The policy of `DEFAULT` once it is set. Stored with the lock of `DEFAULT`, and read without it: threads that await
/// many operations would contend for the lock.
static POLICY: ArcSwapOption<Policy> = ArcSwapOption::const_empty();

enum Default {
    Unset,
    /// A thread opens the device, and then wakes these wakers.
    Opening(WakerSet<usize>),
    Set(Policy),
    /// The device could not be opened. Setting a default ends this state.
    Failed(Error),
}

/// Sets the default policy of the process. From now on, operations that name no policy run on it.
pub fn set_default_policy(policy: Arc<dyn SchedulingPolicy>) {
    settle(|_| Some(Default::Set(policy)));
}

/// Makes `device` the default device, with [`StreamPoolRoundRobin`] as its policy.
///
/// # Errors
/// The error of the device if it has no streams to lend.
pub fn set_default_device(device: &Device) -> Result<()> {
    set_default_policy(Arc::new(StreamPoolRoundRobin::new(device)?));
    Ok(())
}

/// Returns the default policy. Operations that name no policy run on it. Unless it was set, it is
/// [`StreamPoolRoundRobin`] on the first GPU, or on the CPU device if there is no GPU or if the GPU cannot be opened;
/// then [`fallback`] returns the reason. Blocks while the device is opened.
///
/// # Errors
/// The error of opening the device. Later calls return the same error, until a default is set.
pub fn default_policy() -> Result<Arc<dyn SchedulingPolicy>> {
    let mut default = DEFAULT.lock();
    loop {
        match &*default {
            Default::Set(policy) => return Ok(policy.clone()),
            Default::Failed(error) => return Err(error.clone()),
            Default::Opening(_) => OPENED.wait(&mut default),
            Default::Unset => {
                *default = Default::Opening(WakerSet::new());
                drop(default);
                return open_default();
            }
        }
    }
}

/// Opens the device at `address` and makes it the default of the process. For programs that must not fall back to
/// another device.
///
/// ```standalone_crate
/// let device = cuda_async::runtime::require("cpu")?;
/// assert_eq!(cuda_async::default_device()?, device);
/// # Ok::<(), cuda_async::Error>(())
/// ```
///
/// # Errors
/// The error of [`open_blocking`](crate::open_blocking). The default is then as before.
pub fn require(address: &str) -> Result<Device> {
    let device = open_blocking(address)?;
    set_default_device(&device)?;
    Ok(device)
}

/// Returns the reason why the CPU device was chosen as the default although this machine has a GPU. `None` if there is
/// no GPU, if the GPU was chosen, or if no device was chosen yet. The reason is also logged, with `tracing`. A default
/// that is set later does not change it.
pub fn fallback() -> Option<Error> {
    FALLBACK.get().cloned()
}

/// Returns the default device, which is the device of [`default_policy`]. Blocks while it is opened.
///
/// # Errors
/// The errors of [`default_policy`].
pub fn default_device() -> Result<Device> {
    Ok(default_stream()?.device().clone())
}

pub(crate) fn default_stream() -> Result<Stream> {
    match POLICY.load().as_deref() {
        Some(policy) => policy.place(),
        None => default_policy()?.place(),
    }
}

/// Does the same as [`default_stream`] without blocking: a helper thread opens the device.
pub(crate) fn poll_default_stream(task: &mut Context<'_>) -> Poll<Result<Stream>> {
    match POLICY.load().as_deref() {
        Some(policy) => Poll::Ready(policy.place()),
        None => poll_opened_stream(task),
    }
}

#[cold]
fn poll_opened_stream(task: &mut Context<'_>) -> Poll<Result<Stream>> {
    let known = known().or_else(|| {
        if enter(task.waker().clone()) {
            open_on_helper_thread();
        }
        // The default may have been settled before the waker was stored.
        self::known()
    });
    known.map_or(Poll::Pending, |policy| Poll::Ready(policy.and_then(|policy| policy.place())))
}

fn known() -> Option<Result<Policy>> {
    match &*DEFAULT.lock() {
        Default::Set(policy) => Some(Ok(policy.clone())),
        Default::Failed(error) => Some(Err(error.clone())),
        Default::Unset | Default::Opening(_) => None,
    }
}

/// Stores the waker until the default is settled. Returns whether the caller is the first and has to open the device. A
/// waker that is not stored is dropped without the lock, because arguments are dropped after local variables.
fn enter(waker: Waker) -> bool {
    let mut default = DEFAULT.lock();
    let is_first = matches!(*default, Default::Unset);
    if is_first {
        *default = Default::Opening(WakerSet::new());
    }
    if let Default::Opening(waiting) = &mut *default
        && !waiting.has_waker_like(&waker)
    {
        let replaced = waiting.insert(waiting.len(), waker);
        debug_assert!(replaced.is_none(), "no waker is removed before all are taken");
    }
    is_first
}

fn open_on_helper_thread() {
    let spawned = std::thread::Builder::new().name("cuda-open".into()).spawn(open_default);
    if let Err(error) = spawned {
        opened(Err(Error::host("failed to spawn the thread that opens the device", &error)));
    }
}

/// Opens the default device. The thread that set the state to `Opening` calls this.
fn open_default() -> Result<Policy> {
    let open = || first_device().and_then(|device| StreamPoolRoundRobin::new(&device));
    let policy = catch_unwind(open).unwrap_or_else(|payload| {
        discard_panic(payload);
        let what = "failed to open the default device".into();
        Err(Error::Host { what, detail: "a panic, which is a bug: please report it".into() })
    });
    opened(policy.map(|policy| Arc::new(policy) as Policy));
    default_policy()
}

/// Stores the result, unless a default was set in the meantime.
fn opened(policy: Result<Policy>) {
    // If it is not stored, it is dropped here, without the lock.
    let mut state = Some(policy.map_or_else(Default::Failed, Default::Set));
    settle(|default| match default {
        Default::Opening(_) => state.take(),
        _ => None,
    });
}

/// The first GPU, or the CPU device.
fn first_device() -> Result<Device> {
    let (device, fallback) = gpu_or(open_blocking("cuda"), || open_blocking("cpu"))?;
    if let Some(error) = fallback {
        tracing::warn!(%error, "the first GPU cannot be opened: the CPU device is the default device");
        _ = FALLBACK.set(error);
    }
    Ok(device)
}

/// Returns the GPU, or the device that `other` opens. The second value is the reason why the GPU is not used, unless
/// this machine has none or the program was built without GPUs.
fn gpu_or<D>(gpu: Result<D>, other: impl FnOnce() -> Result<D>) -> Result<(D, Option<Error>)> {
    let error = match gpu {
        Ok(device) => return Ok((device, None)),
        Err(error) => error,
    };
    match other() {
        Ok(device) => {
            let no_gpu = matches!(error, Error::NoDriver { .. } | Error::NoDevice { .. });
            Ok((device, (!no_gpu).then_some(error)))
        }
        Err(_) => Err(error),
    }
}

/// Changes the state. Wakes waiting tasks and drops the previous state without the lock.
fn settle(change: impl FnOnce(&Default) -> Option<Default>) {
    let mut default = DEFAULT.lock();
    let Some(state) = change(&default) else { return };
    let replaced = match &state {
        Default::Set(policy) => POLICY.swap(Some(Arc::new(policy.clone()))),
        _ => None,
    };
    let previous = std::mem::replace(&mut *default, state);
    OPENED.notify_all();
    drop(default);
    drop(replaced);
    if let Default::Opening(mut waiting) = previous {
        waiting.take_all().wake();
    }
}

type Make = dyn Fn(&Device) -> Result<Arc<dyn SchedulingPolicy>> + Send + Sync;

#[derive(Default)]
struct DevicePolicy(Mutex<State>);

#[derive(Default)]
struct State {
    make: Option<Arc<Make>>,
    live: Option<Weak<dyn SchedulingPolicy>>,
    /// The number of changes of `make`.
    changes: u64,
    /// The threads that run `make`.
    making: Vec<ThreadId>,
}

/// Sets the policy on which [`on(&device)`](crate::ops::DeviceOp::on) runs operations, for all threads from now on.
///
/// `make` constructs the policy when an operation needs it, perhaps several times, because an unused policy is dropped.
/// `make` must not request the policy of the same device. A closure that holds the device, or a stream or a buffer of
/// it, keeps the device open until another policy is set.
///
/// ```
/// use cuda_async::{open_blocking, policy::{LeastLoaded, SingleStream}, runtime::set_device_policy};
/// let device = open_blocking("cpu")?;
/// set_device_policy(&device, LeastLoaded::new);
/// set_device_policy(&device, |device| LeastLoaded::with_streams(device, 8));
/// # Ok::<(), cuda_async::Error>(())
/// ```
pub fn set_device_policy<P, F>(device: &Device, make: F)
where
    P: SchedulingPolicy + 'static,
    F: Fn(&Device) -> Result<P> + Send + Sync + 'static,
{
    let make: Arc<Make> = Arc::new(move |device| Ok(Arc::new(make(device)?)));
    if let Some(DevicePolicy(state)) = attachment(device) {
        let mut state = state.lock();
        let before = (state.make.replace(make), state.live.take());
        state.changes += 1;
        drop(state);
        drop(before);
    }
}

/// Returns the policy of a device: [`StreamPoolRoundRobin`], unless [`set_device_policy`] has set another one. All
/// callers share one policy while it is in use.
///
/// # Errors
/// The error of the policy's constructor. [`Error::Misuse`](crate::Error::Misuse) if the constructor requests the
/// policy that it makes.
pub fn device_policy(device: &Device) -> Result<Arc<dyn SchedulingPolicy>> {
    let Some(DevicePolicy(shared)) = attachment(device) else { return usual(device) };
    let this_thread = thread::current().id();
    let (make, changes) = {
        let mut state = shared.lock();
        if let Some(policy) = state.live.as_ref().and_then(Weak::upgrade) {
            return Ok(policy);
        }
        if state.making.contains(&this_thread) {
            return Err(
                Misuse::PolicyRequestsItself { device: device.info().address.clone() }.into()
            );
        }
        state.making.push(this_thread);
        (state.make.clone(), state.changes)
    };
    let making = Making { shared, by: this_thread };
    // Without the lock, because `make` is user code.
    let made = make.map_or_else(|| usual(device), |make| make(device));
    drop(making);
    let made = made?;
    let mut state = shared.lock();
    if let Some(policy) = state.live.as_ref().and_then(Weak::upgrade) {
        drop(state);
        return Ok(policy);
    }
    if state.changes == changes {
        state.live = Some(Arc::downgrade(&made));
    }
    Ok(made)
}

fn usual(device: &Device) -> Result<Arc<dyn SchedulingPolicy>> {
    Ok(Arc::new(StreamPoolRoundRobin::new(device)?))
}

/// Marks that a thread runs the constructor, until it is dropped.
struct Making<'a> {
    shared: &'a Mutex<State>,
    by: ThreadId,
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        self.shared.lock().making.retain(|thread| *thread != self.by);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unusable() -> Error {
        Error::DriverUnusable { detail: "too old".into() }
    }

    #[test]
    fn gpu_that_cannot_be_opened_is_a_fallback() {
        assert_eq!(gpu_or(Ok("gpu"), || Ok("cpu")), Ok(("gpu", None)));
        assert_eq!(gpu_or(Err(unusable()), || Ok("cpu")), Ok(("cpu", Some(unusable()))));
    }

    #[test]
    fn machine_without_gpu_is_no_fallback() {
        let none = Error::NoDriver { detail: "no such file".into() };
        assert_eq!(gpu_or(Err(none), || Ok("cpu")), Ok(("cpu", None)));
    }

    #[test]
    fn error_of_the_gpu_is_kept_if_there_is_no_other_device() {
        assert_eq!(gpu_or::<u8>(Err(unusable()), || Err(Error::AlreadyEnded)), Err(unusable()));
    }
}
