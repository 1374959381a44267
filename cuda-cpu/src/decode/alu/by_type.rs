//! Macros that select a handler by type.

/// Selects a handler by type, as in `by_type!(ty, binary, Add, [U32: u32, S32: i32])`. Returns `None` for other types.
macro_rules! by_type {
    ($ty:expr, $make:ident, $op:ident, [$($name:ident: $t:ty),* $(,)?]) => {
        match $ty {
            $(cuda_ptx::ScalarType::$name => Some($crate::exec::map::$make::<$op<$t>>()),)*
            _ => None,
        }
    };
    ($ty:expr, $make:ident, $op:ident, int) => {
        $crate::decode::alu::by_type::by_type!($ty, $make, $op,
            [U16: u16, S16: i16, U32: u32, S32: i32, U64: u64, S64: i64])
    };
    // The signed types of 32 and 64 bits share the handlers of the unsigned ones.
    ($ty:expr, $make:ident, $op:ident, wrapping) => {
        match $ty {
            cuda_ptx::ScalarType::S32 => Some($crate::exec::map::$make::<$op<u32>>().signed()),
            cuda_ptx::ScalarType::S64 => Some($crate::exec::map::$make::<$op<u64>>().signed()),
            ty => $crate::decode::alu::by_type::by_type!(ty, $make, $op,
                [U16: u16, S16: i16, U32: u32, U64: u64]),
        }
    };
    ($ty:expr, $make:ident, $op:ident, bits) => {
        $crate::decode::alu::by_type::by_type!($ty, $make, $op, [B16: u16, B32: u32, B64: u64])
    };
}

/// Defines functions that select the handler of an instruction whose only modifier is its type.
macro_rules! of_type {
    ($($name:ident: $make:ident $op:ident $types:tt;)*) => { $(
        pub(crate) fn $name(form: &mut $crate::decode::form::Form<'_>) -> Option<$crate::exec::map::Pick> {
            let ty = form.ty()?;
            $crate::decode::alu::by_type::by_type!(ty, $make, $op, $types)
        }
    )* };
}

pub(super) use {by_type, of_type};
