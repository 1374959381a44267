//! The operations and combinators, one to a file.

mod boxed;
mod branch;
mod chain;
mod download;
mod fresh;
mod in_order;
mod inspect;
mod iterate;
mod join_all;
mod launch;
mod map;
mod shared;
mod typed_args;
mod unzip;
mod upload;
mod value;
mod zip;

pub use boxed::BoxedOp;
pub use branch::Branch;
pub use chain::{Chain, Next, Plain, WithContext};
pub use download::{BufferSource, ToHost, ToPinned, to_host, to_pinned};
pub use fresh::{Fresh, uninitialised, zeros};
pub use in_order::{InOrder, in_order};
pub use inspect::Inspect;
pub use iterate::{Iterate, MAX_TURNS_PER_POLL, iterate};
pub use join_all::{JoinAll, join_all};
pub use launch::{ByValue, KernelArg, KernelArgs, LaunchOp, launch};
pub use map::Map;
pub use shared::Shared;
pub use typed_args::{Aligned, Group, KernelInput, KernelOutput, Reads};
pub use unzip::Unzip;
pub use upload::{COPY_CHUNK, COPY_WINDOW, HostSource, Upload, h2d};
pub use value::{Value, empty, value, with_context};
pub use zip::Zip;
