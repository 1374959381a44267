//! The combinators, and [`DeviceOp`], the trait whose methods build them.
//!
//! | to | use |
//! |---|---|
//! | start from a value or a closure | [`value`], [`defer`], [`with_context`] |
//! | continue with the output | [`then`](DeviceOp::then), [`map`](DeviceOp::map), [`try_map`](DeviceOp::try_map) |
//! | run operations at the same time | [`zip!`](crate::zip), [`join_all`], [`race()`], [`shared`](DeviceOp::shared) |
//! | repeat | [`iterate`], [`in_order`], [`script`], [`retry`] |
//! | choose one of two operations without a box | [`Either`] |
//! | handle errors | [`or_else`](DeviceOp::or_else), [`map_err`](DeviceOp::map_err), [`timeout`](DeviceOp::timeout) |
//!
//! The other types of this module are the steps of these combinators. They appear in types only.
//!
//! ```
//! use cuda_async::{join_all, prelude::*};
//! let squares = (1..=3u32).map(|n| h2d(vec![n]).then(to_host).map(|v| v[0] * v[0]));
//! assert_eq!(join_all(squares).map(|all| all.iter().sum::<u32>()).sync()?, 14);
//! # Ok::<(), cuda_async::Error>(())
//! ```

// A combinator uses `op` and `context`. Some also use `wake` (for time) or `runtime` (for other devices). Only
// `device_op` names all combinators, `policy` and `run`. `memory` uses this folder, and programs call it directly. A
// typical call goes from a method of `DeviceOp` to the `Submit::submit` of the combinator's steps, and from there to
// the `submit` of the steps inside them.

mod allocating;
mod bind;
mod boxed;
mod branch;
mod chain;
pub(crate) mod device_op;
mod either;
mod in_order;
mod iterate;
mod join_all;
mod lazy_args;
mod mapped;
mod named;
mod on;
mod once;
mod or_else;
mod race;
mod retry;
mod script;
mod settled;
mod shared;
mod timed;
mod timeout;
mod unzip;
mod value;
mod zip;

pub use allocating::{Allocating, AllocationMode, FromPool, Waiting};
pub use bind::bind;
pub use boxed::{Boxed, BoxedOp, MAX_NESTED_BOXES};
pub use branch::Branch;
pub use chain::{Chain, Next, Plain, WithContext};
pub use device_op::DeviceOp;
pub use either::{Either, EitherSteps};
pub use in_order::{InOrder, in_order};
pub use iterate::{Iterate, MAX_ITERATIONS_PER_POLL, iterate};
pub use join_all::{JoinAll, join_all};
pub use lazy_args::{Arg, InSequence, LazyArgs, ready_args};
pub use mapped::{InspectOutput, MapError, MapOutput, Mapped, Mapping, TryMapOutput, UnwrapArc};
pub use named::Named;
pub use on::On;
pub use or_else::OrElse;
pub use race::{Race, race};
pub use retry::{Retry, Retrying, retry};
pub use script::{Script, ScriptContext, ScriptRun, script};
pub use settled::Settled;
pub use shared::Shared;
pub use timed::Timed;
pub use timeout::Timeout;
pub use unzip::Unzip;
pub use value::{Value, defer, empty, value, with_context};
pub use zip::Zip;
