//! Continues texts with a small transformer, one character at a time, on a GPU or on the CPU.
//!
//! ```text
//! cargo run --release --example decode                            # on the first GPU, else on the CPU
//! cargo run --release --example decode -- --device cpu --tokens 100
//! cargo run --release --example decode -- --batch 8 --repeat 20   # long enough to measure a GPU
//! cargo run --release --example decode -- --prompt "The door"
//! ```
//!
//! The program prints the texts, and the characters per second of three ways to launch the same work: kernel by kernel,
//! as a graph that is recorded once and replayed for each character, and with the graph cache of the device. The texts
//! are the same in all of them, and on every device.
//!
//! The example shows a loop that stays on the device. A step reads its position from a `DeviceScalar`, and its last
//! kernel chooses the next characters and advances the position. So every step submits the same work, and the host
//! waits only once.

mod options;

use std::{
    error::Error,
    fs::File,
    io::{Write, stdout},
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Parser;
use cuda_async::{Stream, prelude::*};
use examples::decode::{Mode, Model, Session, Symbols, Weights, generate};
use ndarray::Array2;
use ndarray_npy::WriteNpyExt;

use options::Options;

/// Generates the texts `repeat` times in a mode, and returns them with the shortest duration.
fn measure(
    session: &mut Session,
    mode: Mode,
    options: &Options,
    stream: &Stream,
) -> Result<(Vec<Symbols>, Duration), Box<dyn Error>> {
    let graph = mode.prepare(session, stream)?;
    let mut best = None;
    for _ in 0..options.repeat.get() {
        let start = Instant::now();
        let texts = generate(session, graph.as_ref(), options.tokens)?.sync_on(stream)?;
        let took = start.elapsed();
        if best.as_ref().is_none_or(|(_, shortest)| took < *shortest) {
            best = Some((texts, took));
        }
    }
    best.ok_or_else(|| "no generation was run".into())
}

/// Writes the symbols of all texts as rows of one length. Shorter texts end with the number 255, which is not a symbol.
fn save(path: &Path, texts: &[Symbols]) -> Result<(), Box<dyn Error>> {
    let longest = texts.iter().map(Symbols::len).max().unwrap_or_default();
    let rows = texts.iter().flat_map(|text| {
        let mut row = text.as_slice().to_vec();
        row.resize(longest, 255);
        row
    });
    let table = Array2::from_shape_vec((texts.len(), longest), rows.collect())?;
    let failed = |error: &dyn Error| format!("cannot write {}: {error}", path.display());
    let file = File::create(path).map_err(|error| failed(&error))?;
    Ok(table.write_npy(file).map_err(|error| failed(&error))?)
}

fn run(options: &Options, device: &Device) -> Result<(), Box<dyn Error>> {
    let mut out = stdout();
    let info = device.info();
    writeln!(out, "device {} ({})", info.address, info.name)?;

    let stream = device.new_stream()?;
    let model = Model::upload(device, &Weights::load()?)?.sync_on(&stream)?;
    let mut session = Session::new(&model, &options.prompts()?)?.sync_on(&stream)?;
    let (steps, sequences) = (session.steps(options.tokens), session.sequences());

    let mut first: Option<Vec<Symbols>> = None;
    let mut table = String::from(
        "| mode | sequences | tokens per second | microseconds per step |\n|---|---:|---:|---:|\n",
    );
    for mode in options.modes() {
        let (texts, took) = measure(&mut session, mode, options, &stream)?;
        let seconds = took.as_secs_f64();
        let (speed, step) =
            ((steps * sequences) as f64 / seconds, seconds * 1e6 / steps.max(1) as f64);
        table += &format!("| {} | {sequences} | {speed:.0} | {step:.1} |\n", mode.name());
        match &first {
            None => {
                for text in &texts {
                    writeln!(out, "--------\n{text}")?;
                }
                first = Some(texts);
            }
            Some(first) if *first != texts => {
                return Err(
                    format!("mode {} gave other texts than the first mode", mode.name()).into()
                );
            }
            Some(_) => {}
        }
    }
    writeln!(out, "--------\n{steps} steps, with those that read the prompts\n")?;
    if steps > 0 {
        write!(out, "{table}")?;
    }
    if let (Some(path), Some(texts)) = (&options.save, &first) {
        save(path, texts)?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let options = Options::parse();
    let device = match options.device() {
        Ok(device) => device,
        Err(error) => {
            eprintln!("decode: {error}");
            return ExitCode::from(4);
        }
    };
    match run(&options, &device) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("decode: {error}");
            ExitCode::FAILURE
        }
    }
}
