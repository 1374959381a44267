//! The list of steps. Help, the full run, the fast run and the workflows use it.

/// A check of the repository.
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) runs: Runs,
    /// The folder of its build outputs. Steps with the same folder run one after another.
    pub(crate) folder: Option<&'static str>,
    /// The limit of its duration, which reports a hang. It includes the installation of tools.
    pub(crate) minutes: u32,
    pub(crate) needs: &'static [Tool],
    /// Runs in bash, in the root of the repository.
    pub(crate) script: &'static str,
}

/// The runs that a step is part of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Runs {
    /// The full run.
    Full,
    /// `cargo xtask ci --fast`. The full run has a step that does more.
    Fast,
    /// Both.
    Both,
    /// Neither: a step of the workflows, which run each step on a machine of its own. It compiles much again that the
    /// full run has compiled, and would take the full run beyond half an hour on two cores.
    Apart,
}

/// A program that a step needs, and that a machine with Rust may lack.
pub(crate) struct Tool {
    /// The command that succeeds if the tool is installed.
    pub(crate) present: &'static str,
    pub(crate) install: &'static str,
}

// Debug builds of the tools: they compile in half the time.
const MDBOOK: Tool = Tool {
    present: "command -v mdbook",
    install: "cargo install mdbook --version 0.5.4 --locked --debug --no-default-features --features search",
};
const CARGO_DENY: Tool = Tool {
    present: "command -v cargo-deny",
    install: "cargo install cargo-deny --version 0.20.2 --locked --debug --no-default-features",
};
const OLDEST_RUST: Tool = Tool {
    present: "cargo +1.89 --version",
    install: "rustup toolchain install 1.89 --profile minimal",
};
const NIGHTLY: Tool = Tool {
    present: "cargo +nightly --version",
    install: "rustup toolchain install nightly --profile minimal",
};
const MIRI: Tool = Tool {
    present: "cargo +nightly miri --version",
    install: "rustup toolchain install nightly --profile minimal --component miri,rust-src",
};
const CHROMIUM: Tool = Tool {
    present: "test -n \"${CHROMIUM:-}\" || command -v chromium",
    install: "bash .ci/install chromium",
};
const VENV: Tool =
    Tool { present: "python3 -c 'import ensurepip'", install: "bash .ci/install python3-venv" };

const UNZIP: Tool = Tool { present: "command -v unzip", install: "bash .ci/install unzip" };

