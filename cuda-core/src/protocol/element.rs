//! What can be stored on a device.

use bytemuck::Pod;

/// A type whose every bit pattern is a value and that has no padding: what a device wrote can be read
/// back as it is. Every [`bytemuck::Pod`] type is one: integers, floats, `f16`, `bf16`, arrays of them,
/// and structs that derive `Pod`.
pub trait Element: Pod + Send + Sync {}

impl<T: Pod + Send + Sync> Element for T {}
