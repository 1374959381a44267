//! Integer expressions about the arguments of a kernel: lengths, conditions and launch shapes.

use std::fmt;

use proc_macro2::{Ident, Literal, TokenStream};
use quote::quote;
use syn::{
    BinOp, Error, Expr, ExprLit, ExprMethodCall, Lit, Member, Result,
    parse::{Parse, ParseStream},
};

use super::argument::{Argument, Kind, Number, Passed};
use crate::text;

/// The accepted forms, for messages.
const FORMS: &str = "write integers, `name.len()` and `name.size(0)` of a buffer, integer arguments, `+ - * / %` and parentheses";

/// An integer expression: `x.len() / 2 + n`.
#[derive(Clone)]
pub(crate) enum Quantity {
    Literal(i128),
    /// The number of elements of a buffer argument.
    Len(Ident),
    /// The size of a dimension of a buffer argument.
    Size(Ident, usize),
    /// The value of an integer argument.
    Value(Ident),
    Parens(Box<Quantity>),
    Binary(Box<Quantity>, Operator, Box<Quantity>),
}

/// An operator of two integers.
#[derive(Clone, Copy)]
pub(crate) enum Operator {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
}

impl Parse for Quantity {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        Self::of(&input.parse()?)
    }
}

impl Quantity {
    /// Converts a Rust expression.
    pub(crate) fn of(expr: &Expr) -> Result<Self> {
        let wrong = || Err(Error::new_spanned(expr, format!("unsupported expression; {FORMS}")));
        Ok(match expr {
            Expr::Group(group) => Self::of(&group.expr)?,
            Expr::Paren(paren) => Self::Parens(Box::new(Self::of(&paren.expr)?)),
            Expr::Lit(literal) => match &literal.lit {
                // A suffix such as `5f32` makes it another kind of number.
                Lit::Int(int) if !int.suffix().starts_with('f') => {
                    Self::Literal(int.base10_parse()?)
                }
                _ => return wrong(),
            },
            Expr::Path(path) => match path.path.get_ident() {
                Some(name) => Self::Value(name.clone()),
                None => return wrong(),
            },
            Expr::MethodCall(call) => match Self::of_call(call)? {
                Some(quantity) => quantity,
                None => return wrong(),
            },
            Expr::Field(field) if matches!(&field.member, Member::Named(name) if name == "len") => {
                return Err(Error::new_spanned(expr, "write `.len()`, with parentheses"));
            }
            Expr::Binary(binary) => {
                let operator = match binary.op {
                    BinOp::Add(_) => Operator::Add,
                    BinOp::Sub(_) => Operator::Sub,
                    BinOp::Mul(_) => Operator::Mul,
                    BinOp::Div(_) => Operator::Div,
                    BinOp::Rem(_) => Operator::Rem,
                    _ => return wrong(),
                };
                let (left, right) = (Self::of(&binary.left)?, Self::of(&binary.right)?);
                Self::Binary(Box::new(left), operator, Box::new(right))
            }
            _ => return wrong(),
        })
    }

    /// Converts `name.len()` or `name.size(dimension)`. `None` for other calls.
    fn of_call(call: &ExprMethodCall) -> Result<Option<Self>> {
        let Expr::Path(receiver) = &*call.receiver else { return Ok(None) };
        let Some(name) = receiver.path.get_ident().cloned() else { return Ok(None) };
        let arguments: Vec<_> = call.args.iter().collect();
        Ok(match (call.method.to_string().as_str(), arguments.as_slice()) {
            ("len", []) => Some(Self::Len(name)),
            ("size", [Expr::Lit(ExprLit { lit: Lit::Int(dimension), .. })]) => {
                Some(Self::Size(name, dimension.base10_parse()?))
            }
            _ => None,
        })
    }

    /// Returns an error for each name that the expression cannot use. `known` are the arguments that have a value when
    /// the expression is computed, `all` are those of the kernel.
    pub(crate) fn check(&self, known: &[&Argument], all: &[Argument]) -> Vec<Error> {
        match self {
            Self::Literal(_) => Vec::new(),
            Self::Parens(inner) => inner.check(known, all),
            Self::Binary(left, _, right) => {
                let mut errors = left.check(known, all);
                errors.extend(right.check(known, all));
                errors
            }
            Self::Len(name) | Self::Size(name, _) | Self::Value(name) => {
                self.misused(name, known, all).into_iter().collect()
            }
        }
    }

