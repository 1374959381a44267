//! The machine: decoded code, and the state that it runs on.
//!
//! A [`Code`](code::Code) is immutable, and all workers share it. Each worker has a [`Ctx`](ctx::Ctx), the context that
//! a handler gets: the registers of the running warp, the memory that it can access ([`Spaces`](ctx::Spaces)), and the
//! state that the threads of its block share ([`Team`](team::Team)). This folder uses `memory`, `fault`, `lanes` and
//! `isa`. `exec` has the handlers, and `schedule` calls them.

pub(crate) mod async_copies;
pub(crate) mod budget;
pub(crate) mod code;
pub(crate) mod ctx;
pub(crate) mod debug_info;
pub(crate) mod place;
pub(crate) mod presets;
pub(crate) mod team;
