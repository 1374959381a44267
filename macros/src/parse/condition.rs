//! Conditions of a launch: `where x.len() == y.len()`.

use std::fmt;

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;
use syn::{BinOp, Error, Expr, Result};

use super::{argument::Argument, quantity::Quantity};

/// A condition of a launch.
#[derive(Clone)]
pub(crate) enum Condition {
    /// `x.len() == y.len()`
    Compare { left: Quantity, comparison: Comparison, right: Quantity },
    /// `n == 0 || n > 2 && n < 8`: the conditions of one alternative hold.
    Any(Vec<Vec<Condition>>),
}

#[derive(Clone, Copy)]
pub(crate) struct Comparison {
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
            BinOp::Or(_) => {
                let mut alternatives = Self::alternatives(&binary.left)?;
                alternatives.extend(Self::alternatives(&binary.right)?);
                conditions.push(Self::Any(alternatives));
                return Ok(());
            }
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
        conditions.push(Self::Compare { left, comparison, right });
        Ok(())
    }

    /// The alternatives of one side of `||`.
    fn alternatives(expr: &Expr) -> Result<Vec<Vec<Self>>> {
        let mut conditions = Vec::new();
        Self::of(expr, &mut conditions)?;
        match conditions.as_mut_slice() {
            [Self::Any(alternatives)] => Ok(std::mem::take(alternatives)),
            _ => Ok(vec![conditions]),
        }
    }

    /// Returns an error for each name that a condition cannot use.
    pub(crate) fn check(&self, all: &[Argument]) -> Vec<Error> {
        let known: Vec<_> = all.iter().collect();
        match self {
            Self::Compare { left, right, .. } => {
                let mut errors = left.check(&known, all);
                errors.extend(right.check(&known, all));
                errors
            }
            Self::Any(alternatives) => {
                alternatives.iter().flatten().flat_map(|condition| condition.check(all)).collect()
            }
        }
    }

    /// Generates the statement that checks the condition. `kernel` is an expression of type `kernel::checks::Kernel`.
    pub(crate) fn tokens(&self, kernel: &TokenStream) -> TokenStream {
        let text = self.to_string();
        match self {
            Self::Compare { left, comparison, right } => {
                let (left, right, holds) = (left.side(), right.side(), comparison.tokens());
                quote!(#kernel.require(#text, #left, #right, #holds)?;)
            }
            Self::Any(_) => {
                let (holds, mut sides) = (self.holds(kernel), Vec::new());
                self.sides(&mut sides);
                quote!(#kernel.require_any(#text, #holds, || [#(#sides),*])?;)
            }
        }
    }

    /// Generates an expression of type `bool`. As in Rust, it computes the right side of `||` and `&&` only if
    /// necessary.
    fn holds(&self, kernel: &TokenStream) -> TokenStream {
        match self {
            Self::Compare { left, comparison, right } => {
                let (left, right, holds) = (left.side(), right.side(), comparison.tokens());
                quote!(#kernel.holds(#left, #right, #holds)?)
            }
            Self::Any(alternatives) => {
                let alternatives = alternatives.iter().map(|all| {
                    let all = all.iter().map(|condition| condition.holds(kernel));
                    quote!((#(#all)&&*))
                });
                quote!((#(#alternatives)||*))
            }
        }
    }

    /// Collects the sides of all comparisons.
    fn sides(&self, sides: &mut Vec<TokenStream>) {
        match self {
            Self::Compare { left, right, .. } => sides.extend([left.side(), right.side()]),
            Self::Any(alternatives) => {
                alternatives.iter().flatten().for_each(|condition| condition.sides(sides));
            }
        }
    }
}

impl Comparison {
    /// Generates the path of the function that compares.
    fn tokens(self) -> TokenStream {
        let name = self.method;
        let method = Ident::new(name, Span::call_site());
        let of = if matches!(name, "eq" | "ne") { quote!(PartialEq) } else { quote!(PartialOrd) };
        quote!(::core::cmp::#of::#method)
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let alternatives = match self {
            Self::Compare { left, comparison, right } => {
                return write!(f, "{left} {} {right}", comparison.sign);
            }
            Self::Any(alternatives) => alternatives,
        };
        let shown = |condition: &Self| match condition {
            Self::Compare { .. } => condition.to_string(),
            Self::Any(_) => format!("({condition})"),
        };
        let all = |all: &Vec<Self>| all.iter().map(shown).collect::<Vec<_>>().join(" && ");
        f.write_str(&alternatives.iter().map(all).collect::<Vec<_>>().join(" || "))
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
        for text in [
            "x.len() == y.len()",
            "n * (x.len() + 1) / 2 <= 7 - y.len() % 3",
            "n == 0 || n == 1 || x.len() / n > 2 && y.len() == n",
            "n == 0 || n < 4 && (x.len() == 1 || y.len() == 1)",
        ] {
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
            ("n == 1 || m == 2", "no argument has the name `m`; the kernel has `x`, `y`, `a`, `n`"),
            ("n == 1 || n", "a condition compares two integers, as in `x.len() == y.len()`"),
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
