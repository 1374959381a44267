//! Reads the files of a crate into its modules.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use syn::{Expr, Item, ItemMod, Lit, Meta};

use crate::error::Error;
use crate::model::{Crate, Module, ModuleId};
use crate::scan::scan;

/// Reads the crate whose root file is `root`.
pub(crate) fn read(root: &Path) -> Result<Crate, Error> {
    let mut reader = Reader { modules: Vec::new() };
    let folder = root.parent().unwrap_or(Path::new("")).to_owned();
    reader.file(root, &folder, None)?;
    Ok(Crate { modules: reader.modules })
}

struct Reader {
    modules: Vec<Module>,
}

impl Reader {
    /// Reads a file. The files of its modules are in `folder`.
    fn file(
        &mut self,
        path: &Path,
        folder: &Path,
        parent: Option<ModuleId>,
    ) -> Result<ModuleId, Error> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| Error::Read { path: path.to_owned(), source })?;
        let file = syn::parse_file(&text).map_err(|error| Error::Parse {
            path: path.to_owned(),
            line: error.span().start().line,
            message: error.to_string(),
        })?;
        self.module(file.items, path, folder, parent, false)
    }

    fn module(
        &mut self,
        items: Vec<Item>,
        file: &Path,
        folder: &Path,
        parent: Option<ModuleId>,
        inline: bool,
    ) -> Result<ModuleId, Error> {
        let (names, modules) = scan(items);
        let id = ModuleId(self.modules.len());
        let children = BTreeMap::new();
        self.modules.push(Module { parent, file: file.to_owned(), inline, children, names });
        for child in modules {
            let name = child.ident.to_string();
            let child = self.child(child, file, folder, id)?;
            self.modules[id.0].children.entry(name).or_insert(child);
        }
        Ok(id)
    }

    fn child(
        &mut self,
        declared: ItemMod,
        file: &Path,
        folder: &Path,
        parent: ModuleId,
    ) -> Result<ModuleId, Error> {
        let name = declared.ident.to_string();
        let inner = folder.join(&name);
        let explicit = path_attribute(&declared);
        if let Some((_, items)) = declared.content {
            return self.module(items, file, &inner, Some(parent), true);
        }
        if let Some(path) = explicit {
            // Relative to the folder of the file, or of the inline module around the declaration.
            let inline = self.modules[parent.0].inline;
            let base = if inline { folder } else { file.parent().unwrap_or(folder) };
            let path = base.join(path);
            let folder = path.parent().unwrap_or(folder).to_owned();
            return self.file(&path, &folder, Some(parent));
        }
        let expected = folder.join(format!("{name}.rs"));
        let path = [expected.clone(), inner.join("mod.rs")].into_iter().find(|path| path.is_file());
        match path {
            Some(path) => self.file(&path, &inner, Some(parent)),
            None => {
                let line = declared.ident.span().start().line;
                Err(Error::NoModule { path: file.to_owned(), line, name, expected })
            }
        }
    }
}

/// The value of `#[path = ".."]`.
fn path_attribute(module: &ItemMod) -> Option<PathBuf> {
    module.attrs.iter().find_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Str(text) => Some(text.value().into()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    })
}
