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
//! 3. **Streams** are held in `Arc`s. Whoever makes a call with one holds a clone, so a stream cannot
//!    be destroyed under a call, nor under a notice whose status has still to be asked.
//! 4. **Functions** are used under the read lock of the table of modules, and a module is unloaded
//!    after it was taken out of the table under the write lock. So a launch holds that lock across
//!    one driver call (about 3 us), and nothing else holds it for long.
//! 5. **Events** are never destroyed while the backend lives; there are as many as the client has names.
//! 6. **Device memory** is named by numbers, not by pointers that this process could follow. That
//!    nobody uses it after it was freed is kept by the layer above (tickets); a breach would be a
//!    fault on the device, not of this process.
//! 7. **Host memory** of a copy belongs to the device until the stream has passed the copy, as
//!    [`Backend`](crate::Backend) says; the client keeps the block alive, this side checks its bounds.
//! 8. **Driver threads** run the host function of a `Notify` and nothing else: it puts a number into
//!    the inbox of the completion thread, takes no lock that is held across a driver call, and drops
//!    nothing that is a user's.
//! 9. **No `Drop` calls the driver.** What is dropped goes to the device's `discard::Trash`, which the
//!    next request or the next open drains. A backend that is dropped with live allocations leaves
//!    them there as one bundle, freed once its streams are idle; if nobody asks again, they go with
//!    the process.
//!
//! # Threads
//!
//! One thread per backend, `cuda-completion`, started by the first `Notify`. It asks the stream's
//! status before a notice says `Ok`, delivers notices with no lock held, and watches: after a kernel's
//! fault host functions never come, so while notices are outstanding it wakes every
//! `completion::WATCH` to ask. With nothing outstanding it parks. It ends when the backend is gone
//! and everything is answered.

mod api;
mod backend;
mod completion;
mod context;
mod discard;
mod driver;
mod host_memory;
mod launch;
mod memory;
mod modules;
mod outstanding;
mod provider;
mod status;
mod streams;
mod transfer;

pub use backend::CudaBackend;
pub use provider::CudaProvider;
