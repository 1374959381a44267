//! Element types of device memory.

use bytemuck::Pod;

/// A type without padding for which every bit pattern is a valid value. Any bytes that a device wrote can be read back
/// as such values. Every [`bytemuck::Pod`] type is one: integers, floats, `f16`, `bf16`, arrays of them, and structs
/// that derive `Pod`.
pub trait Element: Pod + Send + Sync {}

impl<T: Pod + Send + Sync> Element for T {}
