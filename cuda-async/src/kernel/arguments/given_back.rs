//! `BufferTuple`: the buffers that a launch gives back.
//!
//! A launch takes a tuple of buffers and values and gives back the buffers alone. The type of its output is built from the
//! last argument to the first: each buffer puts itself in front of a [`BufferTuple`], and each value leaves it as it is.

mod sealed {
    pub trait Sealed {}
}

/// A tuple of buffers that a launch gives back.
pub trait BufferTuple: Send + Sized + sealed::Sealed {
    /// This tuple with `T` in front. If this tuple has 32 elements, the result is a pair of `T` and this tuple.
    type Prepend<T: Send>: BufferTuple;

    /// The form of the buffers in the output of the launch: the buffer itself if there is exactly one, otherwise the
    /// tuple.
    type Bare: Send;

    /// Puts `first` in front of this tuple.
    fn prepend<T: Send>(self, first: T) -> Self::Prepend<T>;

    /// Returns the buffer itself if there is exactly one, otherwise the tuple.
    fn bare(self) -> Self::Bare;
}

macro_rules! bare {
    ($this:ident:) => { () };
    ($this:ident: $one:ident) => { $one };
    ($this:ident: $($many:ident)+) => { ($($many,)+) };
    (value $this:ident:) => { $this };
    (value $this:ident: $one:ident) => { $this.0 };
    (value $this:ident: $($many:ident)+) => { $this };
}

macro_rules! tuples {
    ([$($name:ident)*]) => {
        impl<$($name: Send),*> sealed::Sealed for ($($name,)*) {}

        impl<$($name: Send),*> BufferTuple for ($($name,)*) {
            type Prepend<First: Send> = (First, Self);
            type Bare = Self;

            #[inline]
            fn prepend<First: Send>(self, first: First) -> (First, Self) {
                (first, self)
            }

            #[inline]
            fn bare(self) -> Self {
                self
            }
        }
    };
    ([$($name:ident)*] $next:ident $($more:ident)*) => {
        impl<$($name: Send),*> sealed::Sealed for ($($name,)*) {}

        impl<$($name: Send),*> BufferTuple for ($($name,)*) {
            type Prepend<First: Send> = (First, $($name,)*);
            type Bare = bare!(self: $($name)*);

            #[inline]
            #[allow(non_snake_case)]
            fn prepend<First: Send>(self, first: First) -> (First, $($name,)*) {
                let ($($name,)*) = self;
                (first, $($name,)*)
            }

            #[inline]
            fn bare(self) -> Self::Bare {
                let this = self;
                bare!(value this: $($name)*)
            }
        }

        tuples!([$($name)* $next] $($more)*);
    };
}

tuples!([] A B C D E F G H I J K L M N O P Q R S T U V W X Y Z A1 B1 C1 D1 E1 F1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{Buffers, ByValue, Group, Returned};

    #[test]
    fn values_are_left_out_and_one_buffer_is_bare() {
        fn has_type<T>(_: Option<T>) {}
        type Values = (u32, bool, ByValue<f32>);
        has_type::<()>(None::<Buffers<Values>>);
        type One = (u32, Returned<u8>, f32);
        has_type::<u8>(None::<Buffers<One>>);
        type Grouped = (Group<(u32, Returned<u8>)>, Group<(Returned<i8>, f32)>);
        has_type::<(u8, i8)>(None::<Buffers<Grouped>>);
    }

    #[test]
    fn tuples_keep_their_order_and_nest_beyond_32() {
        let three = ().prepend('c').prepend('b').prepend('a');
        assert_eq!((three.bare(), ('x',).bare(), ().bare()), (('a', 'b', 'c'), 'x', ()));
        macro_rules! all {
            ($tuple:expr;) => { $tuple };
            ($tuple:expr; $one:literal $($more:literal)*) => { all!($tuple.prepend($one); $($more)*) };
        }
        let many = all!((); 33 32 31 30 29 28 27 26 25 24 23 22 21 20 19 18 17 16 15 14 13 12 11 10 9 8 7 6 5 4 3 2 1);
        let (first, rest) = many.bare();
        assert_eq!((first, rest.0, rest.31), (1, 2, 33));
    }
}
