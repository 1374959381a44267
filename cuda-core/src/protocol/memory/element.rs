//! Element types of device memory.

use bytemuck::Pod;

/// A type without padding for which every bit pattern is a valid value. Any bytes that a device wrote can be read back
/// as such values. Every [`bytemuck::Pod`] type is one: integers, floats, `f16`, `bf16`, arrays of them, and structs
/// that derive `Pod`.
///
/// A program that allocates memory for elements of size zero does not build.
pub trait Element: Pod + Send + Sync {}

impl<T: Pod + Send + Sync> Element for T {}

/// Fails while the program is built, if a value of the type has no bytes: the length of an allocation could not be
/// computed from its size. Call it in a `const` block.
pub(crate) const fn assert_has_bytes<T>() {
    assert!(
        size_of::<T>() > 0,
        "the elements of a buffer have no bytes; use a type of at least one byte"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    // A doctest cannot test this: rustdoc generates no code for a `compile_fail` program, and the assertion fails only
    // then.
    #[test]
    #[should_panic(expected = "at least one byte")]
    fn elements_of_size_zero_are_refused() {
        assert_has_bytes::<()>();
    }
}
