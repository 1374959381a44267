//! The device and the policy of the process, for operations that name none.

use std::{
    panic::catch_unwind,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use cuda_core::{
    Device, Error, Result, Stream,
    sync::{discard_panic, wake_each},
};
use parking_lot::{Condvar, Mutex};

use crate::{
    policy::{SchedulingPolicy, StreamPoolRoundRobin},
    runtime::devices::{devices, open},
};

type Policy = Arc<dyn SchedulingPolicy>;

static DEFAULT: Mutex<Default> = Mutex::new(Default::Unset);
static OPENED: Condvar = Condvar::new();

enum Default {
    Unset,
    /// A thread opens the device; these want to know.
    Opening(Vec<Waker>),
    Set(Policy),
    /// Opening it failed; setting one ends that.
    Failed(Error),
}

/// Sets what operations without a policy run on, from now on and in every thread.
pub fn set_default_policy(policy: Arc<dyn SchedulingPolicy>) {
    settle(|_| Some(Default::Set(policy)));
}

/// Makes `device` the default, with [`StreamPoolRoundRobin`].
///
/// # Errors
/// What the device says if it has no streams to give.
pub fn set_default_device(device: &Device) -> Result<()> {
    set_default_policy(Arc::new(StreamPoolRoundRobin::new(device)?));
    Ok(())
}

/// What operations without a policy run on; unless it was set, [`StreamPoolRoundRobin`] on the first GPU,
/// or on the CPU device where there is none. Blocks while that is opened.
///
/// # Errors
/// What opening it says.
pub fn default_policy() -> Result<Arc<dyn SchedulingPolicy>> {
    let mut default = DEFAULT.lock();
    loop {
        match &*default {
            Default::Set(policy) => return Ok(policy.clone()),
            Default::Failed(error) => return Err(error.clone()),
            Default::Opening(_) => OPENED.wait(&mut default),
            Default::Unset => {
                *default = Default::Opening(Vec::new());
                drop(default);
                return open_default();
            }
        }
    }
}

/// The default device: the one of [`default_policy`]. Blocks while it is opened.
///
/// # Errors
/// As [`default_policy`].
pub fn default_device() -> Result<Device> {
    Ok(default_stream()?.device().clone())
}

pub(crate) fn default_stream() -> Result<Stream> {
    default_policy()?.place()
}

/// As [`default_stream`], without blocking: the device is opened on a thread of its own.
pub(crate) fn poll_default_stream(task: &mut Context<'_>) -> Poll<Result<Stream>> {
    let known = known().or_else(|| {
        if enter(task.waker().clone()) {
            open_on_helper_thread();
        }
        // Whoever settled it before the waker was there wakes nobody.
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

/// Has this woken once it is settled; whether the caller is the first and has to open the device. A waker that is
/// not kept is dropped without the lock, as all arguments are dropped after what is local.
fn enter(waker: Waker) -> bool {
    let mut default = DEFAULT.lock();
    match &mut *default {
        Default::Unset => {
            *default = Default::Opening(vec![waker]);
            return true;
        }
        Default::Opening(waiting) if !waiting.iter().any(|other| other.will_wake(&waker)) => {
            waiting.push(waker);
        }
        _ => {}
    }
    false
}

fn open_on_helper_thread() {
    let spawned = std::thread::Builder::new().name("cuda-open".into()).spawn(open_default);
    if let Err(error) = spawned {
        let what = "cannot start a thread to open the device".into();
        opened(Err(Error::Host { what, detail: error.to_string() }));
    }
}

/// Opens the default device. Called by whoever set the state to `Opening`.
fn open_default() -> Result<Policy> {
    let open = || first_device().and_then(|device| StreamPoolRoundRobin::new(&device));
    let policy = catch_unwind(open).unwrap_or_else(|payload| {
        discard_panic(payload);
        let what = "opening the default device".into();
        Err(Error::Host { what, detail: "a panic, which is a bug: please report it".into() })
    });
    opened(policy.map(|policy| Arc::new(policy) as Policy));
    default_policy()
}

/// Takes the result, unless a default was set in the meantime.
fn opened(policy: Result<Policy>) {
    settle(|default| match default {
        Default::Opening(_) => Some(policy.map_or_else(Default::Failed, Default::Set)),
        _ => None,
    });
}

fn first_device() -> Result<Device> {
    let address = devices().into_iter().next().map(|info| info.address);
    let opened = open(address.as_deref().unwrap_or("cpu"));
    opened.or_else(|error| open("cpu").map_err(|_| error))
}

/// Changes the state. Whoever waited is woken, and what was there before is dropped, without the lock.
fn settle(change: impl FnOnce(&Default) -> Option<Default>) {
    let mut default = DEFAULT.lock();
    let Some(state) = change(&default) else { return };
    let previous = std::mem::replace(&mut *default, state);
    OPENED.notify_all();
    drop(default);
    if let Default::Opening(waiting) = previous {
        wake_each(waiting);
    }
}
