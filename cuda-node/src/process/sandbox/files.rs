//! The files of a worker: libraries, GPUs, `/proc`, `/sys` without cgroups, and its cache.
//!
//! [`View`] lists them once. [`View::become_root`] builds a root folder of them in a mount namespace, and
//! [`View::restrict`] makes Landlock refuse all others. Either one suffices to keep the worker from the files of its
//! user. Landlock also works in a container that may not mount.

use std::{
    env, fs, io, mem,
    os::{
        fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd},
        unix::fs::symlink,
    },
    path::{Path, PathBuf},
};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, PathFd, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, RulesetStatus, Scope, path_beneath_rules,
};
use rustix::{
    fs::{AtFlags, CWD},
    mount::{
        MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags,
        UnmountFlags,
    },
    thread::{UnshareFlags, unshare_unsafe},
};

use crate::process::error::at;

/// Folders and files in which libraries are, and the driver's settings. Not `/usr` or `/opt`, where an operator may keep
/// a key.
const LIBRARIES: [&str; 16] = [
    "/lib",
    "/lib32",
    "/lib64",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/local/lib64",
    "/usr/local/nvidia",
    "/usr/share/nvidia",
    "/nix/store",
    "/run/opengl-driver",
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/nvidia",
    "/etc/vulkan",
];

/// Files and folders of `/proc` and `/sys` that a worker does not see.
///
/// `/sys/fs` has the cgroups: a worker that locks the folder of its own one would pass for one whose node lives, and the next
/// node would not end it. The others show the state of the whole kernel: their reader keeps all other processes from locks of
/// the kernel, of files, inodes or pages, while it counts what may be millions.
const HIDDEN: [&str; 11] = [
    "/sys/fs",
    "/sys/firmware",
    "/proc/fs",
    "/proc/locks",
    "/proc/buddyinfo",
    "/proc/kallsyms",
    "/proc/pagetypeinfo",
    "/proc/slabinfo",
    "/proc/timer_list",
    "/proc/vmallocinfo",
    "/proc/zoneinfo",
];

/// Files of `/proc/self` that a worker does not see: they list all mounts of its namespace. A reader of mounts keeps all other
/// processes from mounting, and the start of a worker mounts.
const HIDDEN_OF_PROCESS: [&str; 3] = ["mountinfo", "mounts", "mountstats"];

/// Files and folders of `/proc/self` that it can read.
const READABLE_OF_PROCESS: [&str; 6] = [
    "/proc/self/cmdline",
    "/proc/self/fd",
    "/proc/self/maps",
    "/proc/self/stat",
    "/proc/self/statm",
    "/proc/self/status",
];

/// The name of the process, and the folder with the names of its threads. The driver does not start if it cannot write them.
/// The folder also contains lists of mounts. A worker cannot read those, because it may only write below the folder.
const NAME_OF_PROCESS: &str = "/proc/self/comm";
const THREADS_OF_PROCESS: &str = "/proc/self/task";

/// Devices that libraries open.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// Folders in which the new root can be built. The mount there is private, and what it hides is bound before.
const STAGES: [&str; 4] = ["/tmp", "/run", "/mnt", "/dev"];

/// The newest version of Landlock whose restrictions are asked for. Older kernels give fewer.
const LANDLOCK: ABI = ABI::V6;

/// The device files of all GPUs, and of the driver.
pub(super) fn all_gpus() -> Vec<PathBuf> {
    entries("/dev", "nvidia")
}

/// The entries of a folder whose names begin with `prefix`.
fn entries(folder: &str, prefix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let named = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(prefix);
    entries.filter(named).map(|entry| entry.path()).collect()
}

/// The files of a worker.
pub(super) struct View {
    /// Files and folders to read.
    readable: Vec<PathBuf>,
    /// Symbolic links, and their targets.
    links: Vec<(PathBuf, PathBuf)>,
    devices: Vec<PathBuf>,
    writable: Option<PathBuf>,
}

impl View {
    /// The files that exist. The worker may write to `writable`, and opens `devices`.
    pub(super) fn new(writable: Option<PathBuf>, devices: Vec<PathBuf>) -> Self {
        let mut view = Self { readable: Vec::new(), links: Vec::new(), devices, writable };
        view.devices.extend(DEVICES.map(PathBuf::from));
        view.devices.retain(|path| path.exists());
        for path in LIBRARIES.map(PathBuf::from).into_iter().chain(entries("/usr/local", "cuda")) {
            view.read(path);
        }
        let library_path = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        for path in env::split_paths(&library_path).filter(|path| path.is_absolute()) {
            let Ok(target) = fs::canonicalize(&path) else { continue };
            if !view.has(&path) && target != path {
                view.links.push((path, target.clone()));
            }
            view.read(target);
        }
        view
    }

