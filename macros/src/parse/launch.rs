//! The attributes of a kernel's launch: its shape (`#[elements(n)]`, `#[plane(width, height)]`,
//! `#[tiles(buffer, tile, threads)]` and `#[config(..)]`), `#[cooperative]`, `#[cluster(x, y, z)]` and `#[dependent]`.

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::{
    Attribute, Error, Expr, Result, Token,
    parse::{Parse, ParseStream},
    punctuated::Punctuated,
};

use super::{
    argument::{Argument, Passed},
    quantity::Quantity,
};

/// The names of the attributes of a shape.
const SHAPES: [&str; 4] = ["elements", "plane", "tiles", "config"];

/// The source of a launch's configuration.
pub(crate) enum Geometry {
    /// The caller passes a `LaunchConfig`.
    Caller,
    /// `LaunchConfig::for_num_elems`.
    Elements(Quantity),
    /// `LaunchConfig::for_plane`.
    Plane(Quantity, Quantity),
    /// A block for each tile of an argument that is a `Partition`.
    Tiles(Tiles),
    Config(Shape),
}

/// The shape of `#[config(grid = .., block = .., shared = ..)]`.
pub(crate) struct Shape {
    grid: [Quantity; 3],
    block: [Quantity; 3],
    shared: Quantity,
}

impl Geometry {
    /// Removes the attribute from `attrs`.
    ///
    /// # Errors
    /// If there are several, or one is malformed.
    pub(crate) fn take(attrs: &mut Vec<Attribute>) -> Result<Self> {
        let mut geometry = Self::Caller;
        let ours = |attr: &mut Attribute| SHAPES.iter().any(|name| attr.path().is_ident(name));
        for attr in attrs.extract_if(.., ours) {
            if !matches!(geometry, Self::Caller) {
                let why =
                    "a kernel has one launch shape; remove this attribute or the one before it";
                return Err(Error::new_spanned(attr, why));
            }
            geometry = Self::of(&attr)?;
        }
        Ok(geometry)
    }

    fn of(attr: &Attribute) -> Result<Self> {
        let wrong = |why| Err(Error::new_spanned(attr, why));
        if attr.path().is_ident("config") {
            return attr.parse_args().map(Self::Config);
        }
        if attr.path().is_ident("tiles") {
            return attr.parse_args().map(Self::Tiles);
        }
        let list = Punctuated::<Quantity, Token![,]>::parse_terminated;
        let quantities: Vec<_> = attr.parse_args_with(list)?.into_iter().collect();
        match (attr.path().is_ident("plane"), <[_; 1]>::try_from(quantities)) {
            (false, Ok([elements])) => Ok(Self::Elements(elements)),
            (true, Err(quantities)) => match <[_; 2]>::try_from(quantities) {
                Ok([width, height]) => Ok(Self::Plane(width, height)),
                Err(_) => wrong("expected `#[plane(width, height)]`"),
            },
            (true, Ok(_)) => wrong("expected `#[plane(width, height)]`"),
            (false, Err(_)) => wrong("expected `#[elements(count)]`"),
        }
    }

    /// Returns an error for each name that a launch shape cannot use.
    pub(crate) fn check(&self, all: &[Argument]) -> Vec<Error> {
        let known: Vec<_> = all.iter().collect();
        let check = |quantity: &Quantity| quantity.check(&known, all);
        match self {
            Self::Caller => Vec::new(),
            Self::Elements(elements) => check(elements),
            Self::Plane(width, height) => [width, height].into_iter().flat_map(check).collect(),
            Self::Tiles(Tiles { buffer, tile, threads }) => {
                let of_buffer = Quantity::Len(buffer.clone()).check(&known, all);
                let is_read = |argument: &Argument| {
                    argument.name == *buffer && matches!(argument.passed, Passed::Input(_))
                };
                let why =
                    format!("`{buffer}` is only read; the tiles are those of an output `&mut [T]`");
                let read = all.iter().any(is_read).then(|| Error::new(buffer.span(), why));
                let sizes = tile.iter().chain([threads]).flat_map(check);
                of_buffer.into_iter().chain(read).chain(sizes).collect()
            }
            Self::Config(Shape { grid, block, shared }) => {
                grid.iter().chain(block).chain([shared]).flat_map(check).collect()
            }
        }
    }

