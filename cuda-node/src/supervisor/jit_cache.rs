//! The folders in which the driver keeps compiled kernels, one for each tenant.
//!
//! The driver reads the path of its cache when it starts, but a worker starts before it has a tenant. So the path that
//! a worker gets is a link. It leads to a folder for workers without a tenant, until [`Link::assign`] makes it lead to
//! the folder of the tenant. The driver follows the link each time that it loads a kernel (seen with driver 580).

use std::{
    fs, io,
    io::ErrorKind,
    os::unix::fs::{DirBuilderExt, symlink},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use cuda_lease::authority::Tenant;
use tempfile::TempDir;

/// The variable with the path of the driver's cache.
pub(super) const PATH_VARIABLE: &str = "CUDA_CACHE_PATH";

/// The variable with the maximum size of the driver's cache in bytes.
pub(super) const SIZE_VARIABLE: &str = "CUDA_CACHE_MAXSIZE";

/// The maximum size of the cache of one tenant in bytes. Above it, the driver evicts old kernels.
pub(super) const SIZE: u64 = 256 << 20;

/// The caches of compiled kernels of a node, one for each tenant.
#[derive(Clone)]
pub struct JitCache(Arc<Folders>);

struct Folders {
    /// The folder of all caches.
    root: PathBuf,
    /// The folder of the links, which is removed at the end.
    links: TempDir,
    count: AtomicU64,
}

impl JitCache {
    /// Opens the caches in `root`, which is created. Without `root` they last as long as the node. Each tenant has at
    /// most 256 MiB.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn open(root: Option<&Path>) -> io::Result<Self> {
        let links = tempfile::Builder::new().prefix("cuda-node-").tempdir()?;
        let root = match root {
            Some(root) => std::path::absolute(root)?,
            None => links.path().join("caches"),
        };
        create_private_folder(&root.join("tenants"))?;
        create_private_folder(&root.join("spare"))?;
        Ok(Self(Arc::new(Folders { root, links, count: AtomicU64::new(0) })))
    }

    /// Creates the link of a worker.
    ///
    /// # Errors
    /// Those of the file system.
    pub(super) fn link(&self) -> io::Result<Link> {
        let number = self.0.count.fetch_add(1, Ordering::Relaxed);
        let path = self.0.links.path().join(format!("worker-{number}"));
        symlink(self.0.root.join("spare"), &path)?;
        Ok(Link { path, cache: self.clone() })
    }
}

/// The link of a worker. Dropping it removes the link and keeps the kernels.
pub(super) struct Link {
    path: PathBuf,
    cache: JitCache,
}

impl Link {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the link lead to the cache of `tenant`.
    ///
    /// # Errors
    /// Those of the file system.
    pub(super) fn assign(&self, tenant: &Tenant) -> io::Result<()> {
        // A tenant's name is a valid file name.
        let folder = self.cache.0.root.join("tenants").join(tenant.as_str());
        create_private_folder(&folder)?;
        let next = self.path.with_extension("next");
        symlink(folder, &next)?;
        fs::rename(&next, &self.path)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        _ = fs::remove_file(&self.path);
    }
}

/// Creates a folder that only this user can read.
fn create_private_folder(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|error| {
        let hint = match error.kind() {
            ErrorKind::PermissionDenied => "; choose another folder with --jit-cache",
            _ => "",
        };
        io::Error::new(error.kind(), format!("{}: {error}{hint}", folder.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> Tenant {
        Tenant::new(name).unwrap()
    }

    #[test]
    fn worker_writes_to_the_cache_of_its_tenant_only() {
        let root = tempfile::tempdir().unwrap();
        let cache = JitCache::open(Some(root.path())).unwrap();
        let (first, second, third) =
            (cache.link().unwrap(), cache.link().unwrap(), cache.link().unwrap());
        first.assign(&tenant("a")).unwrap();
        second.assign(&tenant("b")).unwrap();
        third.assign(&tenant("a")).unwrap();
        fs::write(first.path().join("kernel"), "of a").unwrap();
        assert!(!second.path().join("kernel").exists());
        assert_eq!(fs::read_to_string(third.path().join("kernel")).unwrap(), "of a");
        assert!(!cache.link().unwrap().path().join("kernel").exists());
    }

    #[test]
    fn kernels_outlive_workers_and_nodes() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str| {
            let link = JitCache::open(Some(root.path())).unwrap().link().unwrap();
            link.assign(&tenant("a")).unwrap();
            fs::write(link.path().join(name), "").unwrap();
            fs::read_dir(link.path()).unwrap().count()
        };
        assert_eq!((write("first"), write("second")), (1, 2));
    }

    #[test]
    fn links_are_removed_with_their_workers() {
        let cache = JitCache::open(None).unwrap();
        let path = cache.link().unwrap().path().to_owned();
        assert!(path.symlink_metadata().is_err());
    }
}
