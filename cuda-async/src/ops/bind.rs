//! `bind`: a step of a generic function, with a small type.

/// Returns a closure that calls `function` with its argument and `parameters`, which is a tuple if there are several.
///
/// Use it for a step of a generic function that takes an operation. The type of a closure contains the type parameters
/// of the function around it, here the operation. So a closure in such a function doubles the type of the operation,
/// and each further call of the function doubles the time of the compiler.
///
/// ```
/// use cuda_async::{ops::bind, prelude::*};
///
/// fn append(mut list: Vec<u32>, last: u32) -> Vec<u32> {
///     list.push(last);
///     list
/// }
///
/// fn appended(
///     list: impl DeviceOp<Output = Vec<u32>>,
///     last: u32,
/// ) -> impl DeviceOp<Output = Vec<u32>> {
///     list.map(bind(append, last)) // not `list.map(move |list| append(list, last))`
/// }
///
/// let list = zeros::<u32>(1).then(to_host);
/// assert_eq!(appended(appended(list, 1), 2).sync()?, [0, 1, 2]);
/// # Ok::<(), cuda_async::Error>(())
/// ```
#[inline]
pub fn bind<X, P, O>(function: impl FnOnce(X, P) -> O, parameters: P) -> impl FnOnce(X) -> O {
    move |x| function(x, parameters)
}
