//! Checks crates with each feature alone and with each pair of features.

use std::{fs, process::Command};

/// Checks each crate without features, with each feature alone and with each pair. Tests are not compiled. The outputs
/// are in a folder of their own, because each set of features compiles other dependencies.
pub(crate) fn check(crates: &[&str]) -> bool {
    let mut failed = Vec::new();
    for krate in crates {
        let manifest = format!("{krate}/Cargo.toml");
        let text = match fs::read_to_string(&manifest) {
            Ok(text) => text,
            Err(error) => {
                eprintln!("failed to read {manifest}: {error}");
                return false;
            }
        };
        for set in sets(&names(&text)) {
            println!("{krate}: {set}");
            // Prints only errors and warnings.
            let cargo = Command::new("cargo")
                .args(["check", "--quiet", "--no-default-features", "--features", &set])
                .args(["--target-dir", "target/check", "--package", krate])
                .output();
            let passed = cargo.is_ok_and(|cargo| {
                eprint!("{}", String::from_utf8_lossy(&cargo.stderr));
                cargo.status.success() && cargo.stderr.is_empty()
            });
            if !passed {
                failed.push(format!("{krate}: {set}"));
            }
        }
    }
    failed.iter().for_each(|set| eprintln!("failed: {set}"));
    failed.is_empty()
}

/// Returns the names in the section `[features]` of a manifest, without `default`.
fn names(manifest: &str) -> Vec<&str> {
    let section = manifest.lines().skip_while(|line| *line != "[features]").skip(1);
    section
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split_once(" = "))
        .map(|(name, _)| name)
        .filter(|name| *name != "default")
        .collect()
}

/// Returns the empty set, the sets of one feature and those of two, as arguments of `--features`.
fn sets(features: &[&str]) -> Vec<String> {
    let mut sets = vec![String::new()];
    for (at, first) in features.iter().enumerate() {
        sets.push((*first).to_owned());
        sets.extend(features[at + 1..].iter().map(|second| format!("{first},{second}")));
    }
    sets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_have_at_most_two_features() {
        assert_eq!(sets(&["a", "b", "c"]), ["", "a", "a,b", "a,c", "b", "b,c", "c"]);
    }

    #[test]
    fn names_are_those_of_the_section() {
        let manifest = "[package]\nname = \"x\"\n\n[features]\ndefault = [\"a\"]\n## Text.\na = [\n    \"dep:b\",\n]\nb = []\n\n[dependencies]\nc = \"1\"\n";
        assert_eq!(names(manifest), ["a", "b"]);
    }
}
