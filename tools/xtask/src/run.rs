//! Runs steps side by side.

use std::{
    env::current_exe,
    fs::{self, File},
    io::{self, IsTerminal, stdout},
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::Instant,
};

use crate::steps::Step;

/// The number of steps that run at the same time.
const SLOTS: usize = 2;

/// The outputs of the steps.
const LOGS: &str = "target/ci";

/// Runs steps and returns whether all passed. A step starts once no running step uses its folder. The output of a step
/// is printed at its end if it failed; a single step prints as it runs. With `discard`, deletes each folder of build
/// outputs that no later step uses.
pub(crate) fn all(steps: Vec<&'static Step>, discard: bool) -> bool {
    let started = Instant::now();
    let alone = steps.len() == 1;
    let mut waiting = steps;
    let mut running: Vec<&Step> = Vec::new();
    let mut failed = Vec::new();
    let (report, reports) = mpsc::channel();
    loop {
        while running.len() < SLOTS
            && let Some(next) = waiting.iter().position(|step| !shares_folder(step, &running))
        {
            let step = waiting.remove(next);
            running.push(step);
            println!("start  {:<12} at {} s", step.name, started.elapsed().as_secs());
            let report = report.clone();
            thread::spawn(move || {
                let started = Instant::now();
                let passed = run(step, alone);
                let _ = report.send((step, passed, started.elapsed().as_secs()));
            });
        }
        if running.is_empty() {
            break;
        }
        let Ok((step, passed, seconds)) = reports.recv() else { break };
        running.retain(|running| running.name != step.name);
        match &passed {
            Ok(true) => println!("ok     {:<12} {seconds} s", step.name),
            Ok(false) => {
                let output = fs::read(log(step)).unwrap_or_default();
                print!("{}", String::from_utf8_lossy(&output));
                println!("FAILED {:<12} {seconds} s", step.name);
            }
            Err(error) => println!("FAILED {:<12} cannot start: {error}", step.name),
        }
        if !matches!(passed, Ok(true)) {
            failed.push(step.name);
        }
        if let Some(folder) = step.folder
            && discard
            && folder != "target"
            && !shares_folder(step, &waiting)
        {
            // The folder may not exist.
            let _ = fs::remove_dir_all(folder);
        }
    }
    println!("{} s", started.elapsed().as_secs());
    if !failed.is_empty() {
        println!("failed: {}; run one again with `cargo xtask ci NAME`", failed.join(", "));
    }
    failed.is_empty()
}

fn shares_folder(step: &Step, others: &[&Step]) -> bool {
    step.folder.is_some() && others.iter().any(|other| other.folder == step.folder)
}

fn log(step: &Step) -> String {
    format!("{LOGS}/{}.log", step.name)
}

/// Runs a step and returns whether it passed. Its output goes to its log, or to this program's if the step runs alone.
fn run(step: &Step, alone: bool) -> io::Result<bool> {
    // `timeout` ends the whole step, but would hide it from Ctrl-C.
    let mut command = if stdout().is_terminal() {
        Command::new("bash")
    } else {
        let mut command = Command::new("timeout");
        command.args(["--verbose", &format!("{}m", step.minutes), "bash"]);
        command
    };
    command.env("XTASK", current_exe()?);
    let mut script = script(step);
    if !alone {
        // The log ends with the processor time: first that of the shell, then that of its commands.
        script.insert_str(0, "trap times EXIT\n");
    }
    // The steps of `target` take the longest together. The others use the time that they leave.
    if !alone && step.folder != Some("target") {
        script.insert_str(0, "renice -n 5 -p $$ >/dev/null || true\n");
    }
    command.args(["-euo", "pipefail", "-c", &script]).stdin(Stdio::null());
    if !alone {
        fs::create_dir_all(LOGS)?;
        let log = File::create(log(step))?;
        command.stdout(log.try_clone()?).stderr(log);
    }
    Ok(command.status()?.success())
}

/// The commands of a step: first the installation of the tools that are missing.
fn script(step: &Step) -> String {
    let tools = step.needs.iter();
    let mut script: String = tools
        .map(|tool| format!("{} >/dev/null 2>&1 || {}\n", tool.present, tool.install))
        .collect();
    script.push_str(step.script);
    script
}
