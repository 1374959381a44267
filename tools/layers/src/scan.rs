//! Collects the names that the items of a module define and use.

use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, UseTree, Visibility};

use crate::condition::left_out;
use crate::model::{Import, Names, PathUse};
use crate::tokens;

/// Returns the names of `items`, and the modules among them.
pub(crate) fn scan(items: Vec<Item>) -> (Names, Vec<ItemMod>) {
    let mut scan = Scan::default();
    let mut modules = Vec::new();
    for item in items {
        if left_out(attributes(&item)) {
            continue;
        }
        match item {
            Item::Mod(module) => modules.push(module),
            item => {
                scan.define(&item);
                scan.visit_item(&item);
            }
        }
    }
    (scan.names, modules)
}

#[derive(Default)]
struct Scan {
    names: Names,
}

impl Scan {
    /// Adds the name that an item of the module defines.
    fn define(&mut self, item: &Item) {
        let ident = match item {
            Item::Const(item) => &item.ident,
            Item::Enum(item) => &item.ident,
            Item::Fn(item) => &item.sig.ident,
            Item::Static(item) => &item.ident,
            Item::Struct(item) => &item.ident,
            Item::Trait(item) => &item.ident,
            Item::TraitAlias(item) => &item.ident,
            Item::Type(item) => &item.ident,
            Item::Union(item) => &item.ident,
            Item::Macro(item) => match &item.ident {
                Some(ident) => {
                    let exported =
                        |attribute: &Attribute| attribute.path().is_ident("macro_export");
                    if item.attrs.iter().any(exported) {
                        self.names.exported_macros.insert(ident.to_string());
                    }
                    self.names.macros.insert(ident.to_string());
                    ident
                }
                None => {
                    self.names.generates_items = true;
                    return;
                }
            },
            _ => return,
        };
        self.names.items.insert(ident.to_string());
    }

    fn import(&mut self, tree: &UseTree, prefix: &[String], reexport: bool) {
        let (name, segments, line) = match tree {
            UseTree::Path(path) => {
                let prefix = [prefix, &[path.ident.to_string()]].concat();
                return self.import(&path.tree, &prefix, reexport);
            }
            UseTree::Group(group) => {
                return group.items.iter().for_each(|tree| self.import(tree, prefix, reexport));
            }
            UseTree::Name(name) if name.ident == "self" => {
                (prefix.last().cloned(), prefix.to_vec(), name.ident.span())
            }
            UseTree::Name(name) => {
                let own = name.ident.to_string();
                (Some(own.clone()), [prefix, &[own]].concat(), name.ident.span())
            }
            UseTree::Rename(rename) => {
                let (own, new) = (rename.ident.to_string(), rename.rename.to_string());
                let own = if own == "self" { Vec::new() } else { vec![own] };
                (Some(new), [prefix, &own].concat(), rename.ident.span())
            }
            UseTree::Glob(glob) => (None, prefix.to_vec(), glob.star_token.spans[0]),
        };
        let path = PathUse { segments, line: line.start().line };
        self.names.imports.push(Import { name, path, reexport });
    }
}

impl<'ast> Visit<'ast> for Scan {
    fn visit_item(&mut self, item: &'ast Item) {
        if !left_out(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !left_out(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if !left_out(&item.attrs) {
            visit::visit_trait_item_fn(self, item);
        }
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if !left_out(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        if !left_out(&local.attrs) {
            visit::visit_local(self, local);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if item.leading_colon.is_none() {
            let reexport = !matches!(item.vis, Visibility::Inherited);
            self.import(&item.tree, &[], reexport);
        }
    }

    /// Skips a module inside a function. Modules at item level are visited elsewhere.
    fn visit_item_mod(&mut self, _: &'ast ItemMod) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() && path.segments.len() > 1 {
            let segments = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            let line = path.segments[0].ident.span().start().line;
            self.names.paths.push(PathUse { segments, line });
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        if let Some(ident) = call.path.get_ident() {
            let line = ident.span().start().line;
            self.names.paths.push(PathUse { segments: vec![ident.to_string()], line });
        }
        visit::visit_macro(self, call);
        tokens::scan(call.tokens.clone(), &mut self.names);
    }

    fn visit_ident(&mut self, ident: &'ast syn::Ident) {
        let line = ident.span().start().line;
        self.names.identifiers.entry(ident.to_string()).or_insert(line);
    }

    /// Skips `pub(in crate::a)`, which is not a use of the path.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_attribute(&mut self, _: &'ast Attribute) {}
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}
