//! Checks small crates with and without rings.
// Helper functions of tests may panic.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;

use layers::{Error, Folder, Report, Ring, check};

/// Writes the files below `src/` and checks the crate.
fn report(files: &[(&str, &str)]) -> Result<Report, Error> {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = folder.path().join("src").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    check(folder.path())
}

fn faults(files: &[(&str, &str)]) -> Vec<Ring> {
    let folders = report(files).unwrap().folders;
    folders.iter().flat_map(Folder::faults).cloned().collect()
}

/// Formats each step as `from file:line path`.
fn steps(ring: &Ring) -> Vec<String> {
    let file = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    let step = |(node, edge): &(layers::Node, layers::Edge)| {
        format!("{} {}:{} {}", node.name, file(&edge.file), edge.line, edge.path)
    };
    ring.steps.iter().map(step).collect()
}

/// The only fault of a crate.
fn ring(files: &[(&str, &str)]) -> Vec<String> {
    let faults = faults(files);
    assert_eq!(faults.len(), 1, "{faults:?}");
    steps(&faults[0])
}

const LOW: (&str, &str) = ("low/mod.rs", "pub mod item;");
const HIGH: (&str, &str) = ("high/mod.rs", "pub mod user;");
const USER: (&str, &str) =
    ("high/user.rs", "use crate::low::item::Low;\npub struct High(Low);\npub fn free() {}");

#[test]
fn folders_without_a_ring_pass() {
    let files = [
        ("lib.rs", "mod low; mod high; pub use low::item::Low; pub use high::user::High;"),
        LOW,
        HIGH,
        USER,
        ("low/item.rs", "pub struct Low;"),
    ];
    let report = report(&files).unwrap();
    assert_eq!(report.folders[0].layers[..2], [["lib.rs", "low/"].as_slice(), &["high/"]]);
    assert!(report.folders.iter().all(|folder| folder.rings.is_empty()), "{report:?}");
}

#[test]
fn direct_import_closes_a_ring() {
    let files = [
        ("lib.rs", "mod low; mod high;"),
        LOW,
        HIGH,
        USER,
        ("low/item.rs", "pub struct Low;\nuse crate::high::user::High;"),
    ];
    assert_eq!(
        ring(&files),
        ["low/ item.rs:2 crate::high::user::High", "high/ user.rs:1 crate::low::item::Low"]
    );
}

#[test]
fn root_reexport_is_resolved() {
    let files = [
        ("lib.rs", "mod low; mod high; pub use high::user::High as Renamed;"),
        LOW,
        HIGH,
        USER,
        ("low/item.rs", "use crate::{Renamed};\npub struct Low;"),
    ];
    assert_eq!(ring(&files)[0], "low/ item.rs:1 crate::Renamed");
}

#[test]
fn chain_of_reexports_is_resolved() {
    let files = [
        ("lib.rs", "mod low; mod high; pub mod names { pub use crate::high::Public; }"),
        LOW,
        ("high/mod.rs", "mod user; pub(crate) use self::user::High as Public;"),
        USER,
        ("low/item.rs", "pub struct Low;\npub fn f(_: crate::names::Public) {}"),
    ];
    assert_eq!(ring(&files)[0], "low/ item.rs:2 crate::names::Public");
}

#[test]
fn glob_reexport_is_resolved() {
    let files = [
        ("lib.rs", "mod low; mod high; pub use high::*;"),
        LOW,
        ("high/mod.rs", "mod user; pub use user::*;"),
        USER,
        ("low/item.rs", "pub struct Low;\n\nuse crate::High;"),
    ];
    assert_eq!(ring(&files)[0], "low/ item.rs:3 crate::High");
}

#[test]
fn glob_import_counts_the_names_that_occur() {
    let user = |text| {
        [
            ("lib.rs", "mod low; mod high; mod prelude;"),
            ("prelude.rs", "pub use crate::high::user::*;"),
            LOW,
            HIGH,
            USER,
            ("low/item.rs", text),
        ]
    };
    let used = user("use crate::prelude::*;\npub struct Low;\npub fn f(_: High) {}");
    assert_eq!(ring(&used)[0], "low/ item.rs:3 crate::prelude::High");
    let unused = user("use crate::high::user::*;\npub struct Low;");
    assert_eq!(ring(&unused)[0], "low/ item.rs:1 crate::high::user");
}

