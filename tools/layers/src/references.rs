//! Collects the references between the modules of a crate.

use std::path::PathBuf;

use crate::model::{Crate, Import, ModuleId, PathUse};
use crate::resolve::{Target, member, resolve};

/// A use of an item that another module defines.
#[derive(Debug)]
pub(crate) struct Reference {
    pub(crate) from: ModuleId,
    /// The module that defines the item.
    pub(crate) to: ModuleId,
    /// The file with the use.
    pub(crate) file: PathBuf,
    /// The line of the use, from 1.
    pub(crate) line: usize,
    /// The path as written.
    pub(crate) path: String,
}

/// All references, in the order of modules and then of lines.
pub(crate) fn references(krate: &Crate) -> Vec<Reference> {
    let mut collector = Collector { krate, list: Vec::new() };
    for module in krate.ids() {
        collector.module(module);
    }
    collector.list.sort_by_key(|reference| (reference.from, reference.line));
    collector.list
}

struct Collector<'c> {
    krate: &'c Crate,
    list: Vec<Reference>,
}

impl Collector<'_> {
    fn module(&mut self, from: ModuleId) {
        let names = &self.krate.module(from).names;
        for import in &names.imports {
            let target = resolve(self.krate, from, &import.path.segments);
            match (&import.name, target) {
                (Some(_), Target::Item(to)) => {
                    let presented = import.reexport && self.is_below(from, to);
                    self.add(from, to, &import.path, presented);
                }
                (None, Target::Module(to)) => self.glob(from, to, import),
                (None, Target::Item(to)) => self.add(from, to, &import.path, false),
                // The paths that begin with the module's name are collected where they are used.
                _ => {}
            }
        }
        for path in &names.paths {
            match (resolve(self.krate, from, &path.segments), path.segments.as_slice()) {
                (Target::Item(to), _) => self.add(from, to, path, false),
                (Target::External, [name]) => self.textual_macro(from, name, path),
                _ => {}
            }
        }
    }

    /// Adds the references of `use other::*`: the names of `other` that occur in `from`, or `other` itself if there are
    /// none.
    fn glob(&mut self, from: ModuleId, other: ModuleId, import: &Import) {
        if import.reexport {
            let presented = self.is_below(from, other);
            return self.add(from, other, &import.path, presented);
        }
        let own = self.krate.module(from);
        let before = self.list.len();
        for (name, line) in &own.names.identifiers {
            let named = |import: &Import| import.name.as_ref() == Some(name);
            let shadowed = own.names.items.contains(name)
                || own.children.contains_key(name)
                || own.names.imports.iter().any(named);
            if let (false, Some(Target::Item(to))) = (shadowed, member(self.krate, other, name)) {
                let segments = [&import.path.segments[..], std::slice::from_ref(name)].concat();
                self.add(from, to, &PathUse { segments, line: *line }, false);
            }
        }
        if self.list.len() == before {
            self.add(from, other, &import.path, false);
        }
    }

    /// Adds the reference of `name!` without an import, which names a `macro_rules!` in textual scope.
    fn textual_macro(&mut self, from: ModuleId, name: &str, path: &PathUse) {
        let defines = |id: &ModuleId| self.krate.module(*id).names.macros.contains(name);
        if let Some(to) = self.krate.ids().find(defines) {
            self.add(from, to, path, false);
        }
    }

    fn is_below(&self, from: ModuleId, to: ModuleId) -> bool {
        self.krate.contains(self.krate.file_module(from), to)
    }

    fn add(&mut self, from: ModuleId, to: ModuleId, path: &PathUse, presented: bool) {
        if !presented && self.krate.file_module(from) != self.krate.file_module(to) {
            let file = self.krate.module(from).file.clone();
            let (line, path) = (path.line, path.segments.join("::"));
            self.list.push(Reference { from, to, file, line, path });
        }
    }
}
