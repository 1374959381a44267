//! Checked arithmetic, conditions and launch shapes, for the code that [`kernels!`](crate::kernels) generates.
//!
//! Expressions are computed in 128 bits, so no sum or product of two lengths overflows. A larger value is an error.
//!
//! The functions are always inlined: most parts of an expression are constants or one load.

use std::fmt;

use cuda_core::{Error, LaunchConfig, Result};

use crate::kernel::arguments::KernelBuffer;

/// The name of a kernel, for error messages.
#[derive(Debug, Clone, Copy)]
pub struct Kernel(pub &'static str);

/// The text of an expression, and its value.
pub type Side = (&'static str, Quantity);

impl Kernel {
    /// Returns the value of an expression.
    ///
    /// # Errors
    /// [`Error::Arguments`] if it has none.
    #[inline(always)]
    pub fn value(self, (text, value): Side) -> Result<i128> {
        value.map_err(|undefined| self.undefined(text, undefined))
    }

    /// Checks a condition: `holds` compares the values of `left` and `right`.
    ///
    /// # Errors
    /// [`Error::Arguments`], with the condition and both values, if the condition does not hold or a side has no value.
    #[inline(always)]
    pub fn require(
        self,
        condition: &'static str,
        left: Side,
        right: Side,
        holds: impl FnOnce(&i128, &i128) -> bool,
    ) -> Result<()> {
        let values = (self.value(left)?, self.value(right)?);
        if holds(&values.0, &values.1) {
            return Ok(());
        }
        Err(self.violated(condition, &[(left.0, values.0), (right.0, values.1)]))
    }

    /// Compares two values, for an alternative of a condition.
    ///
    /// # Errors
    /// [`Error::Arguments`] if a side has no value.
    #[inline(always)]
    pub fn holds(
        self,
        left: Side,
        right: Side,
        holds: impl FnOnce(&i128, &i128) -> bool,
    ) -> Result<bool> {
        Ok(holds(&self.value(left)?, &self.value(right)?))
    }

    /// Checks a condition with alternatives. `sides` returns those of all comparisons, for the message.
    ///
    /// # Errors
    /// [`Error::Arguments`], with the condition and the values, if no alternative holds.
    #[inline(always)]
    pub fn require_any<const N: usize>(
        self,
        condition: &'static str,
        holds: bool,
        sides: impl FnOnce() -> [Side; N],
    ) -> Result<()> {
        if holds {
            return Ok(());
        }
        Err(self.violated_all(condition, &sides()))
    }

    /// Converts the value of `name = text` to the type of the parameter.
    ///
    /// # Errors
    /// [`Error::Arguments`] if the expression has no value, or the value does not fit.
    #[inline(always)]
    pub fn derived<T: TryFrom<i128>>(self, name: &'static str, side: Side) -> Result<T> {
        let value = self.value(side)?;
        T::try_from(value).map_err(|_| {
            let ty = std::any::type_name::<T>();
            self.wrong(format!("`{name} = {}` is {value}, which does not fit `{ty}`", side.0))
        })
    }

    #[cold]
    fn undefined(self, text: &str, undefined: Undefined) -> Error {
        self.wrong(format!("`{text}` {undefined}"))
    }

    #[cold]
    fn violated_all(self, condition: &str, sides: &[Side]) -> Error {
        let mut known: Vec<(&str, i128)> = Vec::new();
        for (text, value) in sides {
            // A side of an alternative that was not computed may have no value.
            if let Ok(value) = value
                && !known.iter().any(|(earlier, _)| earlier == text)
            {
                known.push((text, *value));
            }
        }
        self.violated(condition, &known)
    }

    #[cold]
    fn violated(self, condition: &str, sides: &[(&str, i128)]) -> Error {
        let named: Vec<_> = sides
            .iter()
            .filter(|(text, value)| *text != value.to_string())
            .map(|(text, value)| format!("`{text}` is {value}"))
            .collect();
        self.wrong(format!("`{condition}` does not hold: {}", named.join(", ")))
    }

    #[cold]
    pub(super) fn wrong(self, detail: String) -> Error {
        Error::Arguments { kernel: self.0.to_owned(), detail }
    }

    /// Returns the configuration for a number of elements, or `None` for zero elements.
    ///
    /// # Errors
    /// [`Error::Arguments`] if the expression has no value; [`Error::InvalidLaunch`] if no grid has that many threads.
    #[inline(always)]
    pub fn elements(self, elements: Side) -> Result<Option<LaunchConfig>> {
        let n = self.size::<u64>(elements)?;
        Ok((n != 0).then(|| LaunchConfig::for_num_elems(n)))
    }

    /// Returns the configuration for a plane, or `None` for one without points.
    ///
    /// # Errors
    /// The errors of [`elements`](Self::elements).
    #[inline(always)]
    pub fn plane(self, width: Side, height: Side) -> Result<Option<LaunchConfig>> {
        let (width, height) = (self.size::<u64>(width)?, self.size::<u64>(height)?);
        Ok((width != 0 && height != 0).then(|| LaunchConfig::for_plane(width, height)))
    }

    /// Returns the configuration with a block of `threads` threads for each tile of a partition, or `None` if there are
    /// no tiles.
    ///
    /// # Errors
    /// [`Error::Arguments`] if the argument `name` is not a `Partition` of `cuda-tensor` with tiles of the shape
    /// `tile`, or a value is undefined; [`Error::InvalidLaunch`] if `threads` or a size is out of range.
    pub fn tiles<const N: usize>(
        self,
        name: &'static str,
        buffer: &impl KernelBuffer,
        tile: [Side; N],
        threads: Side,
    ) -> Result<Option<LaunchConfig>> {
        let threads = self.size(threads)?;
        let mut wanted = [0; N];
        for (wanted, size) in wanted.iter_mut().zip(tile) {
            *wanted = self.size(size)?;
        }
        let Some((tile, [x, y, z])) = buffer.tiles() else {
            let why = format!(
                "the launch has a block for each tile; pass `tensor.partition({wanted:?})?`"
            );
            return Err(self.wrong(format!("`{name}` is not divided into tiles, and {why}")));
        };
        if tile != wanted {
            let why = format!(
                "`{name}` is divided into tiles of {tile:?}, and the kernel is for tiles of {wanted:?}"
            );
            return Err(self.wrong(why));
        }
        let config = LaunchConfig::new(1, threads).grid(x, y, z);
        Ok((x != 0 && y != 0 && z != 0).then_some(config))
    }

    /// Returns the configuration with these dimensions, or `None` if a dimension of the grid is zero.
    ///
    /// # Errors
    /// The errors of [`elements`](Self::elements). A block without threads is refused at submission.
    #[inline(always)]
    pub fn config(
        self,
        grid: [Side; 3],
        block: [Side; 3],
        shared_bytes: Side,
    ) -> Result<Option<LaunchConfig>> {
        let [gx, gy, gz] = self.dimensions(grid)?;
        let [bx, by, bz] = self.dimensions(block)?;
        let shared = self.size(shared_bytes)?;
        let config = LaunchConfig::new(1, 1).grid(gx, gy, gz).block(bx, by, bz);
        Ok((gx != 0 && gy != 0 && gz != 0).then(|| config.shared_bytes(shared)))
    }

    /// Adds a cluster with these dimensions. With `rounds`, the grid grows to a multiple of it.
    ///
    /// # Errors
    /// The errors of [`elements`](Self::elements).
    #[inline(always)]
    pub fn cluster(
        self,
        config: Option<LaunchConfig>,
        cluster: [Side; 3],
        rounds: bool,
    ) -> Result<Option<LaunchConfig>> {
        let [x, y, z] = self.dimensions(cluster)?;
        Ok(config.map(|mut config| {
            if rounds {
                for (blocks, side) in config.grid.iter_mut().zip([x, y, z]) {
                    *blocks = blocks.div_ceil(side.max(1)).saturating_mul(side.max(1));
                }
            }
            config.cluster(x, y, z)
        }))
    }

    #[inline]
    fn dimensions(self, [x, y, z]: [Side; 3]) -> Result<[u32; 3]> {
        Ok([self.size(x)?, self.size(y)?, self.size(z)?])
    }

    /// Converts the value of an expression to a number of the configuration.
    #[inline(always)]
    fn size<T: TryFrom<i128>>(self, side: Side) -> Result<T> {
        let value = self.value(side)?;
        T::try_from(value).map_err(|_| self.too_large(side.0, value))
    }

    #[cold]
    fn too_large(self, text: &str, value: i128) -> Error {
        let detail = format!("`{text}` is {value}, which is outside the range of a launch");
        Error::InvalidLaunch { kernel: self.0.to_owned(), detail }
    }
}

/// The reason why an expression has no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Undefined {
    /// The value needs more than 128 bits.
    Overflow,
    /// A divisor is zero.
    DivisionByZero,
    /// The buffer has fewer dimensions.
    NoDimension,
}

impl fmt::Display for Undefined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Overflow => "overflows 128 bits",
            Self::DivisionByZero => "divides by zero",
            Self::NoDimension => "names a dimension that the buffer does not have",
        })
    }
}

