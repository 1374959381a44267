//! The types that users hold: devices, streams, buffers, modules.
//!
//! Calls that submit work enqueue it immediately on the stream that the caller names. This folder uses `runtime` and
//! everything below it. The lazy layer, `cuda-async`, uses these types, the data of `protocol` and `sync`.
//!
//! [`Device`] is the lowest. Every submission goes through `stream`. `memory` submits copies and fills, and `kernel`
//! submits launches. `recording` replays recorded work. A typical call, such as `DeviceBuffer::upload`, goes from
//! `memory` to `stream/submit.rs`, and from there to the backend.
//!
//! Several files add methods to [`Device`]:
//!
//! | file | methods |
//! |---|---|
//! | `device` | `open`, `info`, `capabilities`, `memory`, `synchronize`, `reset`, `start_reset`, `set_output` |
//! | `device` | `attachment`, `check_may_wait`, `delivers_here`, `downgrade` |
//! | `memory_waiter` | `memory_waiter` |
//! | `recording` | `start_recording`, `start_plan` |
//! | `stream/lending` | `new_stream`, `new_stream_with_priority`, `lend_stream`, `lend_idle_stream` |
//! | `memory/pinned` | `pinned`, `pinned_uninitialized`, `idle_pinned` |
//! | `memory/pinning` | `start_pinning` |
//! | `memory/peer` | `reach`, `known_to_reach` |
//! | `memory/pool` | `default_pool` |
//! | `kernel/module` | `load_ptx`, `start_loading` |
//!
//! The methods of [`Stream`]:
//!
//! | file | methods |
//! |---|---|
//! | `stream/stream` | `id`, `priority`, `device`, `lend_branch`, `is_recording` |
//! | `stream/stream` | `last`, `submitted`, `in_flight`, `is_known_idle`, `is_contended` |
//! | `stream/stream` | `query`, `synchronize`, `synchronize_to`, `outcome`, `fault` |
//! | `stream/stream` | `waiter`, `request_report`, `report_before_others` |
//! | `stream/allocate` | `allocate` |
//! | `memory/pool` | `in_pool`, `allocate_in` |
//! | `stream/credit` | `has_credit`, `check_credit`, `wait_for_credit`, `credit_waiter`, `host_bytes_in_flight` |
//! | `stream/credit` | `check_not_lost` |
//! | `stream/join` | `record`, `wait_event`, `join`, `join_stream`, `join_streams`, `snapshot` |
//! | `stream/submit` | `submit`, `submit_launch`, `submit_after`, `submit_ordered` |
//! | `stream/submit` | `submit_control`, `submit_foreign` |
//! | `stream/naming` | `name_recorded` |
//! | `recording` | `end_recording`, `end_plan` |

mod device;
mod kernel;
mod memory;
mod memory_waiter;
mod recording;
mod stream;

pub use device::{Device, WeakDevice};
pub use kernel::{ArgumentKind, Arguments, CachedModule, Function, Loading, Module};
pub use memory::{
    Crossing, DeviceBuffer, ForeignCall, GrowableBuffer, HostValues, Landing, MemoryPool,
    PinnedBuffer, Pinning, PoolOptions, PoolStatistics, ScalarMemory, SharedSlice, Slice, SliceMut,
};
pub use memory_waiter::MemoryWaiter;
pub use recording::{LaunchResources, MAX_INSTANCES, RecordedNode, Recording};
pub use stream::{Allocation, CapturePool, Event, MAX_RECORDED_BYTES, RecordedName, Stream};
#[cfg(all(test, loom))]
pub(crate) use stream::{Attached, Keep, Operand};
