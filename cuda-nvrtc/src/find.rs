//! Places in which the library may be.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The environment variable that names the library, or the folder that holds it.
pub(crate) const VARIABLE: &str = "CUDA_NVRTC";

/// The value of a variable that switches a feature off.
pub(crate) const OFF: &str = "off";

/// Folders of a toolkit that may hold the library, relative to its root.
const OF_TOOLKIT: [&str; 4] = ["lib64", "targets/x86_64-linux/lib", "lib", "bin"];

/// Folders of a `site-packages` folder that may hold the library.
const OF_WHEELS: [&str; 3] = ["nvidia/cuda_nvrtc/lib", "nvidia/cu13/lib", "nvidia/cuda_nvrtc/bin"];

/// Names that the system's loader may know, newest first.
const NAMES: &[&str] = if cfg!(windows) {
    &["nvrtc64_130_0.dll", "nvrtc64_120_0.dll", "nvrtc64_112_0.dll"]
} else {
    &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"]
};

/// The libraries to try, in order. The environment variable excludes everything else.
pub(crate) fn candidates(variable: impl Fn(&str) -> Option<PathBuf>) -> Vec<PathBuf> {
    if let Some(given) = variable(VARIABLE) {
        return match given.is_dir() {
            true => [given.as_path()]
                .into_iter()
                .chain(OF_TOOLKIT.map(|folder| given.join(folder)).iter().map(PathBuf::as_path))
                .flat_map(libraries)
                .collect(),
            false => vec![given],
        };
    }
    let mut folders = Vec::new();
    for root in ["CUDA_PATH", "CUDA_HOME"].into_iter().filter_map(&variable) {
        folders.extend(OF_TOOLKIT.map(|folder| root.join(folder)));
    }
    if let Some(root) = variable("VIRTUAL_ENV") {
        folders.extend(of_environment(&root));
    }
    for root in toolkits(Path::new("/usr/local")) {
        folders.extend(OF_TOOLKIT.map(|folder| root.join(folder)));
    }
    let mut found: Vec<_> = folders.iter().flat_map(|folder| libraries(folder)).collect();
    found.extend(NAMES.iter().map(PathBuf::from));
    found
}

/// Returns the libraries in the wheels of `python3`. Starts Python, so this is the last place to look.
pub(crate) fn of_python() -> Vec<PathBuf> {
    let mut command = Command::new("python3");
    command.args(["-c", "import sys; print('\\n'.join(sys.path))"]);
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output();
    let Ok(output) = output else { return Vec::new() };
    let paths = String::from_utf8_lossy(&output.stdout).into_owned();
    let folders = paths.lines().filter(|line| !line.is_empty()).map(PathBuf::from);
    folders.flat_map(|folder| of_packages(&folder)).flat_map(|folder| libraries(&folder)).collect()
}

/// Describes the places that are searched, for messages.
pub(crate) fn searched() -> String {
    match env::var_os(VARIABLE) {
        Some(value) if value == OFF => format!("the environment variable {VARIABLE} is `{OFF}`"),
        Some(value) => format!("{VARIABLE} is `{}`, which is neither NVRTC nor a folder with it", value.to_string_lossy()),
        None => "looked in CUDA_PATH, CUDA_HOME, VIRTUAL_ENV, /usr/local/cuda*, the library path and the packages of python3".to_owned(),
    }
}

/// The folders of CUDA's headers that belong to a library: of its toolkit, or of NVIDIA's wheels beside it.
pub(crate) fn header_folders(library: &Path) -> Vec<PathBuf> {
    let mut roots = library.ancestors().skip(2).take(3);
    let folders = roots.by_ref().flat_map(|root| {
        ["include", "cuda_runtime/include", "cu13/include"].map(|folder| root.join(folder))
    });
    folders.filter(|folder| folder.join("cuda_fp16.h").is_file()).collect()
}

/// The libraries in a folder, newest first.
fn libraries(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut found: Vec<_> = paths.filter(|path| is_library(path)).collect();
    found.sort_by_key(|path| std::cmp::Reverse(numbers(path)));
    found
}