/// The value of an expression.
pub type Quantity = Result<i128, Undefined>;

/// An integer that an expression uses.
pub trait Integer: Copy {
    /// Converts the integer without loss.
    fn widened(self) -> i128;
}

macro_rules! integers {
    ($($ty:ty)*) => {$(
        impl Integer for $ty {
            #[inline]
            fn widened(self) -> i128 {
                self as i128
            }
        }
    )*};
}

integers!(u8 u16 u32 u64 usize i8 i16 i32 i64 isize i128);

/// Returns the value of an integer.
///
/// # Errors
/// Never fails. It returns a `Result` as all other parts of an expression do.
#[inline(always)]
pub fn int(value: impl Integer) -> Quantity {
    Ok(value.widened())
}

/// Returns the number of elements of a buffer.
///
/// # Errors
/// Never fails, as [`int`].
#[inline(always)]
pub fn len(buffer: &impl KernelBuffer) -> Quantity {
    int(buffer.elements())
}

/// Returns the size of a dimension of a buffer.
///
/// # Errors
/// [`Undefined::NoDimension`] if there is no such dimension.
#[inline(always)]
pub fn size(buffer: &impl KernelBuffer, dimension: usize) -> Quantity {
    int(buffer.size(dimension).ok_or(Undefined::NoDimension)?)
}