    /// Generates an expression of type `Option<LaunchConfig>`, or `None` if the caller passes the configuration.
    /// `kernel` is an expression of type `kernel::checks::Kernel`.
    pub(crate) fn tokens(&self, kernel: &TokenStream) -> Option<TokenStream> {
        Some(match self {
            Self::Caller => return None,
            Self::Elements(elements) => {
                let elements = elements.side();
                quote!(#kernel.elements(#elements)?)
            }
            Self::Plane(width, height) => {
                let (width, height) = (width.side(), height.side());
                quote!(#kernel.plane(#width, #height)?)
            }
            Self::Tiles(Tiles { buffer, tile, threads }) => {
                let (name, threads) = (buffer.to_string(), threads.side());
                let tile = tile.iter().map(Quantity::side);
                quote!(#kernel.tiles(#name, &#buffer, [#(#tile),*], #threads)?)
            }
            Self::Config(Shape { grid, block, shared }) => {
                let (grid, block) =
                    (grid.iter().map(Quantity::side), block.iter().map(Quantity::side));
                let shared = shared.side();
                quote!(#kernel.config([#(#grid),*], [#(#block),*], #shared)?)
            }
        })
    }
}

/// The content of `#[tiles(buffer, tile, threads)]`.
pub(crate) struct Tiles {
    buffer: Ident,
    /// The sizes of a tile.
    tile: Vec<Quantity>,
    threads: Quantity,
}

impl Parse for Tiles {
    /// In `#[tiles(buffer, n)]`, a tile has `n` elements and a block `n` threads.
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let buffer = input.parse()?;
        input.parse::<Token![,]>()?;
        let tile: Expr = input.parse()?;
        let threads = match input.parse::<Option<Token![,]>>()? {
            Some(_) => input.parse()?,
            None if matches!(tile, Expr::Tuple(_)) => {
                let why =
                    "add the number of threads of a block, as in `#[tiles(y, (16, 16), 256)]`";
                return Err(Error::new_spanned(tile, why));
            }
            None => Quantity::of(&tile)?,
        };
        Ok(Self { buffer, tile: sizes(&tile)?, threads })
    }
}

impl Parse for Shape {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let (mut grid, mut block, mut shared) = (None, None, None);
        let whole = input.cursor().token_stream();
        while !input.is_empty() {
            let key: Ident = input.parse()?;
            input.parse::<Token![=]>()?;
            let value: Expr = input.parse()?;
            let twice = match key.to_string().as_str() {
                "grid" => grid.replace(dimensions(&value)?).is_some(),
                "block" => block.replace(dimensions(&value)?).is_some(),
                "shared" => shared.replace(Quantity::of(&value)?).is_some(),
                _ => {
                    let why = format!("unknown key `{key}`; write `grid`, `block` or `shared`");
                    return Err(Error::new(key.span(), why));
                }
            };
            if twice {
                return Err(Error::new(key.span(), format!("`{key}` is given twice")));
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        let (Some(grid), Some(block)) = (grid, block) else {
            return Err(Error::new_spanned(
                whole,
                "expected `#[config(grid = (x, y, z), block = (x, y, z), shared = bytes)]`; `shared` may be omitted",
            ));
        };
        Ok(Self { grid, block, shared: shared.unwrap_or(Quantity::Literal(0)) })
    }
}

/// Converts `x`, `(x, y)` or `(x, y, z)`. Omitted dimensions are 1.
fn dimensions(expr: &Expr) -> Result<[Quantity; 3]> {
    let mut sizes = sizes(expr)?;
    sizes.resize(3, Quantity::Literal(1));
    <[_; 3]>::try_from(sizes).map_err(|_| Error::new_spanned(expr, "expected three dimensions"))
}

/// Converts `x`, `(x, y)` or `(x, y, z)`.
fn sizes(expr: &Expr) -> Result<Vec<Quantity>> {
    let Expr::Tuple(tuple) = expr else { return Ok(vec![Quantity::of(expr)?]) };
    if tuple.elems.is_empty() || tuple.elems.len() > 3 {
        return Err(Error::new_spanned(tuple, "expected one, two or three dimensions"));
    }
    tuple.elems.iter().map(Quantity::of).collect()
}

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

    fn geometry(text: &str) -> Result<Geometry> {
        let mut attrs = vec![syn::parse_quote!(#[doc = "kept"])];
        let parsed: syn::DeriveInput = syn::parse_str(&format!("{text} struct S;")).unwrap();
        attrs.extend(parsed.attrs);
        let geometry = Geometry::take(&mut attrs);
        assert_eq!(attrs.len(), 1);
        geometry
    }

    #[test]
    fn shapes_are_parsed() {
        assert!(matches!(geometry(""), Ok(Geometry::Caller)));
        assert!(matches!(geometry("#[elements(x.len() / 2)]"), Ok(Geometry::Elements(_))));
        assert!(matches!(geometry("#[plane(w, h)]"), Ok(Geometry::Plane(..))));
        let tiles = |text| match geometry(text) {
            Ok(Geometry::Tiles(Tiles { tile, threads, .. })) => {
                (tile.iter().map(Quantity::to_string).collect::<Vec<_>>(), threads.to_string())
            }
            _ => panic!("not tiles"),
        };
        assert_eq!(tiles("#[tiles(y, 64)]"), (vec!["64".into()], "64".into()));
        assert_eq!(tiles("#[tiles(y, 64, 32)]"), (vec!["64".into()], "32".into()));
        let plane = (vec!["n".into(), "x.size(1)".into()], "32".into());
        assert_eq!(tiles("#[tiles(y, (n, x.size(1)), 32)]"), plane);
        let Ok(Geometry::Config(shape)) = geometry("#[config(grid = (n, 2), block = 64)]") else {
            panic!("not a shape")
        };
        let texts = shape.grid.map(|quantity| quantity.to_string());
        assert_eq!(texts, ["n", "2", "1"]);
        assert_eq!(shape.shared.to_string(), "0");
    }

    #[test]
    fn malformed_shapes_are_refused() {
        for (text, message) in [
            ("#[elements(a, b)]", "expected `#[elements(count)]`"),
            ("#[plane(a)]", "expected `#[plane(width, height)]`"),
            (
                "#[tiles(y, (16, 16))]",
                "add the number of threads of a block, as in `#[tiles(y, (16, 16), 256)]`",
            ),
            ("#[tiles(y, (1, 1, 1, 1), 1)]", "expected one, two or three dimensions"),
            ("#[config(grid = 1, grid = 2)]", "`grid` is given twice"),
            ("#[config(rows = 1)]", "unknown key `rows`; write `grid`, `block` or `shared`"),
            ("#[config(grid = (1, 1, 1, 1), block = 1)]", "expected one, two or three dimensions"),
        ] {
            let error = geometry(text).err().unwrap();
            assert_eq!(error.to_string(), message);
        }
        assert!(geometry("#[elements(a)] #[plane(a, b)]").is_err());
        assert!(geometry("#[config(grid = 1)]").is_err());
    }

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
