//! The attributes of a launch beyond its shape: `#[cooperative]`, `#[cluster(x, y, z)]` and `#[dependent]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Attribute, Error, Result, Token, punctuated::Punctuated};

use super::{argument::Argument, quantity::Quantity};

/// The attributes of a kernel's launches.
#[derive(Default)]
pub(crate) struct LaunchAttributes {
    cooperative: bool,
    pub(crate) dependent: bool,
    cluster: Option<[Quantity; 3]>,
}

impl LaunchAttributes {
    /// Removes the attributes from `attrs`.
    ///
    /// # Errors
    /// If one is malformed or given twice.
    pub(crate) fn take(attrs: &mut Vec<Attribute>) -> Result<Self> {
        let mut all = Self::default();
        let names = ["cooperative", "dependent", "cluster"];
        let ours = |attr: &mut Attribute| names.iter().any(|name| attr.path().is_ident(name));
        for attr in attrs.extract_if(.., ours) {
            let twice = if attr.path().is_ident("cluster") {
                all.cluster.replace(cluster(&attr)?).is_some()
            } else {
                attr.meta.require_path_only()?;
                let flag = match attr.path().is_ident("cooperative") {
                    true => &mut all.cooperative,
                    false => &mut all.dependent,
                };
                std::mem::replace(flag, true)
            };
            if twice {
                let why = "this attribute is given twice; remove one";
                return Err(Error::new_spanned(attr, why));
            }
        }
        Ok(all)
    }

    /// Whether there is no attribute.
    pub(crate) fn is_empty(&self) -> bool {
        !self.cooperative && !self.dependent && self.cluster.is_none()
    }

    /// Returns an error for each name that an attribute cannot use.
    pub(crate) fn check(&self, all: &[Argument]) -> Vec<Error> {
        let known: Vec<_> = all.iter().collect();
        self.cluster.iter().flatten().flat_map(|quantity| quantity.check(&known, all)).collect()
    }

    /// Generates the statements that add the attributes to `config`, which is an `Option<LaunchConfig>`. `rounds` is
    /// whether the grid grows to a multiple of the cluster. `kernel` is an expression of type `kernel::checks::Kernel`.
    pub(crate) fn tokens(
        &self,
        config: &proc_macro2::Ident,
        kernel: &TokenStream,
        rounds: bool,
    ) -> TokenStream {
        let cooperative = self
            .cooperative
            .then(|| quote!(let #config = ::cuda_async::kernel::checks::cooperative(#config);));
        let cluster = self.cluster.as_ref().map(|sides| {
            let sides = sides.iter().map(Quantity::side);
            quote!(let #config = #kernel.cluster(#config, [#(#sides),*], #rounds)?;)
        });
        quote!(#cooperative #cluster)
    }
}

/// Parses `#[cluster(x, y, z)]`. Omitted dimensions are 1.
fn cluster(attr: &Attribute) -> Result<[Quantity; 3]> {
    let list = Punctuated::<Quantity, Token![,]>::parse_terminated;
    let mut sides: Vec<_> = attr.parse_args_with(list)?.into_iter().collect();
    let wrong =
        || Error::new_spanned(attr, "expected `#[cluster(x, y, z)]`; `y` and `z` may be omitted");
    if sides.is_empty() {
        return Err(wrong());
    }
    while sides.len() < 3 {
        sides.push(Quantity::Literal(1));
    }
    sides.try_into().map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(text: &str) -> Result<LaunchAttributes> {
        let mut attrs = vec![syn::parse_quote!(#[doc = "kept"])];
        let parsed: syn::DeriveInput = syn::parse_str(&format!("{text} struct S;")).unwrap();
        attrs.extend(parsed.attrs);
        let taken = LaunchAttributes::take(&mut attrs);
        assert_eq!(attrs.len(), 1);
        taken
    }

    #[test]
    fn attributes_are_parsed() {
        let all = taken("#[cooperative] #[cluster(2, n)] #[dependent]").unwrap();
        assert!(all.cooperative && all.dependent);
        assert_eq!(all.cluster.unwrap().map(|size| size.to_string()), ["2", "n", "1"]);
        assert!(taken("").unwrap().is_empty());
    }

    #[test]
    fn malformed_attributes_are_refused() {
        for (text, message) in [
            ("#[cluster()]", "expected `#[cluster(x, y, z)]`"),
            ("#[cluster(1, 1, 1, 1)]", "expected `#[cluster(x, y, z)]`"),
            ("#[cooperative] #[cooperative]", "given twice"),
            ("#[cluster(2)] #[cluster(2)]", "given twice"),
            ("#[dependent(1)]", "unexpected token"),
        ] {
            let error = taken(text).err().unwrap().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
