//! Conditions of a launch: `where x.len() == y.len()`.

use std::fmt;

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;
use syn::{BinOp, Error, Expr, Result};

use crate::{argument::Argument, quantity::Quantity};

/// A condition of a launch: `x.len() == y.len()`.
#[derive(Clone)]
pub(crate) struct Condition {
    left: Quantity,
    comparison: Comparison,
    right: Quantity,
}

#[derive(Clone, Copy)]
struct Comparison {
    sign: &'static str,
    /// The method of `i128` that compares.
    method: &'static str,
}

impl Condition {
    /// Converts a Rust expression. `a && b` is two conditions.
    pub(crate) fn of(expr: &Expr, conditions: &mut Vec<Self>) -> Result<()> {
        let wrong = |why: &str| Err(Error::new_spanned(expr, why));
        let binary = match expr {
            Expr::Group(group) => return Self::of(&group.expr, conditions),
            Expr::Paren(paren) => return Self::of(&paren.expr, conditions),
            Expr::Binary(binary) => binary,
            _ => return wrong("a condition compares two integers, as in `x.len() == y.len()`"),
        };
        let (sign, method) = match binary.op {
            BinOp::And(_) => {
                Self::of(&binary.left, conditions)?;
                return Self::of(&binary.right, conditions);
            }
            BinOp::Or(_) => return wrong("`||` is not supported; every condition must hold"),
            BinOp::Eq(_) => ("==", "eq"),
            BinOp::Ne(_) => ("!=", "ne"),
            BinOp::Lt(_) => ("<", "lt"),
            BinOp::Le(_) => ("<=", "le"),
            BinOp::Gt(_) => (">", "gt"),
            BinOp::Ge(_) => (">=", "ge"),
            _ => return wrong("a condition compares two integers, as in `x.len() == y.len()`"),
        };
        let comparison = Comparison { sign, method };
        let (left, right) = (Quantity::of(&binary.left)?, Quantity::of(&binary.right)?);
        conditions.push(Self { left, comparison, right });
        Ok(())
    }

    /// Returns an error for each name that a condition cannot use.
    pub(crate) fn check(&self, all: &[Argument]) -> Vec<Error> {
        let known: Vec<_> = all.iter().collect();
        let mut errors = self.left.check(&known, all);
        errors.extend(self.right.check(&known, all));
        errors
    }

    /// Generates the statement that checks the condition. `kernel` is an expression of type `kernel::checks::Kernel`.
    pub(crate) fn tokens(&self, kernel: &TokenStream) -> TokenStream {
        let (text, left, right) = (self.to_string(), self.left.side(), self.right.side());
        let name = self.comparison.method;
        let method = Ident::new(name, Span::call_site());
        let of = if matches!(name, "eq" | "ne") { quote!(PartialEq) } else { quote!(PartialOrd) };
        quote!(#kernel.require(#text, #left, #right, ::core::cmp::#of::#method)?;)
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.left, self.comparison.sign, self.right)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments() -> Vec<Argument> {
        ["x: &[f32]", "y: &mut [f32]", "a: f32", "n: u32"]
            .map(|text| syn::parse_str(text).unwrap())
            .into()
    }

    fn errors(condition: &str) -> Vec<String> {
        let mut conditions = Vec::new();
        if let Err(error) = Condition::of(&syn::parse_str(condition).unwrap(), &mut conditions) {
            return vec![error.to_string()];
        }
        let arguments = arguments();
        let errors = conditions.iter().flat_map(|condition| condition.check(&arguments));
        errors.map(|error| error.to_string()).collect()
    }

    #[test]
    fn conditions_display_as_written() {
        for text in ["x.len() == y.len()", "n * (x.len() + 1) / 2 <= 7 - y.len() % 3"] {
            let mut conditions = Vec::new();
            Condition::of(&syn::parse_str(text).unwrap(), &mut conditions).unwrap();
            assert_eq!(conditions[0].to_string(), text);
        }
    }

    #[test]
    fn conjunction_is_several_conditions() {
        let mut conditions = Vec::new();
        let text = "n > 0 && (n < 8 && x.len() != 0)";
        Condition::of(&syn::parse_str(text).unwrap(), &mut conditions).unwrap();
        let texts: Vec<_> = conditions.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["n > 0", "n < 8", "x.len() != 0"]);
    }

    #[test]
    fn names_and_types_are_checked() {
        for (condition, message) in [
            ("m == 1", "no argument has the name `m`; the kernel has `x`, `y`, `a`, `n`"),
            ("n.len() == 1", "`n` is not a buffer, so it has no length"),
            ("x == 1", "`x` is a buffer; write `x.len()`"),
            ("a == 1", "`a` is not an integer, its type is `f32`"),
            ("n", "a condition compares two integers, as in `x.len() == y.len()`"),
            ("n == 1 || n == 2", "`||` is not supported; every condition must hold"),
            ("x.len == 1", "write `.len()`, with parentheses"),
        ] {
            assert_eq!(errors(condition), [message], "{condition}");
        }
        for condition in ["f(n) == 1", "n == 1.5", "n == -1", "n == 1f32", "x.size() == n"] {
            let errors = errors(condition);
            assert!(errors[0].starts_with("unsupported expression"), "{condition}: {errors:?}");
        }
        assert!(errors("n <= x.len() * 2").is_empty());
    }
}