    /// Returns an error if the name is not one that this form of expression can use.
    fn misused(&self, name: &Ident, known: &[&Argument], all: &[Argument]) -> Option<Error> {
        let wrong = |why: String| Some(Error::new(name.span(), why));
        let Some(argument) = all.iter().find(|argument| argument.name == *name) else {
            let names: Vec<_> = all.iter().map(|argument| format!("`{}`", argument.name)).collect();
            let list = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            return wrong(format!("no argument has the name `{name}`; the kernel has {list}"));
        };
        let buffer = argument.is_buffer();
        match (self, &argument.passed) {
            (Self::Len(_), _) if !buffer => {
                return wrong(format!("`{name}` is not a buffer, so it has no length"));
            }
            (Self::Size(..), _) if !buffer => {
                return wrong(format!("`{name}` is not a buffer, so it has no dimensions"));
            }
            (Self::Value(_), _) if buffer => {
                return wrong(format!("`{name}` is a buffer; write `{name}.len()`"));
            }
            (Self::Value(_), passed) if !is_integer(passed) => {
                let ty = &argument.ty;
                let ty = text::of_type(ty);
                return wrong(format!("`{name}` is not an integer, its type is `{ty}`"));
            }
            _ => {}
        }
        if known.iter().any(|argument| argument.name == *name) {
            return None;
        }
        wrong(format!("`{name}` is computed later; move its declaration before this one"))
    }

    /// Generates the code that computes the value, of type `kernel::checks::Quantity`.
    pub(crate) fn tokens(&self) -> TokenStream {
        match self {
            Self::Literal(value) => {
                let literal = Literal::i128_suffixed(*value);
                quote!(::cuda_async::kernel::checks::int(#literal))
            }
            Self::Len(name) => quote!(::cuda_async::kernel::checks::len(&#name)),
            Self::Size(name, dimension) => {
                quote!(::cuda_async::kernel::checks::size(&#name, #dimension))
            }
            Self::Value(name) => quote!(::cuda_async::kernel::checks::int(#name)),
            Self::Parens(inner) => inner.tokens(),
            Self::Binary(left, operator, right) => {
                let (left, right) = (left.tokens(), right.tokens());
                let function = operator.function();
                quote!(::cuda_async::kernel::checks::#function(#left, #right))
            }
        }
    }

    /// Generates a `kernel::checks::Side`: the text and the value.
    pub(crate) fn side(&self) -> TokenStream {
        let (text, value) = (self.to_string(), self.tokens());
        quote!((#text, #value))
    }
}

/// Whether an argument is an integer by value.
pub(crate) fn is_integer(passed: &Passed) -> bool {
    matches!(passed, Passed::Number(Number { kind: Kind::Integer, .. }))
}

impl Operator {
    fn function(self) -> Ident {
        let name = match self {
            Self::Add => "add",
            Self::Sub => "sub",
            Self::Mul => "mul",
            Self::Div => "div",
            Self::Rem => "rem",
        };
        Ident::new(name, proc_macro2::Span::call_site())
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Literal(value) => write!(f, "{value}"),
            Self::Len(name) => write!(f, "{name}.len()"),
            Self::Size(name, dimension) => write!(f, "{name}.size({dimension})"),
            Self::Value(name) => write!(f, "{name}"),
            Self::Parens(inner) => write!(f, "({inner})"),
            Self::Binary(left, operator, right) => {
                let sign = match operator {
                    Operator::Add => '+',
                    Operator::Sub => '-',
                    Operator::Mul => '*',
                    Operator::Div => '/',
                    Operator::Rem => '%',
                };
                write!(f, "{left} {sign} {right}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_values_are_refused() {
        let arguments = ["x: &[f32]", "n: u32"].map(|text| syn::parse_str(text).unwrap());
        let quantity: Quantity = syn::parse_str("n").unwrap();
        let errors = quantity.check(&[&arguments[0]], &arguments);
        assert_eq!(
            errors[0].to_string(),
            "`n` is computed later; move its declaration before this one"
        );
    }
}
