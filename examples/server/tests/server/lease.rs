//! The server on a device of a node in this process.

use std::time::Duration;

use cuda_async::Error;
use cuda_cpu::CpuProvider;
use cuda_lease::LeaseBuilder;
use cuda_node::supervisor::{DeviceOptions, Node, NodeOptions};
use server_example::Classifier;
use tokio::task::spawn_blocking;

use crate::{
    Result,
    server::{LIMITS, Server, images},
};

fn start_node() -> cuda_async::Result<Node> {
    let device = DeviceOptions::in_process(CpuProvider::default());
    Node::start(NodeOptions::loopback(vec![device]))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_on_a_lease_answers_and_ends_with_its_node() -> Result {
    let node = spawn_blocking(start_node).await??;
    // The client does not wait for a node that is gone.
    let request = LeaseBuilder::new(node.address().to_string()).resume_within(Duration::ZERO);
    let lease = spawn_blocking(move || request.acquire_blocking()).await??;
    let device = lease.device().clone();
    let server = Server::loading(LIMITS, Classifier::load(device)).await?;
    server.until("/health", |response| response.contains("ready, device lease://")).await?;
    let response = server.post("/classify", &images(0..3)?).await?;
    assert!(response.ends_with("[0,1,2]"), "{response}");
    let memory = server.get("/metrics").await?;
    assert!(crate::client::value(&memory, "digits_device_memory_bytes")? > 26e3);

    spawn_blocking(move || drop(node)).await?;
    // The server detects the loss at the next batch.
    let lost = server.post("/classify", &images(0..1)?).await?;
    assert!(!lost.starts_with("HTTP/1.1 200"), "{lost}");
    let error = server.ended().await?.unwrap_err();
    assert!(Error::is_sticky(&error), "{error}");
    Ok(())
}
