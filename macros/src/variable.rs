//! Variables of the module: `static TAPS: [f32; 5];` and `static mut COUNTER: u32;`.

use std::collections::HashSet;

use cuda_ptx::{Space, VariableSignature};
use proc_macro2::{Ident, TokenStream};
use quote::{quote, quote_spanned};
use syn::{
    Attribute, Error, LitStr, Result, Token, Type, Visibility,
    ext::IdentExt,
    parse::{Parse, ParseStream},
    spanned::Spanned,
};

use crate::{
    argument::Passed,
    attributes::{conditions, take},
    check::{RESERVED, listed_names},
    declaration::Declaration,
    entries::text,
    fit::scalar_mismatch,
    problem::Problem,
};

/// The field that holds the module. No kernel may have this name.
pub(crate) const FIELD: &str = "module_of_variables";

/// A variable declaration: `static TAPS: [f32; 5];` for `__constant__`, `static mut ..` for `__device__`.
pub(crate) struct Variable {
    /// All attributes except `symbol`.
    pub(crate) attrs: Vec<Attribute>,
    vis: Visibility,
    mutable: Option<Token![mut]>,
    pub(crate) name: Ident,
    /// The value of `#[symbol = ".."]`, if given.
    symbol: Option<LitStr>,
    ty: Type,
    /// The element type of an array; otherwise the type itself.
    element: Type,
}

/// A variable, and its signature in the PTX if it was found.
pub(crate) struct FoundVariable<'a> {
    pub(crate) variable: &'a Variable,
    signature: Option<&'a VariableSignature>,
}

impl Variable {
    /// Parses what follows the attributes and the visibility.
    pub(crate) fn parse(
        mut attrs: Vec<Attribute>,
        vis: Visibility,
        input: ParseStream<'_>,
    ) -> Result<Self> {
        let symbol = take(&mut attrs, "symbol")?;
        input.parse::<Token![static]>()?;
        let mutable = input.parse()?;
        let name = input.call(Ident::parse)?;
        input.parse::<Token![:]>()?;
        let ty: Type = input.parse()?;
        if input.peek(Token![=]) {
            return Err(input.error("the PTX has the initial value; write `;` after the type"));
        }
        input.parse::<Token![;]>()?;
        let element = match &ty {
            Type::Array(array) => (*array.elem).clone(),
            Type::Slice(_) | Type::Reference(_) | Type::Ptr(_) => {
                let why = "a variable is a number, an array `[T; N]` or a struct of numbers";
                return Err(Error::new_spanned(ty, why));
            }
            _ => ty.clone(),
        };
        Ok(Self { attrs, vis, mutable, name, symbol, ty, element })
    }

    /// The name in the PTX.
    fn symbol(&self) -> String {
        self.symbol.as_ref().map_or_else(|| self.name.unraw().to_string(), LitStr::value)
    }

    /// The name of the method.
    fn method(&self) -> Ident {
        let name = self.name.to_string().to_lowercase();
        syn::parse_str(&name).map_or_else(
            |_| self.name.clone(),
            |mut method: Ident| {
                method.set_span(self.name.span());
                method
            },
        )
    }

    /// Returns the reason why the declaration does not match the variable in the PTX.
    fn mismatch(&self, signature: &VariableSignature) -> Option<Error> {
        let (name, constant) = (&signature.name, signature.space == Space::Const);
        match (&self.mutable, constant) {
            (Some(token), true) => {
                let why = format!(
                    "variable `{name}` is `.const` in the PTX; write `static` without `mut`"
                );
                return Some(Error::new_spanned(token, why));
            }
            (None, false) => {
                let why = format!(
                    "variable `{name}` is `.global` in the PTX, so kernels may write it; write `static mut`"
                );
                return Some(Error::new_spanned(&self.name, why));
            }
            _ => {}
        }
        let why = match Passed::of(&self.element) {
            Ok(Passed::Number(number)) => scalar_mismatch(number, signature.ty)?,
            Ok(Passed::Bool) => "is `bool`, which not every byte is; write `u8`".to_owned(),
            Ok(_) => return None,
            Err(error) => return Some(error),
        };
        let ty = format!("{:?}", signature.ty).to_lowercase();
        let element = text(&self.element);
        let why =
            format!("variable `{name}` is `.{ty}` in the PTX, but the element `{element}` {why}");
        Some(Error::new_spanned(&self.element, why))
    }
}

