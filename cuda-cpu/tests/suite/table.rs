//! The table of differences in `benches/results`.

use std::fmt::Write as _;

use crate::case::{Theme, themes};
use crate::{Verdict, golden_verdict};

const HEAD: &str = "\
# The suite of kernels, NVIDIA H200, 2026-11-21

What compilers make of `kernels/suite/*.cu`, run by `cuda-run --device cuda` on an NVIDIA H200 (driver 580.159.04) and on
the CPU device, compared bit by bit. Written by `cargo test -p cuda-cpu --test suite table -- --ignored`. PTX for targets
after sm_90, which an H200 does not load, is held to the results of the same source for sm_90.

";

#[test]
#[ignore = "a tool: writes the table"]
fn table() {
    let mut rows = String::new();
    let (mut runs, mut exact, mut elements, mut differ) = (0, 0, 0, 0);
    let mut worst: Vec<Verdict> = Vec::new();
    for theme in themes() {
        for variant in &theme.variants {
            let verdicts: Vec<Verdict> =
                theme.cases.iter().filter_map(|case| golden_verdict(case, variant)).collect();
            runs += verdicts.len();
            exact += verdicts.iter().filter(|v| v.difference.count == 0).count();
            elements += verdicts.iter().map(|v| v.elements).sum::<usize>();
            differ += verdicts.iter().map(|v| v.difference.count).sum::<usize>();
            rows += &row(&theme, variant, &verdicts);
            worst.extend(verdicts.into_iter().filter(|v| v.difference.count > 0));
        }
    }
    let themes = themes();
    let kernels: usize = themes.iter().map(Theme::kernels).sum();
    let mut text = format!(
        "{HEAD}{kernels} kernels in {} sources, {runs} runs, {elements} elements. {exact} runs are the same bit for bit; {differ} \
         elements differ.\n\n| source | compiler | target | options | cases | elements | differ | largest ulp |\n\
         |---|---|---|---|---:|---:|---:|---:|\n{rows}",
        themes.len()
    );
    if !worst.is_empty() {
        text += "\n## Where something differs\n\n| run | elements | differ | largest ulp |\n|---|---:|---:|---:|\n";
    }
    for v in worst {
        let d = &v.difference;
        _ = writeln!(text, "| `{}` | {} | {} | {} |", v.name, v.elements, d.count, d.ulp);
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../benches/results/2026-11-21-h200-suite.md");
    std::fs::write(path, text).unwrap();
}

fn row(theme: &Theme, variant: &str, verdicts: &[Verdict]) -> String {
    let mut parts = variant.splitn(3, '-');
    let mut part = || parts.next().unwrap_or_default();
    let (compiler, target, options) = (part(), part(), part());
    let elements: usize = verdicts.iter().map(|v| v.elements).sum();
    let differ: usize = verdicts.iter().map(|v| v.difference.count).sum();
    let ulp = verdicts.iter().map(|v| v.difference.ulp).max().unwrap_or(0);
    format!(
        "| {} | {compiler} | {target} | {options} | {} | {elements} | {differ} | {ulp} |\n",
        theme.name,
        verdicts.len()
    )
}
