//! The input of `kernels!`: a struct, its kernels and its variables.

use syn::{
    Attribute, Error, Expr, Ident, LitStr, Result, Token, Type, Visibility,
    ext::IdentExt,
    parenthesized,
    parse::{Parse, ParseStream},
    punctuated::Punctuated,
};

use super::{
    argument::Argument,
    attributes::take,
    condition::Condition,
    entries::{Entries, EntryAttribute, Instance, TypeParameter},
    files::{CodePath, ImagePath},
    launch::{Geometry, LaunchAttributes},
};

mod keyword {
    syn::custom_keyword!(safe);
}

/// The parsed input: `#[ptx = "..."]` or `#[cuda = "..."]`, `pub struct Name;` and the kernels and variables after it.
pub(crate) struct Declaration {
    /// All attributes except those of the code.
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    /// The `unsafe` of `unsafe struct`: the author promises the safety of every `safe fn`.
    pub(crate) unsafe_token: Option<Token![unsafe]>,
    pub(crate) name: Ident,
    /// The file of the kernels.
    pub(crate) code: CodePath,
    /// Machine code of the same kernels.
    pub(crate) images: Vec<ImagePath>,
    pub(crate) kernels: Vec<Kernel>,
    pub(crate) variables: Vec<Variable>,
}

/// A kernel declaration: `unsafe fn name(argument, ..) where condition, ..;`
pub(crate) struct Kernel {
    /// All attributes except `entry` and those of the launch.
    pub(crate) attrs: Vec<Attribute>,
    /// The visibility as written. An omitted visibility means `pub`.
    pub(crate) vis: Visibility,
    pub(crate) safety: Safety,
    pub(crate) name: Ident,
    pub(crate) entries: Entries,
    pub(crate) arguments: Vec<Argument>,
    /// The conditions that the launcher checks.
    pub(crate) conditions: Vec<Condition>,
    pub(crate) geometry: Geometry,
    pub(crate) launch: LaunchAttributes,
}

/// The side that promises the safety of a launch.
pub(crate) enum Safety {
    /// The caller of the launcher.
    Unsafe(Token![unsafe]),
    /// The author of the declaration.
    Safe(keyword::safe),
}

impl Kernel {
    /// The kernel with each of its entries.
    pub(crate) fn instances(&self) -> Vec<Instance> {
        self.entries.instances(&self.name, &self.arguments)
    }

    /// Whether the launcher computes something from its arguments before the launch.
    pub(crate) fn has_checks(&self) -> bool {
        !self.conditions.is_empty()
            || !matches!(self.geometry, Geometry::Caller)
            || !self.launch.is_empty()
            || self.arguments.iter().any(|argument| argument.derived.is_some())
    }

    /// Parses the tokens behind the attributes and the visibility.
    fn after_visibility(
        mut attrs: Vec<Attribute>,
        vis: Visibility,
        input: ParseStream<'_>,
    ) -> Result<Self> {
        let entry = EntryAttribute::take(&mut attrs)?;
        let geometry = Geometry::take(&mut attrs)?;
        let launch = LaunchAttributes::take(&mut attrs)?;
        let safety = input.parse()?;
        input.parse::<Token![fn]>()?;
        let name: Ident = input.parse()?;
        let entries = Entries::new(&name, entry, TypeParameter::parse(input)?)?;
        let inside;
        let list = parenthesized!(inside in input);
        let arguments = Punctuated::<Argument, Token![,]>::parse_terminated(&inside)?;
        if input.peek(Token![->]) {
            return Err(input.error("a kernel cannot return a value; declare an output `&mut [T]`"));
        }
        let conditions = conditions(input)?;
        if input.is_empty() {
            // The error of `parse` would underline the whole macro.
            return Err(Error::new(list.span.close(), "expected `;` after the kernel"));
        }
        input.parse::<Token![;]>()?;
        let arguments: Vec<_> = arguments.into_iter().collect();
        entries.check(&arguments)?;
        Ok(Self { attrs, vis, safety, name, entries, arguments, conditions, geometry, launch })
    }
}

impl Parse for Declaration {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut attrs = input.call(Attribute::parse_outer)?;
        let vis = input.parse()?;
        let unsafe_token = input.parse()?;
        input.parse::<Token![struct]>()?;
        let name: Ident = input.parse()?;
        let code = CodePath::take(&mut attrs, &name)?;
        let images = ImagePath::take(&mut attrs)?;
        input.parse::<Token![;]>()?;
        let (mut kernels, mut variables) = (Vec::new(), Vec::new());
        while !input.is_empty() {
            let attrs = input.call(Attribute::parse_outer)?;
            let vis = input.parse()?;
            if input.peek(Token![static]) {
                variables.push(Variable::parse(attrs, vis, input)?);
            } else {
                kernels.push(Kernel::after_visibility(attrs, vis, input)?);
            }
        }
        Ok(Self { attrs, vis, unsafe_token, name, code, images, kernels, variables })
    }
}

impl Parse for Kernel {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let attrs = input.call(Attribute::parse_outer)?;
        let vis = input.parse()?;
        Self::after_visibility(attrs, vis, input)
    }
}

/// Parses `where condition, ..`, which may be absent.
fn conditions(input: ParseStream<'_>) -> Result<Vec<Condition>> {
    let mut conditions = Vec::new();
    if input.peek(Token![where]) {
        input.parse::<Token![where]>()?;
        while !input.peek(Token![;]) {
            let condition = input.parse::<Expr>()?;
            Condition::of(&condition, &mut conditions)?;
            if input.is_empty() {
                return Err(Error::new_spanned(condition, "expected `;` after the last condition"));
            }
            let next = input.lookahead1();
            if next.peek(Token![,]) {
                input.parse::<Token![,]>()?;
            } else if !next.peek(Token![;]) {
                return Err(next.error());
            }
        }
    }
    Ok(conditions)
}

impl Parse for Safety {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        if input.peek(keyword::safe) {
            return Ok(Self::Safe(input.parse()?));
        }
        if input.peek(Token![unsafe]) {
            return Ok(Self::Unsafe(input.parse()?));
        }
        Err(input.error("expected `unsafe fn` (or `safe fn` in an `unsafe struct`)"))
    }
}

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
    /// Parses the tokens behind the attributes and the visibility.
    fn parse(mut attrs: Vec<Attribute>, vis: Visibility, input: ParseStream<'_>) -> Result<Self> {
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

/// The field that holds the module, if variables are declared.
pub(crate) const MODULE_FIELD: &str = "module_of_variables";

/// Names of the generated struct's own items, which no kernel and no variable may have.
pub(crate) const RESERVED: [&str; 10] = [
    "load",
    "for_device",
    "loaded",
    "warm_up",
    "modules",
    "of_module",
    "clone",
    "PTX",
    "SOURCE",
    MODULE_FIELD,
];