    /// Whether the worker can read this path, if it exists.
    fn has(&self, path: &Path) -> bool {
        let links = self.links.iter().map(|(link, _)| link);
        self.readable.iter().chain(links).any(|readable| path.starts_with(readable))
    }

    fn read(&mut self, path: PathBuf) {
        if self.has(&path) || path == Path::new("/") {
            return;
        }
        match fs::symlink_metadata(&path) {
            Ok(file) if file.is_symlink() => {
                if let Ok(target) = fs::read_link(&path) {
                    self.links.push((path, target));
                }
            }
            Ok(_) => self.readable.push(path),
            Err(_) => {}
        }
    }

    /// Makes these files the root folder of this process, in a mount namespace of its own.
    ///
    /// # Errors
    /// The process may not mount. It keeps the root that it has.
    pub(super) fn become_root(&self) -> io::Result<()> {
        // SAFETY: the flag is not `FILES`, so no thread loses descriptors.
        unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        rustix::mount::mount_change("/", private)?;

        let read = MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NOSUID;
        let no_devices = MountAttrFlags::MOUNT_ATTR_NODEV;
        let no_programs = MountAttrFlags::MOUNT_ATTR_NOEXEC;
        // Bound before the stage hides one of them.
        let mut trees = vec![tree("/sys", read | no_devices | no_programs)?];
        for path in &self.readable {
            trees.push(tree(path, read | no_devices)?);
        }
        for path in &self.devices {
            trees.push(tree(path, read | no_programs)?);
        }
        if let Some(path) = &self.writable {
            let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | no_devices | no_programs;
            trees.push(tree(path, attributes)?);
        }
        let no_setuid = MountAttrFlags::MOUNT_ATTR_NOSUID;
        trees.push(tree("/proc", no_setuid | no_devices | no_programs)?);

        let stage = STAGES.iter().map(Path::new).find(|stage| stage.is_dir());
        let stage = stage.ok_or_else(|| io::Error::other("the machine has no folder /tmp"))?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        let options = c"mode=755,size=1m,nr_inodes=4096";
        rustix::mount::mount("tmpfs", stage, "tmpfs", flags, options)?;
        let built = self.build(stage, trees);
        if built.is_err() {
            rustix::mount::unmount(stage, UnmountFlags::DETACH)?;
        }
        built?;
        // The old root ends up on top of the new one, from where it is removed.
        rustix::process::chdir(stage)?;
        rustix::process::pivot_root(".", ".")?;
        rustix::mount::unmount(".", UnmountFlags::DETACH)?;
        rustix::process::chdir("/")?;
        let flags = MountFlags::BIND | MountFlags::RDONLY | flags;
        Ok(rustix::mount::mount_remount("/", flags, "")?)
    }

    /// Attaches the trees and creates the links in the new root. Hides [`HIDDEN`].
    fn build(&self, stage: &Path, trees: Vec<Tree>) -> io::Result<()> {
        for tree in trees {
            let target = in_stage(stage, &tree.path)?;
            if tree.is_folder {
                fs::create_dir_all(&target)?;
            } else {
                fs::File::create(&target)?;
            }
            tree.attach(&target)?;
        }
        for (path, target) in &self.links {
            symlink(target, in_stage(stage, path)?)?;
        }
        let own = PathBuf::from(format!("/proc/{}", std::process::id()));
        let of_process = HIDDEN_OF_PROCESS.map(|name| own.join(name));
        for hidden in HIDDEN.map(PathBuf::from).into_iter().chain(of_process) {
            let hidden = in_stage(stage, &hidden)?;
            if hidden.is_dir() {
                let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
                let (flags, options) =
                    (flags | MountFlags::RDONLY, c"mode=555,size=4k,nr_inodes=2");
                rustix::mount::mount("tmpfs", &hidden, "tmpfs", flags, options)?;
            } else if hidden.exists() {
                let no_use = MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_RDONLY;
                tree("/dev/null", no_use)?.attach(&hidden)?;
            }
        }
        Ok(())
    }