fn is_library(path: &Path) -> bool {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return false };
    if cfg!(windows) {
        return name.starts_with("nvrtc64_") && name.ends_with(".dll") && !name.contains("alt");
    }
    name == "libnvrtc.so" || name.starts_with("libnvrtc.so.")
}

/// Returns the libraries of built-in functions that NVRTC opens by name. In some wheels, the loader cannot find them.
pub(crate) fn builtins(library: &Path) -> Vec<PathBuf> {
    let Some(entries) = library.parent().and_then(|folder| fs::read_dir(folder).ok()) else {
        return Vec::new();
    };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let is_builtins = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("libnvrtc-builtins.so.") || name.starts_with("nvrtc-builtins64_")
    };
    paths.filter(is_builtins).collect()
}

/// The numbers in the name of a file, to compare versions.
fn numbers(path: &Path) -> Vec<u32> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    name.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
}

/// The toolkits `cuda*` in a folder, newest first.
fn toolkits(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let is_toolkit = |path: &PathBuf| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("cuda"))
    };
    let mut found: Vec<_> = paths.filter(is_toolkit).collect();
    found.sort_by_key(|path| std::cmp::Reverse(numbers(path)));
    // The link `cuda` is the toolkit that the administrator chose.
    found.sort_by_key(|path| !path.ends_with("cuda"));
    found
}

/// The folders of wheels of a Python environment.
fn of_environment(root: &Path) -> Vec<PathBuf> {
    let versions = fs::read_dir(root.join("lib")).into_iter().flatten();
    let versions = versions.filter_map(|entry| Some(entry.ok()?.path().join("site-packages")));
    let all: Vec<_> = versions.chain([root.join("Lib/site-packages")]).collect();
    all.iter().flat_map(|folder| of_packages(folder)).collect()
}

fn of_packages(folder: &Path) -> Vec<PathBuf> {
    OF_WHEELS.map(|wheel| folder.join(wheel)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }

    #[test]
    #[cfg(not(windows))]
    fn toolkits_and_environments_are_searched_in_order() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let old = root.join("cuda/lib64/libnvrtc.so.12");
        let new = root.join("cuda/lib64/libnvrtc.so.13");
        let wheel =
            root.join("venv/lib/python3.11/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12");
        [&old, &new, &wheel].into_iter().for_each(|path| empty(path));
        empty(&root.join("cuda/lib64/libnvrtc-builtins.so.12.4"));
        let found = candidates(|name| match name {
            "CUDA_PATH" => Some(root.join("cuda")),
            "VIRTUAL_ENV" => Some(root.join("venv")),
            _ => None,
        });
        assert_eq!(found[..3], [new.clone(), old.clone(), wheel.clone()]);
        assert!(found.ends_with(&NAMES.iter().map(PathBuf::from).collect::<Vec<_>>()));
        assert_eq!(builtins(&old).len(), 1);
        let only = |given: PathBuf| candidates(|name| (name == VARIABLE).then(|| given.clone()));
        assert_eq!(only(root.join("cuda")), [new.clone(), old]);
        assert_eq!(only(wheel.clone()), [wheel]);
        assert!(only(root.join("venv")).is_empty());
    }

    #[test]
    fn headers_of_toolkits_and_wheels_are_found() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        empty(&root.join("cuda/include/cuda_fp16.h"));
        empty(&root.join("nvidia/cuda_runtime/include/cuda_fp16.h"));
        let of = |library: &str| header_folders(&root.join(library));
        assert_eq!(of("cuda/lib64/libnvrtc.so.12"), [root.join("cuda/include")]);
        let wheel = "nvidia/cuda_nvrtc/lib/libnvrtc.so.12";
        assert_eq!(of(wheel), [root.join("nvidia/cuda_runtime/include")]);
        assert!(of("elsewhere/lib/libnvrtc.so.12").is_empty());
    }
}
