//! The report and its text form.

use std::fmt;
use std::path::PathBuf;

use crate::graph::{Graph, Ring};

/// The folders of a package.
#[derive(Debug)]
pub struct Report {
    /// Each folder that contains more than one file, the crate roots first.
    pub folders: Vec<Folder>,
}

/// The files and folders of one folder, by layer.
#[derive(Debug)]
pub struct Folder {
    /// The path of the folder, such as `cuda-core/src/handle`.
    pub path: PathBuf,
    /// Names by layer, lowest first.
    pub layers: Vec<Vec<String>>,
    /// Files and folders that use each other.
    pub rings: Vec<Ring>,
}

impl Folder {
    pub(crate) fn new(graph: Graph) -> Self {
        let name = |node: usize| graph.nodes[node].name.clone();
        let names = |layer: Vec<usize>| {
            let mut names: Vec<String> = layer.into_iter().map(name).collect();
            names.sort();
            names
        };
        let layers = graph.layers().into_iter().map(names).collect();
        Self { layers, rings: graph.rings(), path: graph.path }
    }

    /// The rings that are not pairs of files.
    pub fn faults(&self) -> impl Iterator<Item = &Ring> {
        self.rings.iter().filter(|ring| ring.fault)
    }
}

/// Writes the path, then one line for each layer, then the pairs of files.
impl fmt::Display for Folder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.path.display())?;
        for (number, layer) in self.layers.iter().enumerate() {
            writeln!(f, "  {number:2}  {}", layer.join(", "))?;
        }
        self.rings.iter().try_for_each(|ring| writeln!(f, "  {ring}"))
    }
}

/// Writes `ring: a -> b -> a`, then the use for each arrow.
impl fmt::Display for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.steps.iter().map(|(node, _)| node.name.as_str()).collect();
        let first = names.first().copied().unwrap_or_default();
        write!(f, "{}", if self.fault { "ring" } else { "pair" })?;
        write!(f, ": {} -> {first}", names.join(" -> "))?;
        for (i, (node, edge)) in self.steps.iter().enumerate() {
            let next = names[(i + 1) % names.len()];
            let (file, line) = (edge.file.display(), edge.line);
            write!(f, "\n    {file}:{line}: {} uses `{}` of {next}", node.name, edge.path)?;
        }
        if !self.others.is_empty() {
            let others: Vec<&str> = self.others.iter().map(|node| node.name.as_str()).collect();
            write!(f, "\n    on other rings with these: {}", others.join(", "))?;
        }
        Ok(())
    }
}
