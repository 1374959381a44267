//! The values, conditions and derived parameters of a launch.

use cuda_core::{Error, Result};

use super::quantity::{Quantity, Undefined};

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
}

#[cfg(test)]
mod tests {
    use super::{
        super::quantity::{div, int},
        *,
    };

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