#[test]
fn inline_path_closes_a_ring() {
    for (line, path) in [
        ("pub fn f() { crate::high::user::free() }", "crate::high::user::free"),
        (
            "pub fn f() { assert!({ super::super::high::user::free(); true }) }",
            "super::super::high::user::free",
        ),
        ("use crate::high; pub fn f() { high::user::free() }", "high::user::free"),
        ("macro_rules! m { () => { $crate::high::user::free() } }", "crate::high::user::free"),
        ("impl From<crate::high::user::High> for Low {}", "crate::high::user::High"),
    ] {
        let text = format!("pub struct Low;\n{line}");
        let item = ("low/item.rs", text.as_str());
        let files = [("lib.rs", "mod low; mod high;"), LOW, HIGH, USER, item];
        assert_eq!(ring(&files)[0], format!("low/ item.rs:2 {path}"), "{line}");
    }
}

#[test]
fn exported_macro_is_used_through_the_root() {
    let files = [
        ("lib.rs", "mod low; mod high;"),
        LOW,
        ("high/mod.rs", "use crate::low::item::Low;\n#[macro_export]\nmacro_rules! m { () => {} }"),
        ("low/item.rs", "pub struct Low;\npub fn f() { crate::m!() }"),
    ];
    assert_eq!(ring(&files)[0], "low/ item.rs:2 crate::m");
}

#[test]
fn tests_and_loom_models_are_excluded() {
    let files = [
        ("lib.rs", "mod low; mod high; #[cfg(all(test, loom))] mod loom_models;"),
        LOW,
        HIGH,
        USER,
        (
            "low/item.rs",
            "pub struct Low;\n#[cfg(test)] mod tests { use crate::high::user::High; }\n
            #[cfg(loom)] use crate::high::user::free;",
        ),
    ];
    assert_eq!(faults(&files), []);
}

#[test]
fn three_files_in_a_ring_fail_and_two_pass() {
    let files = |c| {
        [
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "use crate::b::B; pub struct A;"),
            ("b.rs", "use crate::{a::A, c::C}; pub struct B;"),
            ("c.rs", c),
        ]
    };
    let pair = report(&files("pub struct C;")).unwrap();
    assert_eq!(pair.folders[0].faults().count(), 0);
    assert_eq!(pair.folders[0].rings[0].steps.len(), 2);
    let three = ring(&files("use crate::a::A; pub struct C;"));
    let expected =
        ["a.rs a.rs:1 crate::b::B", "b.rs b.rs:1 crate::c::C", "c.rs c.rs:1 crate::a::A"];
    assert_eq!(three, expected);
}

#[test]
fn two_pairs_that_share_a_file_fail() {
    let files = [
        ("lib.rs", "mod a; mod b; mod c;"),
        ("a.rs", "use crate::{b::B, c::C}; pub struct A;"),
        ("b.rs", "use crate::a::A; pub struct B;"),
        ("c.rs", "use crate::a::A; pub struct C;"),
    ];
    let faults = faults(&files);
    assert_eq!((faults.len(), faults[0].steps.len(), faults[0].others.len()), (1, 2, 1));
}

#[test]
fn nested_folders_have_graphs_of_their_own() {
    let files = [
        ("lib.rs", "mod engine;"),
        ("engine/mod.rs", "mod run; mod plan;"),
        ("engine/plan.rs", "mod step;\npub struct Plan;"),
        ("engine/plan/step.rs", "use crate::engine::run::lane::Lane;\nuse super::Plan;"),
        ("engine/run/mod.rs", "pub mod lane;\nuse super::plan::Plan;"),
        ("engine/run/lane.rs", "pub struct Lane;"),
    ];
    let expected =
        ["run/ mod.rs:2 super::plan::Plan", "plan/ step.rs:1 crate::engine::run::lane::Lane"];
    assert_eq!(ring(&files), expected);
}

#[test]
fn path_attributes_are_followed() {
    let files = [
        ("lib.rs", "mod low; #[path = \"other/place.rs\"] mod high;"),
        LOW,
        ("other/place.rs", "pub mod user;"),
        ("other/user.rs", USER.1),
        ("low/item.rs", "pub struct Low;\nuse crate::high::user::High;"),
    ];
    assert_eq!(ring(&files).len(), 2);
}

#[test]
fn unreadable_crates_are_errors() {
    assert!(matches!(report(&[]), Err(Error::NoRoot(_))));
    let missing = report(&[("lib.rs", "\nmod absent;")]);
    assert!(matches!(missing, Err(Error::NoModule { line: 2, .. })));
    let broken = report(&[("lib.rs", "fn f( {}")]);
    assert!(matches!(broken, Err(Error::Parse { line: 1, .. })));
}
