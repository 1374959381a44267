//! Exchange of files with a GPU machine: `write` stores the inputs of `kernels/suite/run.py`, `update` reads its
//! results.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::case::{Arg, Case, Role, folder, themes, unpack};
use crate::compare::hash;
use crate::golden::{judged_by, sorted_lines};
use crate::npy;

/// The folder in which `write` stores the files for the GPU. `run.py` stores its results below it.
fn place() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("suite")
}

/// Returns the file of an array. The same rule, type and length have the same file.
fn input_file(case: &Case, index: usize) -> String {
    format!("{}.{}.{index}.npy", case.theme, case.name)
}

#[test]
#[ignore = "a tool: writes inputs and command lines for a GPU"]
fn write() {
    let place = place();
    _ = std::fs::remove_dir_all(&place);
    for sub in ["in", "ptx"] {
        std::fs::create_dir_all(place.join(sub)).unwrap();
    }
    let mut commands = String::new();
    for theme in themes() {
        for file in theme.files() {
            let text = unpack(&folder().join("ptx").join(&file));
            std::fs::write(place.join("ptx").join(file.trim_end_matches(".gz")), text).unwrap();
        }
        for case in &theme.cases {
            write_inputs(case, &place.join("in"));
            for variant in &theme.variants {
                _ = writeln!(commands, "{}", command(case, variant));
            }
        }
    }
    std::fs::write(place.join("commands"), commands).unwrap();
    println!("wrote {}", place.display());
}

fn write_inputs(case: &Case, to: &Path) {
    for (i, arg) in case.args.iter().enumerate() {
        match arg {
            Arg::Array { ty, role: Role::In | Role::InOut, .. } => {
                npy::write(&to.join(input_file(case, i)), *ty, &case.input(i));
            }
            Arg::Struct(_) => {
                std::fs::write(to.join(input_file(case, i)).with_extension("bin"), case.input(i))
                    .unwrap();
            }
            _ => {}
        }
    }
}

/// Returns a tab-separated line: a name, then the arguments of `cuda-run`. `OUT/` stands for the output folder.
fn command(case: &Case, variant: &str) -> String {
    let three = |d: [u32; 3]| d.map(|x| x.to_string()).join(",");
    let mut words = vec![
        format!("{}:{}", judged_by(variant), case.full_name(variant)),
        format!("ptx/{}.{variant}.ptx", case.theme),
        case.kernel().to_string(),
    ];
    for (i, arg) in case.args.iter().enumerate() {
        let input = input_file(case, i);
        let output = format!("OUT/{}.{i}.npy", case.full_name(variant));
        words.push(match arg {
            Arg::Scalar(ty, value) => format!("{}={value}", ty.name()),
            Arg::Struct(_) => format!("bytes=@in/{}", input.replace(".npy", ".bin")),
            Arg::Array { role: Role::In, .. } => format!("in=@in/{input}"),
            Arg::Array { role: Role::InOut, .. } => {
                format!("inout=@in/{}@{}", input.replace('@', "@@"), output.replace('@', "@@"))
            }
            Arg::Array { ty, count, .. } => format!("out={}:{count}@{output}", ty.name()),
        });
    }
    words.push(format!("--grid={}", three(case.grid)));
    words.push(format!("--block={}", three(case.block)));
    words.push(format!("--shared={}", case.shared));
    words.join("\t")
}

#[test]
#[ignore = "a tool: takes a GPU's results into golden/, and writes the table of differences"]
fn update() {
    let results = place().join("cuda");
    for theme in themes() {
        let (mut text, mut bin) = (String::new(), Vec::new());
        for variant in theme.variants.iter().filter(|v| judged_by(v) == **v) {
            for case in &theme.cases {
                update_case(case, variant, &results, &mut text, &mut bin);
            }
        }
        std::fs::write(folder().join(format!("golden/{}.txt", theme.name)), text).unwrap();
        let file = folder().join(format!("golden/{}.bin", theme.name));
        if bin.is_empty() {
            _ = std::fs::remove_file(file);
        } else {
            std::fs::write(file, bin).unwrap();
        }
    }
}

fn update_case(case: &Case, variant: &str, results: &Path, text: &mut String, bin: &mut Vec<u8>) {
    let full = case.full_name(variant);
    for (i, _) in case.outputs() {
        let Some(bytes) = npy::read(&results.join(format!("{full}.{i}.npy"))) else {
            println!("no result: {full} {i}");
            continue;
        };
        _ = write!(text, "{variant} {} {i} {:016x}", case.name, hash(&bytes));
        if case.ulp > 0 || case.floor > 0.0 {
            _ = write!(text, " {} {}", bin.len(), bytes.len());
            bin.extend(&bytes);
        }
        text.push('\n');
    }
    if case.prints {
        match std::fs::read_to_string(results.join(format!("{full}.printed"))) {
            Ok(printed) => {
                _ = writeln!(
                    text,
                    "{variant} {} printed {:016x}",
                    case.name,
                    hash(&sorted_lines(&printed))
                );
            }
            Err(_) => println!("nothing printed: {full}"),
        }
    }
}

#[test]
#[ignore = "a tool: runs every case and lists those that do not load, or fault"]
fn runs() {
    let failed = |case: &Case, variant: &str| {
        let started = std::time::Instant::now();
        let failure = crate::device::run(case, variant).err();
        let seconds = started.elapsed().as_secs_f64();
        if failure.is_some() || seconds > 0.5 {
            let why = failure.unwrap_or_default();
            println!("{} {seconds:.2} s {why}", case.full_name(variant));
        }
        None
    };
    crate::all::<crate::Verdict, _>(failed);
}

#[test]
#[ignore = "a tool: shows where results differ from those that `run.py` brought"]
fn explain() {
    use crate::compare::compare;
    let results = place().join("cuda");
    let differ = |case: &Case, variant: &str| {
        let full = case.full_name(variant);
        let judge = case.full_name(&judged_by(variant));
        let Ok(got) = crate::device::run(case, variant) else { return None };
        for ((i, ty), bytes) in case.outputs().into_iter().zip(&got.outputs) {
            let Some(want) = npy::read(&results.join(format!("{judge}.{i}.npy"))) else { continue };
            let d = compare(ty, bytes, &want, 0, 0.0);
            if let Some((at, what)) = d.first {
                println!(
                    "{full} {i}: {} of {} differ, at most {} ulp; [{at}] {what}",
                    d.count, d.elements, d.ulp
                );
            }
        }
        if case.prints {
            let printed = std::fs::read_to_string(results.join(format!("{judge}.printed")))
                .unwrap_or_default();
            if sorted_lines(&printed) != sorted_lines(&got.printed) {
                println!("{full} printed\n{}instead of\n{printed}", got.printed);
            }
        }
        None
    };
    crate::all::<crate::Verdict, _>(differ);
}
