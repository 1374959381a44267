//! Variables of the module: `static TAPS: [f32; 5];` and `static mut COUNTER: u32;`.

use proc_macro2::Ident;
use syn::{
    Attribute, Error, LitStr, Result, Token, Type, Visibility,
    ext::IdentExt,
    parse::{Parse, ParseStream},
};

use super::attributes::take;

/// A variable declaration: `static TAPS: [f32; 5];` for `__constant__`, `static mut ..` for `__device__`.
pub(crate) struct Variable {
    /// All attributes except `symbol`.
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) mutable: Option<Token![mut]>,
    pub(crate) name: Ident,
    /// The value of `#[symbol = ".."]`, if given.
    pub(crate) symbol: Option<LitStr>,
    pub(crate) ty: Type,
    /// The element type of an array; otherwise the type itself.
    pub(crate) element: Type,
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
    pub(crate) fn symbol(&self) -> String {
        self.symbol.as_ref().map_or_else(|| self.name.unraw().to_string(), LitStr::value)
    }

    /// The name of the method.
    pub(crate) fn method(&self) -> Ident {
        let name = self.name.to_string().to_lowercase();
        syn::parse_str(&name).map_or_else(
            |_| self.name.clone(),
            |mut method: Ident| {
                method.set_span(self.name.span());
                method
            },
        )
    }
}