/// Compares the declared variables with those of the PTX. Without `signatures`, makes only the checks that need no PTX.
pub(crate) fn check<'a>(
    declaration: &'a Declaration,
    signatures: Option<&'a [VariableSignature]>,
    problems: &mut Vec<Problem<'a>>,
) -> Vec<FoundVariable<'a>> {
    let kernels = declaration.kernels.iter().map(|kernel| kernel.name.unraw().to_string());
    let mut names: HashSet<_> = kernels.collect();
    let mut checked = Vec::new();
    for variable in &declaration.variables {
        let mut report = |error| problems.push(Problem::of(&variable.attrs, error));
        let method = variable.method().unraw().to_string();
        let reserved = RESERVED.contains(&method.as_str());
        if reserved || conditions(&variable.attrs).next().is_none() && !names.insert(method.clone())
        {
            let why = format!(
                "`{method}` is also another item of the struct; choose another name and write `#[symbol = \"{}\"]` before it",
                variable.symbol()
            );
            report(Error::new(variable.name.span(), why));
            continue;
        }
        let symbol = variable.symbol();
        let signature = signatures.and_then(|list| list.iter().find(|it| it.name == symbol));
        match (signatures, signature) {
            (_, Some(signature)) => variable.mismatch(signature).into_iter().for_each(&mut report),
            (Some(list), None) => {
                let why = format!(
                    "`{}` has no variable `{symbol}`; it has {}. If the variable has another name in the PTX, write \
                     `#[symbol = \"name\"]`; compilers remove unused variables",
                    declaration.ptx.value(),
                    listed_names(list.iter().map(|it| it.name.as_str())),
                );
                let span = variable.symbol.as_ref().map_or(variable.name.span(), LitStr::span);
                report(Error::new(span, why));
            }
            (None, None) => {}
        }
        checked.push(FoundVariable { variable, signature });
    }
    checked
}

impl FoundVariable<'_> {
    /// Generates the method that returns the variable, with assertions of its size and alignment.
    pub(crate) fn method(&self) -> TokenStream {
        let Variable { attrs, vis, mutable, ty, element, name, .. } = self.variable;
        let (method, symbol) = (self.variable.method(), self.variable.symbol());
        let vis = match vis {
            Visibility::Inherited => quote!(pub),
            vis => quote!(#vis),
        };
        let doc = format!(
            "\n\n Returns the variable `{symbol}` of the module, which kernels {}. Every call returns the same memory.\n\n \
             # Errors\n The errors of [`Module::variable`](::cuda_async::Module::variable).",
            if mutable.is_some() { "may write" } else { "read" },
        );
        let asserts = self.signature.map(|signature| {
            let (bytes, align) = (signature.bytes as usize, signature.align as usize);
            let size = format!(
                "variable `{name}`: `{}` must have {bytes} bytes, the size in the PTX",
                text(ty)
            );
            let aligned = format!(
                "variable `{name}`: `{}` needs a larger alignment than the {align} bytes of the PTX",
                text(element)
            );
            quote_spanned! {ty.span()=>
                const _: () = ::core::assert!(::core::mem::size_of::<#ty>() == #bytes, #size);
                const _: () = ::core::assert!(::core::mem::align_of::<#element>() <= #align, #aligned);
            }
        });
        let field = Ident::new(FIELD, proc_macro2::Span::call_site());
        quote! {
            #(#attrs)*
            #[doc = #doc]
            #vis fn #method(&self) -> ::cuda_async::Result<::cuda_async::DeviceBuffer<#element>> {
                #asserts
                ::cuda_async::Module::variable(&self.#field, #symbol)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = ".version 8.0\n.target sm_80\n.address_size 64
        .const .align 4 .b8 taps[20]; .global .u32 limited; .global .f32 sums[4];
        .visible .entry k() { ret; }";

    fn messages(items: &str) -> Vec<String> {
        let module = cuda_ptx::module_signature(PTX).unwrap();
        let text = format!("#[ptx = \"k.ptx\"] struct K; unsafe fn k(); {items}");
        let declaration: Declaration = syn::parse_str(&text).unwrap();
        let mut problems = Vec::new();
        check(&declaration, Some(&module.variables), &mut problems);
        problems.iter().map(|problem| problem.error.to_string()).collect()
    }

    #[test]
    fn matching_variables_have_no_problems() {
        let items = "static taps: [f32; 5]; #[symbol = \"limited\"] static mut COUNTER: i32; \
                     pub(crate) static mut sums: [f32; 4];";
        assert_eq!(messages(items), [""; 0]);
    }

    #[test]
    fn mismatches_are_reported() {
        for (item, message) in [
            (
                "static mut taps: [f32; 5];",
                "variable `taps` is `.const` in the PTX; write `static` without `mut`",
            ),
            (
                "static limited: u32;",
                "variable `limited` is `.global` in the PTX, so kernels may write it; write `static mut`",
            ),
            (
                "static mut limited: f32;",
                "variable `limited` is `.u32` in the PTX, but the element `f32` is a float",
            ),
            (
                "static mut sums: [u8; 16];",
                "variable `sums` is `.f32` in the PTX, but the element `u8` has 1 byte",
            ),
            (
                "static mut k: u32;",
                "`k` is also another item of the struct; choose another name and write `#[symbol = \"k\"]` before it",
            ),
            (
                "static mut LOAD: u32;",
                "`load` is also another item of the struct; choose another name and write `#[symbol = \"LOAD\"]` before it",
            ),
            (
                "static mut sum: u32;",
                "`k.ptx` has no variable `sum`; it has `taps`, `limited`, `sums`. If the variable has another \
              name in the PTX, write `#[symbol = \"name\"]`; compilers remove unused variables",
            ),
        ] {
            assert_eq!(messages(item), [message]);
        }
    }

    #[test]
    fn malformed_variables_are_refused() {
        for item in ["static taps: &[f32];", "static taps: u32 = 1;", "static taps;"] {
            let text = format!("#[ptx = \"k.ptx\"] struct K; {item}");
            assert!(syn::parse_str::<Declaration>(&text).is_err(), "{item}");
        }
    }
}
