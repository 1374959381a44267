//! The folders in which the driver keeps compiled kernels, of one tenant each.
//!
//! The driver reads the path of its cache when it starts, but a worker starts before it has a tenant. So a worker has a
//! folder of its own, the only one that its sandbox lets it write to, and [`WorkerCache::assign`] moves kernels of the
//! tenant into it. They move back after the end of the worker. A cache is thus in use by one worker at a time, and a
//! hostile worker reaches no other cache. A tenant with several workers at a time has several caches.
//!
//! The driver resolves the path each time that it loads a kernel (seen with driver 580).

use std::{
    fs::{self, File, TryLockError},
    io,
    io::ErrorKind,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use cuda_lease::authority::Tenant;
use tempfile::TempDir;

use super::worker_files::{Limits, Remover, is_plain_tree, move_away, remove};
use crate::process;

/// The variable with the path of the driver's cache.
pub(super) const PATH_VARIABLE: &str = "CUDA_CACHE_PATH";

/// The variable with the maximum size of the driver's cache in bytes.
pub(super) const SIZE_VARIABLE: &str = "CUDA_CACHE_MAXSIZE";

/// The maximum size of the cache of one tenant in bytes. Above it, the driver evicts old kernels.
pub(super) const SIZE: u64 = 256 << 20;

/// The maximum number of caches of one tenant that no worker uses. Workers of a tenant that run at the same time have
/// one each.
const CACHES: u32 = 4;

/// The limits of a cache that is kept. The driver stays far below them, a hostile worker need not. The start of the next
/// lease of the tenant takes 0.1 s longer with this many files, each of which gets a new owner.
const LIMITS: Limits = Limits { bytes: 2 * SIZE, entries: 16_384, depth: 8 };

/// The caches of compiled kernels of a node.
#[derive(Clone)]
pub struct JitCache(Arc<Folders>);

struct Folders {
    /// The folder of all caches.
    root: PathBuf,
    /// The folder of the caches that workers use, which is removed at the end.
    workers: PathBuf,
    count: AtomicU64,
    remover: Remover,
    /// The lock of `root`, until the end.
    _lock: File,
}

impl JitCache {
    /// Opens the caches in `root`, which is created. Without `root` they last as long as the node. Each tenant has at
    /// most 256 MiB for each of its workers, and keeps at most four caches of this size.
    ///
    /// # Errors
    /// The file system fails, or another node uses `root`.
    pub fn open(root: Option<&Path>) -> io::Result<Self> {
        let (root, temporary) = match root {
            Some(root) => (std::path::absolute(root)?, None),
            None => {
                let folder = tempfile::Builder::new().prefix("cuda-node-").tempdir()?;
                (folder.path().to_owned(), Some(folder))
            }
        };
        for folder in ["tenants", "spare", "workers"] {
            create_private_folder(&root.join(folder))?;
        }
        // Workers resolve the path in a root folder without the links of this machine.
        let root = root.canonicalize()?;
        let lock = File::create(root.join("lock"))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => {
                let message = "another node uses this folder; choose another one with --jit-cache";
                io::Error::new(ErrorKind::ResourceBusy, format!("{}: {message}", root.display()))
            }
            TryLockError::Error(error) => error,
        })?;
        let left: Vec<_> = fs::read_dir(root.join("workers"))?.flatten().collect();
        let workers = TempDir::new_in(root.join("workers"))?.keep();
        if !left.is_empty() {
            remove_left(left, workers.clone())?;
        }
        let removals = Removals { workers: workers.clone(), count: 0, _temporary: temporary };
        let (remover, count) = (removals.start()?, AtomicU64::new(0));
        Ok(Self(Arc::new(Folders { root, workers, count, remover, _lock: lock })))
    }

    /// Creates the cache of a worker, with kernels that earlier workers compiled without a tenant.
    ///
    /// # Errors
    /// The file system fails.
    pub(super) fn for_worker(&self) -> io::Result<WorkerCache> {
        let folder = self.0.next_folder();
        create_private_folder(&folder)?;
        let cache = WorkerCache { folder, home: self.0.root.join("spare"), cache: self.clone() };
        self.0.take(&cache.home, &cache.path())?;
        Ok(cache)
    }
}

