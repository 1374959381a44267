use cuda_async::cuda_core::{NoticeSink, protocol::Notice};

struct Sink;

impl NoticeSink for Sink {
    unsafe fn notice(&self, _: Notice) {}
}

fn main() {}
