//! Plain processes that use the GPU without a node.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use super::{Failure, MEMORY, neighbor::Pipeline, tenants};

/// A process of this program in another role. Dropping it kills the process.
struct Process(Child);

impl Process {
    /// Starts a process, and waits until it has printed a line.
    fn start(role: &str) -> Result<(Self, BufReader<std::process::ChildStdout>), Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg(role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let out = child.stdout.take().ok_or("the process has no output")?;
        let mut out = BufReader::new(out);
        out.read_line(&mut String::new())?;
        Ok((Self(child), out))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// The role of a process that runs pipelines: prints their number each time that a line arrives.
pub fn work() -> Result<(), Failure> {
    let device = cuda_async::open_blocking("cuda:0")?;
    let pipeline = Pipeline::new(&device)?;
    let expected = pipeline.run()?;
    let (sender, lines) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        std::io::stdin().lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
    });
    println!("ready");
    let mut count = 0u64;
    loop {
        if pipeline.run()? != expected {
            return Err("a plain process computed other bits".into());
        }
        count += 1;
        match lines.try_recv() {
            Ok(_) => println!("{count}"),
            Err(std::sync::mpsc::TryRecvError::Empty) => {}
            Err(_) => return Ok(()),
        }
    }
}

/// The role of a process with an endless kernel.
pub fn endless() -> Result<(), Failure> {
    let device = cuda_async::open_blocking("cuda:0")?;
    let endless = tenants::start_endless(&device, MEMORY)?;
    println!("ready");
    Err(match endless.join() {
        Ok(Err(error)) => error.into(),
        _ => "the endless kernel ended".into(),
    })
}

/// The pipelines per second of a plain process.
pub fn rate_of_work(time: Duration) -> Result<f64, Failure> {
    let (mut process, mut out) = Process::start("plain-work")?;
    let input = process.0.stdin.as_mut().ok_or("the process has no input")?;
    let mut count = || -> Result<(f64, Instant), Failure> {
        input.write_all(b"\n")?;
        let mut line = String::new();
        out.read_line(&mut line)?;
        Ok((line.trim().parse()?, Instant::now()))
    };
    let (before, started) = count()?;
    std::thread::sleep(time);
    let (after, ended) = count()?;
    Ok((after - before) / (ended - started).as_secs_f64())
}

/// The pipelines per second of a plain process beside one with an endless kernel.
pub fn rate_beside_endless(time: Duration) -> Result<f64, Failure> {
    let _endless = Process::start("plain-endless")?;
    rate_of_work(time)
}