/// All steps. Of those that wait, the first whose folder is unused starts next: the long ones of `target` run one after
/// another, beside the others.
pub(crate) const STEPS: &[Step] = &[
    Step {
        name: "format",
        about: "rustfmt",
        runs: Runs::Both,
        folder: None,
        minutes: 5,
        needs: &[],
        script: "cargo fmt --all --check",
    },
    Step {
        name: "layers",
        about: "folders use each other without rings",
        runs: Runs::Both,
        folder: Some("target/tools"),
        minutes: 10,
        needs: &[],
        script: "bash .ci/layers",
    },
    Step {
        name: "clippy",
        about: "warnings are errors; all features",
        runs: Runs::Both,
        folder: Some("target"),
        minutes: 20,
        needs: &[],
        script: "cargo clippy --workspace --all-targets --all-features -- -D warnings",
    },
    Step {
        name: "unit",
        about: "unit tests of what changed since `main`",
        runs: Runs::Fast,
        folder: Some("target"),
        minutes: 20,
        needs: &[],
        script: "bash .ci/unit",
    },
    Step {
        name: "doc",
        about: "the documentation without warnings",
        runs: Runs::Full,
        folder: Some("target"),
        minutes: 10,
        needs: &[],
        // With the features of `clippy`, so that its outputs are used. rustdoc links to a crate of the workspace only
        // if its folder exists.
        script: "mkdir -p target/doc/cuda_{async,core,cpu,driver,lease,node,nvrtc,ptx,tensor}
            RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --all-features",
    },
    Step {
        name: "test",
        about: "the README's test command: all tests, and the programs of the book",
        runs: Runs::Full,
        folder: Some("target"),
        minutes: 60,
        needs: &[],
        // Many tests wait for a network, a process or a clock.
        script: "RUST_TEST_THREADS=$((2 * $(getconf _NPROCESSORS_ONLN))) cargo test --workspace",
    },
    Step {
        name: "browser",
        about: "the status page and the page of the example server, in Chromium",
        runs: Runs::Full,
        folder: Some("target"),
        minutes: 20,
        needs: &[CHROMIUM],
        // With the features of `test`, so that its outputs are used.
        script: "cargo test --workspace --test status_page --test page -- --ignored --test-threads=1",
    },
    Step {
        name: "python",
        about: "the client in Python against a node",
        runs: Runs::Full,
        folder: Some("target"),
        minutes: 20,
        needs: &[VENV],
        script: "bash .ci/python-client",
    },
    Step {
        name: "nvrtc",
        about: "tests with NVRTC; the committed PTX, except that of cuda-tensor, is that of the sources",
        runs: Runs::Full,
        folder: Some("target"),
        minutes: 20,
        needs: &[VENV],
        script: "bash .ci/nvrtc",
    },
    Step {
        name: "ptxas",
        about: "the loader of PTX takes and refuses what NVIDIA's assembler does",
        runs: Runs::Full,
        folder: Some("target"),
        minutes: 20,
        needs: &[VENV],
        // With the features of `test`, so that its outputs are used.
        script: "PTXAS=$(bash .ci/ptxas) cargo test --workspace --test ptxas -- --ignored",
    },
    Step {
        name: "tidy",
        about: "no unfinished code, spelling, links and quotes of the pages",
        runs: Runs::Full,
        folder: Some("target/tools"),
        minutes: 20,
        needs: &[VENV],
        script: "bash .ci/tidy
            bash .ci/pages",
    },
    Step {
        name: "book",
        about: "the book builds",
        runs: Runs::Full,
        folder: None,
        minutes: 20,
        needs: &[MDBOOK],
        script: "mdbook build book",
    },
    Step {
        name: "deny",
        about: "licenses, duplicates and sources of dependencies; advisories",
        runs: Runs::Apart,
        folder: None,
        minutes: 30,
        needs: &[CARGO_DENY],
        script: "cargo deny check licenses bans sources
            if git ls-remote --quiet https://github.com/RustSec/advisory-db >/dev/null 2>&1; then
                cargo deny check advisories
            else
                echo 'advisories were not checked: their database cannot be reached'
            fi",
    },
    Step {
        name: "loom",
        about: "loom models",
        runs: Runs::Full,
        folder: Some("target/loom"),
        minutes: 20,
        needs: &[],
        script: "bash .ci/loom",
    },
    Step {
        name: "sanitizers",
        about: "unsafe code under AddressSanitizer and ThreadSanitizer",
        runs: Runs::Full,
        folder: Some("target/sanitizers"),
        minutes: 30,
        needs: &[NIGHTLY],
        script: "bash .ci/sanitizers",
    },
    Step {
        name: "miri",
        about: "unit tests of pure modules under Miri",
        runs: Runs::Apart,
        folder: Some("target/miri"),
        minutes: 30,
        needs: &[MIRI],
        script: "bash .ci/miri",
    },
    Step {
        name: "digits",
        about: "the README's main command",
        runs: Runs::Full,
        folder: Some("target/release"),
        minutes: 20,
        needs: &[],
        script: "bash .ci/digits",
    },
    Step {
        name: "msrv",
        about: "the oldest supported compiler",
        runs: Runs::Apart,
        folder: Some("target/check"),
        minutes: 20,
        needs: &[OLDEST_RUST],
        // Without the feature `candle`: candle needs a newer compiler.
        script: "cargo +1.89 check --workspace --target-dir target/check",
    },
    Step {
        name: "features",
        about: "each feature alone and each pair",
        runs: Runs::Apart,
        folder: Some("target/check"),
        minutes: 30,
        needs: &[],
        // `cargo xtask` would wait for the builds in `target`.
        script: "$XTASK features cuda-core cuda-async cuda-tensor cuda-lease cuda-run",
    },
    Step {
        name: "fuzz",
        about: "the fuzz targets build",
        runs: Runs::Apart,
        folder: Some("target/check"),
        minutes: 20,
        needs: &[],
        script: "cargo check --locked --manifest-path fuzz/Cargo.toml --target-dir target/check",
    },
    Step {
        name: "peers",
        about: "the benchmarks with other libraries build",
        runs: Runs::Apart,
        folder: Some("target/check"),
        minutes: 20,
        needs: &[VENV, UNZIP],
        script: "target=$PWD/target/check
            (cd benches/peers/ptoxide && cargo check --locked --target-dir $target)
            bash benches/peers/cuda_async_0_5/build.sh check --target-dir $target",
    },
];
