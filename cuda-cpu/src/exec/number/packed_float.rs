//! Packed numbers: applies each operation to both.

use super::float::Float;
use super::lane::{Pair, Two};

macro_rules! both {
    ($($name:ident($($other:ident),*);)*) => { $(
        #[inline(always)]
        fn $name(self $(, $other: Self)*) -> Self {
            Self(Float::$name(self.0 $(, $other.0)*), Float::$name(self.1 $(, $other.1)*))
        }
    )* };
}

macro_rules! all {
    () => {
        both! {
            add(b);
            sub(b);
            mul(b);
            mul_ftz(b);
            fma(b, c);
            fma_ftz(b, c);
            min(b);
            max(b);
            min_nan(b);
            max_nan(b);
            neg();
            negated();
            abs();
            flush();
            saturate();
            canonical();
            with_sign_of(sign);
        }
    };
}

impl<T: Float<Raw = u32>> Float for Two<T> {
    all!();
}

impl Float for Pair {
    all!();
}
