//! The program `server`: options, devices, signals and its exit status.

use std::{
    net::SocketAddr,
    process::{Output, Stdio},
};

use cuda_cpu::CpuProvider;
use cuda_node::supervisor::{DeviceOptions, Node, NodeOptions};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::timeout,
};

use crate::{
    Result, client,
    server::{LONG, images},
};

fn command(options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_server"));
    command.args(["--listen", "127.0.0.1:0"]).args(options);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

async fn output(options: &[&str]) -> Result<Output> {
    Ok(timeout(LONG, command(options).output()).await??)
}

/// The running program.
struct Program {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    address: SocketAddr,
}

impl Program {
    /// Starts the program, and waits until it is ready on the device.
    async fn start(options: &[&str], device: &str) -> Result<Self> {
        let mut child = command(options).spawn()?;
        let stdout = child.stdout.take().ok_or("no stdout")?;
        let mut lines = BufReader::new(stdout).lines();
        let listening = timeout(LONG, lines.next_line()).await??.unwrap_or_default();
        let address = listening.strip_prefix("listening on http://").ok_or(listening.clone())?;
        let mut program = Self { child, lines, address: address.parse()? };
        let ready = program.line().await?;
        assert!(ready.starts_with(&format!("ready, device {device}")), "{ready}");
        Ok(program)
    }

    async fn line(&mut self) -> Result<String> {
        Ok(timeout(LONG, self.lines.next_line()).await??.unwrap_or_default())
    }

    async fn classifies(&self) -> Result {
        let response = client::request(self.address, "POST /classify", &images(0..2)?).await?;
        assert!(response.ends_with("[0,1]"), "{response}");
        Ok(())
    }

    /// Sends a signal, and waits until the program has ended.
    async fn ends_after(mut self, signal: Signal) -> Result {
        let id = self.child.id().ok_or("the program has ended")?;
        kill_process(Pid::from_raw(id.try_into()?).ok_or("no process")?, signal)?;
        assert_eq!(self.line().await?, "shutting down");
        assert_eq!(self.line().await?, "all requests are answered");
        let status = timeout(LONG, self.child.wait()).await??;
        assert!(status.success(), "{status}");
        Ok(())
    }
}

#[tokio::test]
async fn program_ends_after_each_signal() -> Result {
    for signal in [Signal::TERM, Signal::INT] {
        let program = Program::start(&["--device", "cpu"], "cpu").await?;
        program.classifies().await?;
        program.ends_after(signal).await?;
    }
    Ok(())
}

#[tokio::test]
async fn program_runs_on_a_lease() -> Result {
    let device = DeviceOptions::in_process(CpuProvider::default());
    let node = Node::start(NodeOptions::loopback(vec![device]))?;
    let address = format!("lease://{}", node.address());
    let program = Program::start(&["--device", &address], "lease://").await?;
    program.classifies().await?;
    program.ends_after(Signal::TERM).await?;
    drop(node);
    Ok(())
}

#[tokio::test]
async fn program_refuses_bad_options() -> Result {
    for options in [["--queue", "0"], ["--batch", "many"], ["--connections", "0"]] {
        let output = output(&options).await?;
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8(output.stderr)?.contains(options[0]));
    }
    let output = output(&["--device", "tpu"]).await?;
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8(output.stderr)?;
    assert!(message.starts_with("server: no device `tpu`; available:"), "{message}");
    Ok(())
}

#[tokio::test]
async fn program_prints_a_trace() -> Result {
    let mut program = Program::start(&["--device", "cpu", "--trace"], "cpu").await?;
    let stderr = program.child.stderr.take().ok_or("no stderr")?;
    let trace = tokio::spawn(async move {
        let mut lines = BufReader::new(stderr).lines();
        let mut traced = false;
        // Reads to the end, so that the program never waits for the pipe.
        while let Some(line) = lines.next_line().await? {
            traced |= line.contains("operation{name=\"batch\"}");
        }
        Ok::<_, std::io::Error>(traced)
    });
    program.classifies().await?;
    program.ends_after(Signal::TERM).await?;
    assert!(trace.await??);
    Ok(())
}
