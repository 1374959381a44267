//! Measures branches of a graph.

use std::error::Error;

use benches::{Effort, Way, done, raw::Raw, raw_graph::RawGraph, report};
use cuda_async::prelude::*;

use crate::ours::Ours;

const NANOS: u32 = 200_000;

pub fn measure(raw: Option<&Raw>, ours: &Ours) -> Result<(), Box<dyn Error>> {
    let lane = raw.map(|raw| raw.lane(4096)).transpose()?;
    // SAFETY: the stream is `ours`, which lives until the end of this function.
    let lane = lane.map(|lane| unsafe { lane.on(ours.raw_stream()) });
    let raw_graph = lane.as_ref().map(|lane| RawGraph::branches(lane, 3, NANOS));
    let words = || zeros::<u64>(1).sync_on(&ours.stream);
    let one = ours.timed(words()?, NANOS).graph_on(&ours.stream)?;
    let branch = |x| ours.timed(x, NANOS);
    let three = zip!(branch(words()?), branch(words()?), branch(words()?));
    let three = three.graph_on(&ours.stream)?;
    one.upload()?;
    three.upload()?;
    let mut ways = Vec::new();
    if let (Some(lane), Some(graph)) = (&lane, &raw_graph) {
        ways.push(Way::new("raw driver, `cuGraphLaunch` of three", || {
            graph.launch();
            lane.synchronize();
        }));
    }
    ways.extend([
        Way::new("a graph of one", || _ = done(one.launch().sync_on(&ours.stream))),
        Way::new("a graph of three in `zip!`", || _ = done(three.launch().sync_on(&ours.stream))),
    ]);
    report("kernels of 200 us", ways, Effort { rounds: 20, in_a_row: 10 });
    Ok(())
}
