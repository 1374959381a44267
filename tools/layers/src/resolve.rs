//! Resolves a path to the module that defines its item.

use std::collections::HashSet;

use crate::model::{Crate, Import, ModuleId, ROOT};

/// The target of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// A module.
    Module(ModuleId),
    /// An item that this module defines.
    Item(ModuleId),
    /// An item of another crate.
    External,
}

/// The namespace of a name in a path.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Position {
    /// More segments follow, so a module comes before an item of the same name.
    Inner,
    /// An item comes before a module of the same name.
    Last,
}

/// Resolves `segments` as written in the module `from`. Re-exports are followed.
pub(crate) fn resolve(krate: &Crate, from: ModuleId, segments: &[String]) -> Target {
    Resolver { krate, active: HashSet::new() }.path(from, segments)
}

/// Resolves a name that `module` defines, imports or re-exports; `None` if it does not.
pub(crate) fn member(krate: &Crate, module: ModuleId, name: &str) -> Option<Target> {
    Resolver { krate, active: HashSet::new() }.name(module, name, Position::Last)
}

struct Resolver<'c> {
    krate: &'c Crate,
    /// The names that are being resolved, because imports can form a loop.
    active: HashSet<(ModuleId, String, Position)>,
}

impl Resolver<'_> {
    fn path(&mut self, from: ModuleId, segments: &[String]) -> Target {
        let Some((first, mut rest)) = segments.split_first() else { return Target::Module(from) };
        let parent = |id: ModuleId| self.krate.module(id).parent.unwrap_or(ROOT);
        let mut target = match first.as_str() {
            "crate" => Target::Module(ROOT),
            "self" => Target::Module(from),
            "super" => {
                let mut at = parent(from);
                while let Some(("super", after)) = rest.split_first().map(|(s, r)| (s.as_str(), r))
                {
                    (at, rest) = (parent(at), after);
                }
                Target::Module(at)
            }
            name => match self.name(from, name, position(rest)) {
                Some(target) => target,
                None => return Target::External,
            },
        };
        while let (Target::Module(module), Some((name, after))) = (target, rest.split_first()) {
            target = match self.name(module, name, position(after)) {
                Some(target) => target,
                None => return Target::Item(self.generator(module)),
            };
            rest = after;
        }
        target
    }

    fn name(&mut self, module: ModuleId, name: &str, position: Position) -> Option<Target> {
        let key = (module, name.to_owned(), position);
        if !self.active.insert(key.clone()) {
            return None;
        }
        let found = self.find(module, name, position);
        self.active.remove(&key);
        found
    }

    fn find(&mut self, module: ModuleId, name: &str, position: Position) -> Option<Target> {
        let krate = self.krate;
        let own = krate.module(module);
        let item = own.names.items.contains(name).then_some(Target::Item(module));
        let child = own.children.get(name).map(|child| Target::Module(*child));
        let imports = || own.names.imports.iter();
        match position {
            Position::Inner => child.or(item),
            Position::Last => item,
        }
        .or_else(|| {
            let named = imports().filter(|import| import.name.as_deref() == Some(name));
            let mut targets = named.map(|import| self.path(module, &import.path.segments));
            let first = targets.next()?;
            // A name can be imported twice: as a module and as an item.
            let wanted = |target: &Target| match position {
                Position::Inner => matches!(target, Target::Module(_)),
                Position::Last => matches!(target, Target::Item(_)),
            };
            Some([first].into_iter().chain(targets).find(wanted).unwrap_or(first))
        })
        .or(child)
        .or_else(|| imports().find_map(|import| self.through_glob(module, import, name, position)))
        .or_else(|| {
            let exports = |id: &ModuleId| krate.module(*id).names.exported_macros.contains(name);
            (module == ROOT).then(|| krate.ids().find(exports).map(Target::Item)).flatten()
        })
    }

    fn through_glob(
        &mut self,
        module: ModuleId,
        import: &Import,
        name: &str,
        position: Position,
    ) -> Option<Target> {
        if import.name.is_some() {
            return None;
        }
        match self.path(module, &import.path.segments) {
            Target::Module(other) if other != module => self.name(other, name, position),
            _ => None,
        }
    }

    /// Returns the module whose macros generate an item that no declaration of `module` names.
    fn generator(&mut self, module: ModuleId) -> ModuleId {
        let krate = self.krate;
        let own = &krate.module(module).names;
        if own.generates_items {
            return module;
        }
        let mut globs = own.imports.iter().filter(|import| import.name.is_none());
        let target = globs.find_map(|import| match self.path(module, &import.path.segments) {
            Target::Module(id) if krate.module(id).names.generates_items => Some(id),
            _ => None,
        });
        target.unwrap_or(module)
    }
}

fn position(rest: &[String]) -> Position {
    if rest.is_empty() { Position::Last } else { Position::Inner }
}
