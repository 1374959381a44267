//! `Cache`: compiled texts on disk, and compilation with them.

use std::{
    env,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering},
    time::SystemTime,
};

use crate::{
    error::Result,
    find::OFF,
    nvrtc::Nvrtc,
    options::Options,
    ptx::Ptx,
    source::{Source, digest},
};

/// The environment variable that names the folder, or switches the cache off.
const VARIABLE: &str = "CUDA_NVRTC_CACHE";

/// The maximum size of a cache, 256 MiB, unless [`Cache::with_limit`] sets another one.
pub const MAX_CACHE_BYTES: u64 = 256 << 20;

/// The start of an entry. The digest of the text follows, and a line end.
const HEADER: &str = "cuda-nvrtc 1 ";

/// The suffix of an entry.
const SUFFIX: &str = "nvrtc-ptx";

/// Compiled texts in a folder. The name of an entry is a digest of the source, its headers, the options, the version of
/// NVRTC and the path of the headers of CUDA.
///
/// Several processes may use one folder: an entry is written under another name and then renamed. An entry that is
/// damaged or cannot be read is ignored. If the cache cannot be written, later compilations take longer, but there is
/// no error. When the entries are larger than the limit, those that were used least recently are removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
    /// `None`: off.
    folder: Option<PathBuf>,
    limit: u64,
}

impl Cache {
    /// Returns the cache of the user: the folder in `CUDA_NVRTC_CACHE`, or `cuda-nvrtc` in the folder for caches of the
    /// system. It is off if the variable is `off`, or if there is no such folder.
    pub fn of_user() -> Self {
        Self {
            folder: folder(|name| {
                env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
            }),
            limit: MAX_CACHE_BYTES,
        }
    }

    /// Returns a cache in `folder`, which is created when the first entry is written.
    pub fn in_folder(folder: impl Into<PathBuf>) -> Self {
        Self { folder: Some(folder.into()), limit: MAX_CACHE_BYTES }
    }

    /// Returns a cache that keeps nothing.
    pub const fn off() -> Self {
        Self { folder: None, limit: 0 }
    }

    /// Sets the maximum size of all entries in bytes.
    pub const fn with_limit(mut self, bytes: u64) -> Self {
        self.limit = bytes;
        self
    }

    /// Returns the folder, or `None` if the cache is off.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// Returns the text of an entry, and marks it as used.
    fn get(&self, key: &str) -> Option<String> {
        let path = self.path(key)?;
        let entry = fs::read_to_string(&path).ok()?;
        let (sum, text) = entry.strip_prefix(HEADER)?.split_once('\n')?;
        if digest(&[text]) != sum {
            return None;
        }
        // A failure makes the entry look older, so that it is evicted earlier.
        _ = File::options()
            .append(true)
            .open(&path)
            .and_then(|file| file.set_modified(SystemTime::now()));
        Some(text.to_owned())
    }

    /// Stores a text, and removes entries that were used least recently if all together are larger than the limit.
    fn put(&self, key: &str, text: &str) {
        if let Some(path) = self.path(key)
            && let Some(folder) = path.parent()
            && write(folder, &path, text).is_ok()
        {
            _ = evict(folder, &path, self.limit);
        }
    }

    fn path(&self, key: &str) -> Option<PathBuf> {
        Some(self.folder.as_ref()?.join(format!("{key}.{SUFFIX}")))
    }
}

/// Compiles a source with the library of this machine, or returns the text of an earlier compilation from the user's
/// cache. Blocks: a compilation takes 10 ms to several seconds.
///
/// # Errors
/// As [`Nvrtc::find_for`] and [`Nvrtc::compile`].
pub fn compile(source: &Source, options: &Options) -> Result<Ptx> {
    compile_with(Nvrtc::find_for(source)?, &Cache::of_user(), source, options)
}

