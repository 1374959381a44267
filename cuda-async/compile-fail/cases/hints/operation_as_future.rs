use std::future::Future;

use cuda_async::prelude::*;

/// The bounds of `tokio::spawn`.
fn spawn<F: Future<Output: Send + 'static> + Send + 'static>(_: F) {}

fn doubled(x: u32) -> impl DeviceOp<Output = u32> {
    value(2 * x)
}

async fn awaited() {
    let _ = value(1).await;
}

fn main() {
    spawn(awaited());
    spawn(value(1).into_future());
    spawn(doubled(1).into_future());
    spawn(h2d(vec![1u8]).then(to_host));
    spawn(doubled(1));
}