macro_rules! operators {
    ($($(#[$doc:meta])* pub fn $name:ident: $checked:ident;)*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        /// [`Undefined`] if an operand has no value, or the result needs more than 128 bits.
        #[inline(always)]
        pub fn $name(left: Quantity, right: Quantity) -> Quantity {
            let (left, right) = (left?, right?);
            left.$checked(right).ok_or(Undefined::Overflow)
        }
    )*};
}

operators! {
    /// Adds two values.
    pub fn add: checked_add;
    /// Subtracts the second value from the first.
    pub fn sub: checked_sub;
    /// Multiplies two values.
    pub fn mul: checked_mul;
}

/// Divides the first value by the second, and rounds toward zero.
///
/// # Errors
/// [`Undefined`] if an operand has no value, the divisor is zero, or the result needs more than 128 bits.
#[inline(always)]
pub fn div(left: Quantity, right: Quantity) -> Quantity {
    match (left?, right?) {
        (_, 0) => Err(Undefined::DivisionByZero),
        (left, right) => left.checked_div(right).ok_or(Undefined::Overflow),
    }
}

/// Returns the remainder of a division.
///
/// # Errors
/// The errors of [`div`].
#[inline(always)]
pub fn rem(left: Quantity, right: Quantity) -> Quantity {
    match (left?, right?) {
        (_, 0) => Err(Undefined::DivisionByZero),
        (left, right) => left.checked_rem(right).ok_or(Undefined::Overflow),
    }
}

/// Adds the attribute of [`LaunchConfig::cooperative`].
#[inline(always)]
pub fn cooperative(config: Option<LaunchConfig>) -> Option<LaunchConfig> {
    config.map(LaunchConfig::cooperative)
}

/// Adds the attribute of [`LaunchConfig::dependent`].
#[inline(always)]
pub fn dependent(config: Option<LaunchConfig>) -> Option<LaunchConfig> {
    config.map(LaunchConfig::dependent)
}

/// Removes the attribute of [`LaunchConfig::dependent`], for launchers that are safe and get a configuration.
#[inline(always)]
pub fn not_dependent(mut config: LaunchConfig) -> LaunchConfig {
    config.attributes = config.attributes.without_dependent();
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: Kernel = Kernel("scale");

    #[test]
    fn undefined_expression_names_kernel_and_text() {
        let error = KERNEL.value(("n / m", div(int(1u8), int(0u8)))).unwrap_err();
        assert_eq!(
            error.to_string(),
            "wrong arguments for kernel `scale`: `n / m` divides by zero"
        );
    }

    #[test]
    fn violated_condition_names_both_values() {
        let sides = (("x.len()", int(3u8)), ("y.len()", int(4u8)));
        let error = KERNEL.require("x.len() == y.len()", sides.0, sides.1, i128::eq).unwrap_err();
        assert_eq!(
            error.to_string(),
            "wrong arguments for kernel `scale`: `x.len() == y.len()` does not hold: `x.len()` is 3, `y.len()` is 4"
        );
        let error = KERNEL.require("n > 4", ("n", int(3u8)), ("4", int(4u8)), i128::gt);
        let text = error.unwrap_err().to_string();
        assert!(text.ends_with("`n > 4` does not hold: `n` is 3"), "{text}");
    }

    #[test]
    fn derived_value_must_fit_its_type() {
        assert_eq!(KERNEL.derived::<u32>("n", ("x.len()", int(7u8))), Ok(7));
        let error = KERNEL.derived::<u32>("n", ("x.len()", int(1u64 << 32))).unwrap_err();
        assert_eq!(
            error.to_string(),
            "wrong arguments for kernel `scale`: `n = x.len()` is 4294967296, which does not fit `u32`"
        );
    }
}

#[cfg(test)]
mod quantity_tests {
    use super::*;

    #[test]
    fn arithmetic_without_a_value_is_an_error() {
        assert_eq!(mul(int(u64::MAX), int(u64::MAX)), Err(Undefined::Overflow));
        assert_eq!(add(int(i128::MAX), int(1u8)), Err(Undefined::Overflow));
        assert_eq!(sub(int(i128::MIN), int(1u8)), Err(Undefined::Overflow));
        assert_eq!(div(int(1u8), int(0u8)), Err(Undefined::DivisionByZero));
        assert_eq!(rem(int(1u8), int(0u8)), Err(Undefined::DivisionByZero));
        assert_eq!(div(int(i128::MIN), int(-1i8)), Err(Undefined::Overflow));
        assert_eq!(sub(int(1u8), int(2u64)), Ok(-1));
        assert_eq!(div(int(7u8), int(2u8)), Ok(3));
    }
}

#[cfg(test)]
mod shape_tests {
    use super::*;

    const KERNEL: Kernel = Kernel("scale");

    #[test]
    fn empty_shapes_have_no_configuration() {
        let side = |n: i32| ("n", int(n));
        assert_eq!(KERNEL.elements(side(0)), Ok(None));
        assert_eq!(KERNEL.elements(side(300)), Ok(Some(LaunchConfig::new(2, 256))));
        assert_eq!(KERNEL.plane(side(5), side(0)), Ok(None));
        let (grid, block) = ([2, 3, 1].map(side), [8, 1, 1].map(side));
        let config = LaunchConfig::new(2, 8).grid(2, 3, 1).shared_bytes(16);
        assert_eq!(KERNEL.config(grid, block, side(16)), Ok(Some(config)));
        assert_eq!(KERNEL.config([2, 0, 1].map(side), block, side(16)), Ok(None));
        assert!(matches!(KERNEL.elements(side(-1)), Err(Error::InvalidLaunch { .. })));
    }
}
