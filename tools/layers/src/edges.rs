//! Builds one graph for each folder from the references between modules.

use std::collections::BTreeMap;
use std::path::Path;

use crate::graph::{Edge, Graph, Node};
use crate::model::{Crate, ModuleId};
use crate::references::Reference;

/// Returns the graphs of all folders that contain files, the crate root's first.
pub(crate) fn graphs(
    krate: &Crate,
    references: Vec<Reference>,
) -> impl Iterator<Item = Graph> + use<> {
    let mut folders: BTreeMap<ModuleId, Draft> = BTreeMap::new();
    for id in krate.ids().filter(|id| !krate.module(*id).inline) {
        if let Some(parent) = krate.module(id).parent {
            let folder = krate.file_module(parent);
            let draft = folders.entry(folder).or_insert_with(|| Draft::new(krate, folder));
            draft.node(id, &krate.module(id).file, is_folder(krate, id));
        }
    }
    for reference in references {
        let (from, to) = (krate.chain(reference.from), krate.chain(reference.to));
        let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
        // A chain may end at the common folder. Its end is then the folder's own file.
        let end = |chain: &[ModuleId]| chain.get(common).or(chain.last()).copied();
        let folder = common.checked_sub(1).and_then(|last| from.get(last));
        if let (Some(folder), Some(a), Some(b)) = (folder, end(&from), end(&to))
            && let Some(draft) = folders.get_mut(folder)
        {
            draft.edge(a, b, reference);
        }
    }
    folders.into_values().map(|draft| draft.graph)
}

fn is_folder(krate: &Crate, id: ModuleId) -> bool {
    let inside = |other: &ModuleId| {
        let parent = krate.module(*other).parent;
        !krate.module(*other).inline && parent.is_some_and(|parent| krate.file_module(parent) == id)
    };
    krate.ids().any(|other| inside(&other))
}

/// A graph under construction, whose nodes are identified by their modules.
struct Draft {
    graph: Graph,
    indices: BTreeMap<ModuleId, usize>,
}

impl Draft {
    fn new(krate: &Crate, folder: ModuleId) -> Self {
        let file = &krate.module(folder).file;
        let own_file = matches!(file_name(file).as_str(), "lib.rs" | "main.rs" | "mod.rs");
        let own_file = own_file || krate.module(folder).parent.is_none();
        let path = match own_file {
            true => file.parent().unwrap_or(file).to_owned(),
            false => file.with_extension(""),
        };
        let mut draft = Self { graph: Graph::new(path), indices: BTreeMap::new() };
        draft.node(folder, file, false);
        draft
    }

    fn node(&mut self, module: ModuleId, file: &Path, folder: bool) {
        let name = match (folder, file_name(file).as_str()) {
            (true, "mod.rs") => file.parent().map(file_name).unwrap_or_default() + "/",
            (true, name) => name.trim_end_matches(".rs").to_owned() + "/",
            (false, "mod.rs") if !self.graph.nodes.is_empty() => {
                file.parent().map(file_name).unwrap_or_default() + "/mod.rs"
            }
            (false, name) => name.to_owned(),
        };
        self.indices.insert(module, self.graph.nodes.len());
        self.graph.nodes.push(Node { name, folder });
    }

    fn edge(&mut self, from: ModuleId, to: ModuleId, reference: Reference) {
        let (Some(from), Some(to)) = (self.indices.get(&from), self.indices.get(&to)) else {
            return;
        };
        let Reference { file, line, path, .. } = reference;
        let edge = Edge { file, line, path };
        self.graph.edges.entry((*from, *to)).or_insert(edge);
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
