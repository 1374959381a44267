#![deny(unused_must_use)]

use cuda_async::prelude::*;

fn double(x: u32) -> impl DeviceOp<Output = u32> {
    value(2 * x)
}

fn main() {
    double(3);
    value(4).map(|x| x + 1);
}