    /// Makes Landlock refuse all other files, and signals to other processes. `root` is the error of
    /// [`become_root`](Self::become_root).
    ///
    /// # Errors
    /// Neither the root folder nor Landlock is in force, or Landlock failed.
    pub(super) fn restrict(&self, root: Option<io::Error>) -> Result<(), String> {
        let status = self.landlock().map_err(|error| format!("Landlock failed: {error}"))?;
        match (status, root) {
            (RulesetStatus::NotEnforced, Some(error)) => {
                Err(format!("no mount namespace ({error}), and the kernel has no Landlock"))
            }
            _ => Ok(()),
        }
    }

    fn landlock(&self) -> Result<RulesetStatus, landlock::RulesetError> {
        let all = AccessFs::from_all(LANDLOCK);
        let read = AccessFs::ReadFile | AccessFs::ReadDir;
        // The driver opens files to write with `fopen`, which truncates them.
        let write = AccessFs::WriteFile | AccessFs::Truncate;
        let device: BitFlags<AccessFs> = read | write | AccessFs::IoctlDev;
        // A rule holds for all that is beneath its folder.
        let is_hidden = |path: &PathBuf| HIDDEN.iter().any(|hidden| path == Path::new(hidden));
        let is_process = |path: &PathBuf| {
            let name = path.strip_prefix("/proc").ok().and_then(Path::to_str);
            name.is_some_and(|name| name.parse::<u32>().is_ok())
        };
        let kernel = [entries("/sys", ""), entries("/proc", "")].concat().into_iter();
        // The links of `/proc` lead to this process, also that of the network.
        let kernel =
            kernel.filter(|path| !is_hidden(path) && !is_process(path) && !path.is_symlink());
        // A rule applies to an inode. The kernel drops unused inodes of `/proc` when memory is short, and creates new ones
        // without the rule. An open descriptor keeps the inode.
        for path in READABLE_OF_PROCESS.into_iter().chain([NAME_OF_PROCESS, THREADS_OF_PROCESS]) {
            mem::forget(PathFd::new(path));
        }
        let status = Ruleset::default()
            .handle_access(all)?
            .handle_access(AccessNet::from_all(LANDLOCK))?
            .scope(Scope::from_all(LANDLOCK))?
            .create()?
            .add_rules(path_beneath_rules(&self.readable, read))?
            .add_rules(path_beneath_rules(kernel, read))?
            .add_rules(path_beneath_rules(["/proc"], AccessFs::ReadDir))?
            .add_rules(path_beneath_rules(READABLE_OF_PROCESS, read))?
            .add_rules(path_beneath_rules([NAME_OF_PROCESS], read | write))?
            .add_rules(path_beneath_rules([THREADS_OF_PROCESS], write))?
            .add_rules(path_beneath_rules(&self.devices, device))?
            .add_rules(path_beneath_rules(&self.writable, all))?
            // A worker could fill the audit log of the machine with refusals.
            .log_same_exec(false)?
            .restrict_self()?;
        Ok(status.ruleset)
    }
}

/// The path in the new root, whose parent is created.
fn in_stage(stage: &Path, path: &Path) -> io::Result<PathBuf> {
    let target = stage.join(path.strip_prefix("/").unwrap_or(path));
    if let Some(parent) = target.parent() {
        fs::create_dir_all(parent)?;
    }
    Ok(target)
}

/// Mounts that have no place yet.
struct Tree {
    /// Their place in the new root.
    path: PathBuf,
    is_folder: bool,
    mounts: OwnedFd,
}

impl Tree {
    /// Gives the mounts a place.
    fn attach(&self, target: &Path) -> io::Result<()> {
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        let moved = rustix::mount::move_mount(&self.mounts, "", CWD, target, flags);
        moved.map_err(|error| at(&self.path, &error.into()))
    }
}

/// A copy of the mounts at a path, with these attributes.
fn tree(path: impl AsRef<Path>, attributes: MountAttrFlags) -> io::Result<Tree> {
    let path = path.as_ref();
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE;
    let mounts = rustix::mount::open_tree(CWD, path, flags);
    let mounts = mounts.map_err(|error| at(path, &error.into()))?;
    set_attributes(mounts.as_fd(), attributes).map_err(|error| at(path, &error))?;
    Ok(Tree { path: path.to_owned(), is_folder: path.is_dir(), mounts })
}

/// Sets attributes of all mounts of a tree.
fn set_attributes(tree: BorrowedFd<'_>, attributes: MountAttrFlags) -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: attributes.bits().into(),
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    let flags = AtFlags::EMPTY_PATH.bits() | OpenTreeFlags::AT_RECURSIVE.bits();
    // SAFETY: the path is a C string, and the kernel reads as many bytes of the attributes as they have.
    let failed = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if failed != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
