//! Checks that the folders of a crate form a directed acyclic graph.
//!
//! [`check`] reads a crate's `src/`, starting at `lib.rs`, `main.rs` and the files of `bin/`, and follows the `mod`
//! declarations. Code that exists only in tests or in loom models is left out. Every import, and every path of two or
//! more segments, is resolved through re-exports to the module that defines the item.
//!
//! A reference between two modules becomes an edge in the folder that contains both. Its ends are the children of
//! that folder: files, or folders that contain the modules. So each folder has a graph of its own. The file of the
//! folder itself (`lib.rs`, `mod.rs`, or `x.rs` beside `x/`) is a node of that graph too, because its items can be
//! used by its children.
//!
//! - A ring that contains a folder is a fault.
//! - Three or more files that all use each other, directly or through others of them, are a fault: a ring of three, or
//!   two pairs that share a file.
//! - A ring of two files is allowed: they are one concept that was split for reading.
//! - `pub use` of an item in a folder below is no reference: the file presents what its folder contains.
//!
//! # Limits
//! Only names are resolved, not types: a call of a method is no reference to the module that defines the method. Code
//! that a macro generates is not seen, but the tokens of every macro call and definition are searched for paths. Of a
//! glob import that is no re-export, the names that occur in the importing module count.
#![forbid(unsafe_code)]

mod allow;
mod condition;
mod edges;
mod error;
mod graph;
mod model;
mod read;
mod references;
mod report;
mod resolve;
mod scan;
mod tokens;

use std::path::{Path, PathBuf};

pub use allow::Allowed;
pub use error::Error;
pub use graph::{Edge, Node, Ring};
pub use report::{Folder, Report};

/// Reads the crate in `folder`, which contains `src/`. Paths in the report begin with `folder` as it was given.
///
/// # Errors
/// A file that cannot be read or parsed, a `mod` without a file, or a folder without a crate root.
///
/// # Examples
/// ```no_run
/// let report = layers::check("cuda-ptx".as_ref())?;
/// for folder in &report.folders {
///     assert!(folder.faults().next().is_none(), "{folder}");
/// }
/// # Ok::<(), layers::Error>(())
/// ```
pub fn check(folder: &Path) -> Result<Report, Error> {
    let mut folders = Vec::new();
    for root in roots(folder)? {
        let krate = read::read(&root)?;
        let references = references::references(&krate);
        folders.extend(edges::graphs(&krate, references).map(Folder::new));
    }
    Ok(Report { folders })
}

/// The root files of a package's library and binaries.
fn roots(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let src = folder.join("src");
    let mut roots = vec![src.join("lib.rs"), src.join("main.rs")];
    if let Ok(binaries) = std::fs::read_dir(src.join("bin")) {
        for entry in binaries.flatten() {
            let path = entry.path();
            roots.push(if path.is_dir() { path.join("main.rs") } else { path });
        }
    }
    roots.retain(|root| root.extension().is_some_and(|ext| ext == "rs") && root.is_file());
    roots.sort();
    if roots.is_empty() { Err(Error::NoRoot(src)) } else { Ok(roots) }
}
