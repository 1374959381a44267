//! The modules of a crate, with the names that each defines and uses.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Index into [`Crate::modules`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ModuleId(pub(crate) usize);

/// The index of the crate root in [`Crate::modules`].
pub(crate) const ROOT: ModuleId = ModuleId(0);

/// All modules of a crate; parents come before their children.
pub(crate) struct Crate {
    pub(crate) modules: Vec<Module>,
}

/// A module: a file, or a `mod name { .. }` inside one.
pub(crate) struct Module {
    pub(crate) parent: Option<ModuleId>,
    /// The file that contains the module.
    pub(crate) file: PathBuf,
    /// `mod name { .. }`.
    pub(crate) inline: bool,
    pub(crate) children: BTreeMap<String, ModuleId>,
    pub(crate) names: Names,
}

/// The names that a module defines and uses.
#[derive(Default)]
pub(crate) struct Names {
    /// Items that are defined here, `macro_rules!` included.
    pub(crate) items: BTreeSet<String>,
    /// `macro_rules!` that are defined here.
    pub(crate) macros: BTreeSet<String>,
    /// Macros with `#[macro_export]`, which the crate root exports.
    pub(crate) exported_macros: BTreeSet<String>,
    /// Whether the module calls a macro in item position, so that it may define items that are not in `items`.
    pub(crate) generates_items: bool,
    pub(crate) imports: Vec<Import>,
    pub(crate) paths: Vec<PathUse>,
    /// Each identifier that occurs, with the line where it occurs first.
    pub(crate) identifiers: BTreeMap<String, usize>,
}

/// One name of a `use` declaration.
pub(crate) struct Import {
    /// The name that it defines here; `None` for a glob.
    pub(crate) name: Option<String>,
    pub(crate) path: PathUse,
    /// Whether it has a visibility: `pub use`, `pub(crate) use`.
    pub(crate) reexport: bool,
}

/// A path as written, with its line from 1.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PathUse {
    pub(crate) segments: Vec<String>,
    pub(crate) line: usize,
}

impl Crate {
    pub(crate) fn module(&self, id: ModuleId) -> &Module {
        &self.modules[id.0]
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = ModuleId> + use<> {
        (0..self.modules.len()).map(ModuleId)
    }

    /// Returns the module itself if it is a file, else the innermost file module around it.
    pub(crate) fn file_module(&self, mut id: ModuleId) -> ModuleId {
        while let (true, Some(parent)) = (self.module(id).inline, self.module(id).parent) {
            id = parent;
        }
        id
    }

    /// Returns the file modules around a module, from the crate root to the module's own file.
    pub(crate) fn chain(&self, id: ModuleId) -> Vec<ModuleId> {
        let mut chain = vec![self.file_module(id)];
        while let Some(parent) = chain.last().and_then(|id| self.module(*id).parent) {
            chain.push(self.file_module(parent));
        }
        chain.reverse();
        chain
    }

    /// Whether `inner` is `outer` or a module inside it.
    pub(crate) fn contains(&self, outer: ModuleId, inner: ModuleId) -> bool {
        let parent = |id: &ModuleId| self.module(*id).parent;
        std::iter::successors(Some(inner), parent).any(|id| id == outer)
    }
}
