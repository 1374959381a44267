//! The suite that every backend passes: the CPU device, leased CPU devices, and a GPU if there is one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod aliasing;
mod auto_traits;
mod autotuner;
mod cancellation;
mod captures;
mod combinators;
mod completion;
mod copies;
mod cubins;
mod dead_work;
mod device_handles;
mod devices;
mod errors;
mod errors_as_values;
mod faults;
#[cfg(feature = "cuda")]
mod faults_on_gpu;
#[cfg(feature = "cuda")]
mod graph_cache;
mod graphs;
mod growable;
mod host_memory;
mod kernels;
mod launch_attributes;
mod limits;
mod link;
mod loops;
mod lost_contents;
mod memory;
mod messages;
mod misuse;
mod module_cache;
mod module_store;
mod modules;
mod op_stream;
mod ordering;
mod output;
mod plan_drawings;
mod plans;
mod policies;
mod polling;
mod pools;
mod race_and_retry;
mod random_captures;
mod random_programs;
mod recordings;
mod refusals_and_resets;
mod running;
mod scalars;
mod script;
mod several_devices;
mod shared_wakes;
mod slices;
mod slots;
mod slow_link;
mod time;
mod timed;
mod type_sizes;
mod typed_kernels;
mod variables;
mod wakes;
mod wrapper;
