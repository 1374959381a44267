//! NVIDIA GPUs, through the driver that is installed with them (feature `cuda`).
//!
//! Nothing of CUDA is needed to build this: the driver's library is looked for when a device is asked
//! for, and where there is none that is an [`Error::NoDriver`](crate::Error::NoDriver).
//!
//! # Who may touch what, and when
//!
//! The driver's calls may be made from any thread; what has to be kept is the life of what they are
//! given. Read this before the code: every `SAFETY` comment below refers to one of these rules.
//!
//! 1. **The library** is loaded once and never unloaded, so its functions (`api`) live as long as
//!    the process.
//! 2. **The context** is the device's primary one, which every CUDA library of the process shares. It
//!    is retained when the device is first opened and never released: freeing it under another library
//!    would be worse than keeping it. `context::Primary`, one per device and process, lives as long.
//!    Every call that needs a context is made while a `context::Bound` lives, which puts the
//!    thread's own context back when it goes; the completion thread alone binds for its whole life.
//! 3. **Streams** are held in `Arc`s. Whoever makes a call with one holds a clone, or is inside an `enqueue`
//!    whose caller promises that the stream is not destroyed meanwhile. A notice whose status has still to be
//!    asked holds one too.
//! 4. **Functions** are used inside an `enqueue` alone, whose caller promises that their module is not
//!    unloaded meanwhile. So a launch looks them up without a lock (`recent::Recent`), and a module that is
//!    unloaded is forgotten there before its functions go.
//! 5. **Events** are never destroyed while the backend lives; there are as many as the client has names.
//! 6. **Device memory** is named by numbers, not by pointers that this process could follow. That
//!    nobody uses it after it was freed is kept by the layer above (tickets); a breach would be a
//!    fault on the device, not of this process.
//! 7. **Host memory** of a copy belongs to the device until the stream has passed the copy, as
//!    [`Backend`](crate::Backend) says; the client keeps the block alive, this side checks its bounds.
//! 8. **Driver threads** run the host function of a `Notify` and nothing else: it raises the stream's word and
//!    wakes the completion thread, takes no lock that is held across a driver call, and drops nothing
//!    that is a user's.
//! 9. **No `Drop` calls the driver.** What is dropped goes to the device's `discard::Trash`, which the
//!    next request or the next open drains. A backend that is dropped with live allocations leaves
//!    them there as one bundle, freed once its streams are idle; if nobody asks again, they go with
//!    the process.
//!
//! # Threads
//!
//! One thread per backend, `cuda-completion`, started by the first `Notify`. Every stream has a word of host
//! memory that is raised when the stream gets to a `Notify`: by the stream itself, or by a host function (see
//! `Completion`). The thread looks at the words of those who wait, asks the stream's status before a notice says
//! `Ok`, and delivers notices with no lock held. After a kernel's fault no word changes any more, so while
//! notices are outstanding it asks every `patience::WATCH`. With nothing outstanding it parks. It ends
//! when the backend is gone and everything is answered.

mod api;
mod backend;
mod completion;
mod context;
mod discard;
mod driver;
mod host_memory;
mod launch;
#[cfg(all(test, loom))]
mod loom_models;
mod memory;
mod modules;
mod patience;
mod peers;
mod provider;
mod recent;
mod status;
mod streams;
mod transfer;
mod watch;
mod word;

pub use backend::CudaBackend;
pub use completion::Completion;
pub use provider::CudaProvider;
