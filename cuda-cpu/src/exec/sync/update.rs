//! Updates of single elements in memory, for asynchronous reductions.

use half::{bf16, f16};

use crate::{
    exec::number::{float::Float, int::Int, lane::Lane},
    machine::async_bulk::Update,
    memory::access::Word,
};

macro_rules! updates {
    ($($name:ident<$t:ident: $bound:path>, |$old:ident, $new:ident| $result:expr;)*) => { $(
        /// # Safety
        /// `at` must be valid and aligned for `W`.
        unsafe fn $name<$t: $bound + Lane<Raw: Bits>, W: Word + Bits>(at: *mut u8, value: u64) {
            let $new = $t::from_raw(<$t::Raw as Bits>::from_bits(value));
            // SAFETY: the caller guarantees it.
            unsafe {
                W::update(at, |old| {
                    let $old = $t::from_raw(<$t::Raw as Bits>::from_bits(old.to_bits()));
                    W::from_bits(Bits::to_bits($result.to_raw()))
                });
            }
        }
    )* };
}

/// Integers used as bit containers.
trait Bits {
    fn from_bits(bits: u64) -> Self;
    fn to_bits(self) -> u64;
}

macro_rules! bits {
    ($($ty:ty),*) => { $(
        impl Bits for $ty {
            fn from_bits(bits: u64) -> Self { bits as Self }
            fn to_bits(self) -> u64 { self.into() }
        }
    )* };
}

bits!(u16, u32, u64);

updates! {
    add<T: Int>, |old, new| old.add(new);
    min<T: Int>, |old, new| old.min(new);
    max<T: Int>, |old, new| old.max(new);
    and<T: Int>, |old, new| old.and(new);
    or<T: Int>, |old, new| old.or(new);
    xor<T: Int>, |old, new| old.xor(new);
    inc<T: Int>, |old, new| if old >= new { T::default() } else { old.add(T::from_bits(1)) };
    dec<T: Int>, |old, new| if old == T::default() || old > new { new } else { old.sub(T::from_bits(1)) };
    add_float<T: Float>, |old, new| old.add(new).canonical();
    min_float<T: Float>, |old, new| old.min(new);
    max_float<T: Float>, |old, new| old.max(new);
}

macro_rules! by {
    ($ty:expr, $update:ident, [$($name:literal: $t:ty as $word:ty),*]) => {
        match $ty {
            $($name => Some(($update::<$t, $word> as Update, size_of::<$word>() as u32)),)*
            _ => None,
        }
    };
}

macro_rules! integers {
    ($ty:expr, $update:ident) => {
        by!($ty, $update, ["u32": u32 as u32, "s32": i32 as u32, "u64": u64 as u64, "s64": i64 as u64])
    };
}

/// Returns the update for this operation and type, and the size of an element in bytes.
pub(crate) fn pick(op: &str, ty: &str) -> Option<(Update, u32)> {
    match (op, ty) {
        ("add", "f16" | "bf16" | "f32" | "f64") => by!(ty, add_float, ["f16": f16 as u16,
            "bf16": bf16 as u16, "f32": f32 as u32, "f64": f64 as u64]),
        ("min", "f16" | "bf16") => by!(ty, min_float, ["f16": f16 as u16, "bf16": bf16 as u16]),
        ("max", "f16" | "bf16") => by!(ty, max_float, ["f16": f16 as u16, "bf16": bf16 as u16]),
        ("add", _) => integers!(ty, add),
        ("min", _) => integers!(ty, min),
        ("max", _) => integers!(ty, max),
        ("inc", _) => by!(ty, inc, ["u32": u32 as u32]),
        ("dec", _) => by!(ty, dec, ["u32": u32 as u32]),
        ("and", _) => by!(ty, and, ["b32": u32 as u32, "b64": u64 as u64]),
        ("or", _) => by!(ty, or, ["b32": u32 as u32, "b64": u64 as u64]),
        ("xor", _) => by!(ty, xor, ["b32": u32 as u32, "b64": u64 as u64]),
        _ => None,
    }
}
