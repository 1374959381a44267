//! Measures chains of small launches: one by one, as a graph, and through the graph cache.

use std::{cell::Cell, error::Error};

use benches::{
    Effort, Way, done,
    raw::{LEN, Lane, Raw},
    raw_graph::RawGraph,
    report,
};
use cuda_async::prelude::*;

use crate::ours::{Changing, Ours};

pub fn measure(raw: Option<&Raw>, ours: &Ours) -> Result<(), Box<dyn Error>> {
    let lane = raw.map(|raw| raw.lane(LEN * 4)).transpose()?;
    // SAFETY: the stream is `ours`, which lives until the end of this function.
    let lane = lane.map(|lane| unsafe { lane.on(ours.raw_stream()) });
    for (launches, rounds) in [(1, 200), (2, 200), (3, 200), (10, 200), (100, 40), (1000, 10)] {
        chain(raw, lane.as_ref(), ours, launches, rounds)?;
    }
    Ok(())
}

fn chain(
    raw: Option<&Raw>,
    lane: Option<&Lane<'_>>,
    ours: &Ours,
    launches: usize,
    rounds: usize,
) -> Result<(), Box<dyn Error>> {
    let raw_graph = lane.map(|lane| RawGraph::chain(lane, launches));
    let (graph, factor) = (ours.graph(launches)?, Cell::new(0.0_f32));
    let own = graph.launch().sync_on(&ours.stream)?;
    let other = Cell::new(0);
    ours.x.lend(|x| ours.address(&x).map(|it| { other.set(it); x }));
    let addresses = [ours.address(&own)?, other.get()];
    println!("{addresses:x?} {:x?}", lane.map(|it| it.x));
    let raws = raw.zip(lane).map(|(raw, lane)| addresses.map(|x| unsafe { raw.lane(4096).unwrap().on(lane.raw_stream()).with_memory(x).sized() }));
    let raw_graphs = raws.as_ref().map(|it| it.each_ref().map(|lane| RawGraph::chain(lane, launches)));
    let mut ways = Vec::new();
    if let Some((lane, [a, b])) = lane.zip(raw_graphs.as_ref()) {
        ways.extend([
            Way::new("raw driver, memory of the graph", move || { a.launch(); lane.synchronize(); }),
            Way::new("raw driver, ours.x", move || { b.launch(); lane.synchronize(); }),
            Way::new("raw driver, memory of the graph, queries", move || { a.launch(); lane.query_until_idle(); }),
        ]);
    }
    if let (Some(lane), Some(graph)) = (lane, &raw_graph) {
        let launch = move || {
            graph.launch();
            lane.synchronize();
        };
        let factor = &factor;
        let changed = move |nodes| {
            move || {
                factor.set(factor.get() + 1.0);
                graph.change(nodes, factor.get());
                launch();
            }
        };
        ways.extend([
            Way::new("raw driver, `cuGraphLaunch`", launch),
            Way::new("raw driver, one node changed", changed(1)),
            Way::new("raw driver, all nodes changed", changed(launches)),
            Way::new("raw driver, launches", move || {
                (0..launches).for_each(|_| lane.scale(lane.x));
                lane.synchronize();
            }),
        ]);
    }
    let cached = |changing| move || ours.run_chain(launches, changing, true);
    ways.extend([
        Way::new("`graph.launch()`", || _ = done(graph.launch().sync_on(&ours.stream))),
        Way::new("without the cache", || ours.run_chain(launches, Changing::None, false)),
        Way::new("graph cache, the same arguments", cached(Changing::None)),
        Way::new("graph cache, one argument changes", cached(Changing::One)),
        Way::new("graph cache, all arguments change", cached(Changing::All)),
    ]);
    report(&format!("chain of {launches}"), ways, Effort { rounds, in_a_row: 10 });
    Ok(())
}
