//! `unzip!`: splits an operation that gives a tuple.

use cuda_core::Error;
use parking_lot::Mutex;

use crate::ops::{boxed::BoxedOp, device_op::DeviceOp, value::value};

/// Splits an operation that gives a tuple of two to six elements into one operation for each element. The operation
/// runs once, when the first of them is run. An error reaches all of them.
///
/// ```
/// use cuda_async::{prelude::*, unzip, zip};
/// let (a, b) = unzip!(zip!(h2d(vec![1]), h2d(vec![2])));
/// assert_eq!(b.then(to_host).sync()?, [2]);
/// assert_eq!(a.then(to_host).sync()?, [1]);
/// # Ok::<(), cuda_async::Error>(())
/// ```
#[macro_export]
macro_rules! unzip {
    ($op:expr) => {
        $crate::ops::Unzip::unzip($op)
    };
}

/// Implements [`unzip!`](crate::unzip). `T` is the tuple.
pub trait Unzip<'a, T> {
    /// A tuple of operations.
    type Parts;

    /// Splits the operation into one operation for each element.
    fn unzip(self) -> Self::Parts;
}

/// An element that one operation takes.
type OutputCell<T> = Mutex<Option<T>>;

macro_rules! tuples {
    ($($($name:ident $index:tt),+;)*) => {$(
        impl<'a, Whole, $($name),+> Unzip<'a, ($($name,)+)> for Whole
        where
            Whole: DeviceOp<Output = ($($name,)+)> + 'a,
            <Whole as DeviceOp>::Steps: 'a,
            $($name: Send + 'a,)+
        {
            type Parts = ($(BoxedOp<'a, $name>,)+);

            fn unzip(self) -> Self::Parts {
                let cells = self.map(|whole| ($(OutputCell::new(Some(whole.$index)),)+)).shared();
                ($(
                    cells
                        .clone()
                        .then(|cells| {
                            cells.$index.lock().take().ok_or(Error::AlreadyEnded).map(value)
                        })
                        .boxed(),
                )+)
            }
        }
    )*};
}

tuples! {
    A 0, B 1;
    A 0, B 1, C 2;
    A 0, B 1, C 2, D 3;
    A 0, B 1, C 2, D 3, E 4;
    A 0, B 1, C 2, D 3, E 4, F 5;
}