/// Compiles a source with the given library and cache.
///
/// # Errors
/// As [`Nvrtc::compile`].
pub fn compile_with(
    nvrtc: &Nvrtc,
    cache: &Cache,
    source: &Source,
    options: &Options,
) -> Result<Ptx> {
    cached(nvrtc, cache, source, options, false)
}

/// Compiles a source as [`compile_with`] does, and adds the types of the kernels' parameters, as
/// [`Nvrtc::compile_with_types`] does.
///
/// # Errors
/// As [`Nvrtc::compile`].
pub fn compile_with_types(
    nvrtc: &Nvrtc,
    cache: &Cache,
    source: &Source,
    options: &Options,
) -> Result<Ptx> {
    cached(nvrtc, cache, source, options, true)
}

/// As [`compile_with`]. With `with_types`, the text also states the types of the kernels' parameters.
fn cached(
    nvrtc: &Nvrtc,
    cache: &Cache,
    source: &Source,
    options: &Options,
    with_types: bool,
) -> Result<Ptx> {
    let key = key(nvrtc, source, options, with_types);
    if let Some(text) = cache.get(&key) {
        return Ok(Ptx { text, log: String::new() });
    }
    let ptx = match with_types {
        true => nvrtc.compile_with_types(source, options)?,
        false => nvrtc.compile(source, options)?,
    };
    cache.put(&key, &ptx.text);
    Ok(ptx)
}

/// Returns the name of the entry for a compilation.
fn key(nvrtc: &Nvrtc, source: &Source, options: &Options, with_types: bool) -> String {
    let (major, minor) = nvrtc.version();
    let kind = if with_types { "types" } else { "plain" };
    let library = nvrtc.library().to_string_lossy();
    digest(&[kind, source.name(), &source.digest(options), &format!("{major}.{minor}"), &library])
}

/// The folder of the user's cache.
fn folder(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    if let Some(given) = variable(VARIABLE) {
        return (given != Path::new(OFF)).then_some(given);
    }
    let of_system = variable("XDG_CACHE_HOME").or_else(|| {
        if cfg!(windows) {
            return variable("LOCALAPPDATA");
        }
        let inside = if cfg!(target_os = "macos") { "Library/Caches" } else { ".cache" };
        variable("HOME").map(|home| home.join(inside))
    });
    of_system.filter(|folder| folder.is_absolute()).map(|folder| folder.join("cuda-nvrtc"))
}

/// Writes an entry so that another process sees either the whole entry or none.
fn write(folder: &Path, path: &Path, text: &str) -> io::Result<()> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    create(folder)?;
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let temporary = path.with_extension(format!("{}-{number}.tmp", process::id()));
    let written = fs::write(&temporary, format!("{HEADER}{}\n{text}", digest(&[text])));
    let renamed = written.and_then(|()| fs::rename(&temporary, path));
    if renamed.is_err() {
        _ = fs::remove_file(&temporary);
    }
    renamed
}