impl Folders {
    fn next_folder(&self) -> PathBuf {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        self.workers.join(number.to_string())
    }

    /// Moves a cache of `home` to `path`, or creates an empty one there. It belongs to the owner of the folder that it
    /// moves to.
    fn take(&self, home: &Path, path: &Path) -> io::Result<()> {
        // Until it has its owner, the cache is where no worker reaches it.
        let taken = self.next_folder();
        let mut kept = (0..CACHES).map(|number| home.join(number.to_string()));
        if !kept.any(|kept| fs::rename(kept, &taken).is_ok()) {
            create_private_folder(&taken)?;
        }
        let owner = path.parent().unwrap_or(path).metadata()?;
        if owner.uid() != taken.metadata()?.uid() {
            process::give(&taken, owner.uid(), owner.gid())?;
        }
        fs::rename(&taken, path)
    }

    /// Moves the cache at `path` to `home`, or removes it if there are enough, or if a hostile worker has put something
    /// there that is not a cache of the driver.
    fn put_back(&self, path: &Path, home: &Path) -> io::Result<()> {
        if !is_plain_tree(path, LIMITS).unwrap_or(false) {
            return self.remove(path);
        }
        let mut free = (0..CACHES).map(|number| home.join(number.to_string()));
        // A folder that has kernels is not replaced.
        if free.any(|free| fs::rename(path, free).is_ok()) {
            return Ok(());
        }
        self.remove(path)
    }

    /// Removes what is at `path`, which is free at once.
    fn remove(&self, path: &Path) -> io::Result<()> {
        let away = self.next_folder();
        move_away(path, &away)?;
        self.remover.remove(away);
        Ok(())
    }
}

/// The removals of folders of workers that have ended.
struct Removals {
    workers: PathBuf,
    count: u64,
    /// The root of all caches, if it lasts as long as the node.
    _temporary: Option<TempDir>,
}

impl Removals {
    fn start(mut self) -> io::Result<Remover> {
        Remover::start(move |folder| {
            self.count += 1;
            let trash = self.workers.join(format!("trash-{}", self.count));
            if let Err(error) = remove(&folder, &trash) {
                tracing::warn!(folder = %folder.display(), %error, "the folder of a worker that has ended remains");
            }
        })
    }
}

impl Drop for Removals {
    fn drop(&mut self) {
        // If the folder is not empty, the next node removes it.
        _ = fs::remove_dir(&self.workers);
    }
}

/// Removes the caches of the workers of a node that was killed. A worker that outlived it may write without end, so a
/// thread does this.
fn remove_left(left: Vec<fs::DirEntry>, trash: PathBuf) -> io::Result<()> {
    let remove_all = move || {
        for (number, left) in left.iter().enumerate() {
            let (folder, trash) = (left.path(), trash.join(format!("left-{number}")));
            if let Err(error) = remove(&folder, &trash) {
                tracing::debug!(folder = %folder.display(), %error, "a folder of a worker that still writes remains");
            }
        }
    };
    thread::Builder::new().name("left-caches".into()).spawn(remove_all).map(drop)
}

/// The cache of one worker. Dropping it keeps the kernels. Drop it after the end of the worker.
pub(super) struct WorkerCache {
    folder: PathBuf,
    /// The folder of the caches of its tenant, or of workers without a tenant.
    home: PathBuf,
    cache: JitCache,
}

impl WorkerCache {
    /// The folder that the worker may write to.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The cache in that folder.
    pub(super) fn path(&self) -> PathBuf {
        self.folder.join("kernels")
    }

