//! Element types of device memory.

use bytemuck::Pod;

/// A type whose every bit pattern is a value and that has no padding, so that any bytes a device wrote can be read
/// back. Every [`bytemuck::Pod`] type is one: integers, floats, `f16`, `bf16`, arrays of them,
/// and structs that derive `Pod`.
pub trait Element: Pod + Send + Sync {}

impl<T: Pod + Send + Sync> Element for T {}