/// Creates the folder. Only the user may write to it, because a GPU runs its contents.
fn create(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Removes entries that were used least recently until the others have at most `limit` bytes. Keeps `newest`. Files of
/// processes that were killed while they wrote count too.
fn evict(folder: &Path, newest: &Path, limit: u64) -> io::Result<()> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let ours =
            path.extension().is_some_and(|extension| extension == SUFFIX || extension == "tmp");
        if let (true, Ok(metadata)) = (ours, fs::metadata(&path)) {
            entries.push((
                metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH),
                metadata.len(),
                path,
            ));
        }
    }
    entries.sort();
    let mut total: u64 = entries.iter().map(|(_, bytes, _)| bytes).sum();
    for (_, bytes, path) in entries {
        if total <= limit {
            break;
        }
        if path != newest && fs::remove_file(&path).is_ok() {
            total -= bytes;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{thread, time::Duration};

    use super::*;

    fn cache() -> (tempfile::TempDir, Cache) {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::in_folder(folder.path().join("new/folder"));
        (folder, cache)
    }

    /// Makes an entry look as if it was used `seconds` ago.
    fn age(cache: &Cache, key: &str, seconds: u64) {
        let file = File::options().append(true).open(cache.path(key).unwrap()).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).unwrap();
    }

    #[test]
    fn stored_text_is_returned() {
        let (_folder, cache) = cache();
        assert_eq!(cache.get("a"), None);
        cache.put("a", "text\nof a");
        cache.put("b", "");
        assert_eq!(cache.get("a").as_deref(), Some("text\nof a"));
        assert_eq!(cache.get("b").as_deref(), Some(""));
        let off = Cache::off();
        off.put("a", "text");
        assert_eq!(off.get("a"), None);
    }

    #[test]
    fn damaged_entries_are_ignored_and_replaced() {
        let (_folder, cache) = cache();
        cache.put("a", "text of a");
        let path = cache.path("a").unwrap();
        let entry = fs::read_to_string(&path).unwrap();
        for damaged in
            ["", "cuda-nvrtc 1 ", &entry[..entry.len() - 1], &entry.replace("of", "on"), "\0"]
        {
            fs::write(&path, damaged).unwrap();
            assert_eq!(cache.get("a"), None, "{damaged:?}");
        }
        fs::write(&path, [0xff; 100]).unwrap();
        assert_eq!(cache.get("a"), None);
        cache.put("a", "text of a");
        assert!(cache.get("a").is_some());
    }

    #[test]
    fn least_recently_used_entries_are_evicted() {
        let (_folder, cache) = cache();
        let text = "x".repeat(1000);
        let keys: Vec<_> = (0..20).map(|index| format!("{:x}", index * 7919 % 65536)).collect();
        for (index, key) in keys.iter().enumerate() {
            cache.put(key, &text);
            age(&cache, key, 1000 - index as u64);
        }
        assert!(cache.get(&keys[3]).is_some(), "a use makes it the newest");
        // Each entry has less than 1,100 bytes: ten fit, one of them the new one.
        cache.clone().with_limit(11_000).put("d", &text);
        let expected = keys.iter().enumerate().filter(|(index, _)| *index == 3 || *index > 11);
        let kept: Vec<_> = keys.iter().filter(|key| cache.path(key).unwrap().exists()).collect();
        assert_eq!(kept, expected.map(|(_, key)| key).collect::<Vec<_>>());
        let small = cache.clone().with_limit(10);
        small.put("e", &text);
        assert!(small.get("e").is_some(), "the newest entry stays");
        assert!(small.get(&keys[19]).is_none());
    }

    #[test]
    fn concurrent_writers_leave_a_whole_entry() {
        let (_folder, cache) = cache();
        let text = "y".repeat(1 << 16);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        cache.put("a", &text);
                        assert_eq!(cache.get("a").as_ref(), Some(&text));
                    }
                });
            }
        });
        let left = fs::read_dir(cache.folder().unwrap()).unwrap().count();
        assert_eq!(left, 1, "no temporary file is left");
    }

    #[test]
    fn variables_choose_the_folder() {
        let of = |name: &'static str, value: &'static str| {
            folder(move |asked| (asked == name).then(|| PathBuf::from(value)))
        };
        assert_eq!(of(VARIABLE, "/c"), Some("/c".into()));
        assert_eq!(of(VARIABLE, "off"), None);
        assert_eq!(of("NONE", ""), None);
        if cfg!(unix) {
            assert_eq!(of("XDG_CACHE_HOME", "/x"), Some("/x/cuda-nvrtc".into()));
            assert_eq!(of("XDG_CACHE_HOME", "relative"), None);
        }
    }

    #[test]
    fn folder_that_cannot_be_written_is_no_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let cache = Cache::in_folder(file.path());
        cache.put("a", "text");
        assert_eq!(cache.get("a"), None);
    }
}