    /// Replaces the kernels by those of `tenant`. Call it once, before the worker has commands of the tenant.
    ///
    /// # Errors
    /// The file system fails.
    pub(super) fn assign(&mut self, tenant: &Tenant) -> io::Result<()> {
        // A tenant's name is a valid file name.
        let home = self.cache.0.root.join("tenants").join(tenant.as_str());
        create_private_folder(&home)?;
        self.cache.0.put_back(&self.path(), &self.home)?;
        self.home = home;
        self.cache.0.take(&self.home, &self.path())
    }
}

impl Drop for WorkerCache {
    fn drop(&mut self) {
        let kept = self.cache.0.put_back(&self.path(), &self.home);
        // A hostile worker may have put other things beside it.
        self.cache.0.remover.remove(self.folder.clone());
        if let Err(error) = kept {
            tracing::warn!(folder = %self.folder.display(), %error, "the compiled kernels of a worker are lost");
        }
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
    use std::{
        os::unix::fs::PermissionsExt,
        time::{Duration, Instant},
    };

    use super::*;

    fn tenant(name: &str) -> Tenant {
        Tenant::new(name).unwrap()
    }

    fn wait_until(what: &str, is_so: impl Fn() -> bool) {
        let started = Instant::now();
        while !is_so() {
            assert!(started.elapsed() < Duration::from_secs(600), "not so: {what}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn worker_has_the_kernels_of_its_tenant_only() {
        let root = tempfile::tempdir().unwrap();
        let cache = JitCache::open(Some(root.path())).unwrap();
        let (mut first, mut second) = (cache.for_worker().unwrap(), cache.for_worker().unwrap());
        first.assign(&tenant("a")).unwrap();
        second.assign(&tenant("b")).unwrap();
        fs::write(first.path().join("kernel"), "of a").unwrap();
        assert!(!second.path().join("kernel").exists());
        drop(first);
        let [mut third, mut fourth] = [(); 2].map(|()| cache.for_worker().unwrap());
        assert!(!third.path().join("kernel").exists());
        third.assign(&tenant("a")).unwrap();
        assert_eq!(fs::read_to_string(third.path().join("kernel")).unwrap(), "of a");
        // A cache has one worker at a time.
        fourth.assign(&tenant("a")).unwrap();
        assert!(!fourth.path().join("kernel").exists());
    }

    #[test]
    fn kernels_outlive_workers_and_nodes() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str| {
            let mut worker = JitCache::open(Some(root.path())).unwrap().for_worker().unwrap();
            worker.assign(&tenant("a")).unwrap();
            fs::write(worker.path().join(name), "").unwrap();
            fs::read_dir(worker.path()).unwrap().count()
        };
        assert_eq!((write("first"), write("second")), (1, 2));
    }

    #[test]
    fn tenant_keeps_a_limited_number_of_caches() {
        let root = tempfile::tempdir().unwrap();
        let cache = JitCache::open(Some(root.path())).unwrap();
        let workers: Vec<_> = (0..CACHES + 2)
            .map(|_| {
                let mut worker = cache.for_worker().unwrap();
                worker.assign(&tenant("a")).unwrap();
                fs::write(worker.path().join("kernel"), "").unwrap();
                worker
            })
            .collect();
        drop(workers);
        assert_eq!(fs::read_dir(root.path().join("tenants/a")).unwrap().count(), CACHES as usize);
    }

    #[test]
    fn link_in_place_of_a_cache_is_not_kept() {
        let root = tempfile::tempdir().unwrap();
        let cache = JitCache::open(Some(root.path())).unwrap();
        let mut hostile = cache.for_worker().unwrap();
        hostile.assign(&tenant("a")).unwrap();
        fs::remove_dir(hostile.path()).unwrap();
        let foreign = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(foreign.path(), hostile.path()).unwrap();
        drop(hostile);
        let mut next = cache.for_worker().unwrap();
        next.assign(&tenant("a")).unwrap();
        assert!(next.path().symlink_metadata().unwrap().is_dir());
    }

    /// Ends a worker that has put something into its cache, and returns the entries of the next worker's cache.
    fn after(hostile: impl FnOnce(&Path)) -> (usize, JitCache, TempDir) {
        let root = tempfile::tempdir().unwrap();
        let cache = JitCache::open(Some(root.path())).unwrap();
        let mut worker = cache.for_worker().unwrap();
        worker.assign(&tenant("a")).unwrap();
        hostile(&worker.path());
        drop(worker);
        wait_until("nothing remains", || fs::read_dir(&cache.0.workers).unwrap().count() == 0);
        let mut next = cache.for_worker().unwrap();
        next.assign(&tenant("a")).unwrap();
        (fs::read_dir(next.path()).unwrap().count(), cache.clone(), root)
    }

    #[test]
    fn deep_folders_are_removed() {
        let deep = |cache: &Path| {
            let parent = cache.parent().unwrap();
            let (inner, outer) = (parent.join("inner"), parent.join("outer"));
            fs::create_dir(&inner).unwrap();
            for _ in 0..10_000 {
                fs::create_dir(&outer).unwrap();
                fs::rename(&inner, outer.join("d")).unwrap();
                fs::rename(&outer, &inner).unwrap();
            }
            fs::rename(&inner, cache.join("deep")).unwrap();
        };
        assert_eq!(after(deep).0, 0);
    }

    #[test]
    fn folder_without_rights_is_removed() {
        let closed = |cache: &Path| {
            fs::create_dir_all(cache.join("closed/inner")).unwrap();
            fs::set_permissions(cache.join("closed"), fs::Permissions::from_mode(0o0)).unwrap();
            fs::set_permissions(cache.parent().unwrap(), fs::Permissions::from_mode(0o0)).unwrap();
        };
        after(closed);
    }

    #[test]
    fn only_files_of_the_cache_itself_are_kept() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let link = |cache: &Path| fs::hard_link(file.path(), cache.join("key")).unwrap();
        assert_eq!(after(link).0, 0);
        let socket = |cache: &Path| {
            std::os::unix::net::UnixListener::bind(cache.join("socket")).unwrap();
        };
        assert_eq!(after(socket).0, 0);
        let large = |cache: &Path| {
            File::create(cache.join("large")).unwrap().set_len(LIMITS.bytes + 1).unwrap();
        };
        assert_eq!(after(large).0, 0);
        assert_eq!(after(|cache| fs::write(cache.join("kernel"), "").unwrap()).0, 1);
    }

    #[test]
    fn folder_with_many_entries_is_not_kept() {
        let many = |cache: &Path| {
            for number in 0..LIMITS.entries {
                fs::write(cache.join(number.to_string()), "").unwrap();
            }
        };
        assert_eq!(after(many).0, 0);
    }

    #[test]
    fn folder_has_one_node_at_a_time() {
        let root = tempfile::tempdir().unwrap();
        let first = JitCache::open(Some(root.path())).unwrap();
        let Err(error) = JitCache::open(Some(root.path())) else {
            panic!("two nodes use a folder")
        };
        assert!(error.to_string().contains("another node uses this folder"), "{error}");
        drop(first);
        JitCache::open(Some(root.path())).unwrap();
    }

    #[test]
    fn folders_that_a_killed_node_left_are_removed() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("workers/killed/0/kernels")).unwrap();
        fs::write(root.path().join("workers/killed/0/kernels/kernel"), "").unwrap();
        let cache = JitCache::open(Some(root.path())).unwrap();
        // Only that of this node, without what moved to it.
        wait_until("the folders are removed", || {
            fs::read_dir(root.path().join("workers")).unwrap().count() == 1
                && fs::read_dir(&cache.0.workers).unwrap().count() == 0
        });
    }

    #[test]
    fn folders_of_ended_workers_are_removed() {
        let cache = JitCache::open(None).unwrap();
        let worker = cache.for_worker().unwrap();
        let folder = worker.folder().to_owned();
        assert!(folder.is_dir());
        drop(worker);
        wait_until("the folder is removed", || !folder.exists());
        let root = cache.0.root.clone();
        drop(cache);
        wait_until("the caches are removed", || !root.exists());
    }
}
