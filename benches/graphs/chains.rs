//! Measures chains of small launches: one by one, as a graph, and through the graph cache.
//!
//! The last column compares with the first row, which uses the same buffer as the rows without a graph and with the
//! cache. `graph.launch()` uses a buffer of its graph: compare it with the row "buffer of `graph.launch()`".

use std::{cell::Cell, error::Error};

use benches::{Effort, Way, done, raw::Raw, raw_graph::RawGraph, report};
use cuda_async::prelude::*;

use crate::ours::{Changing, Ours};

pub fn measure(raw: Option<&Raw>, ours: &Ours) -> Result<(), Box<dyn Error>> {
    for (launches, rounds) in [(1, 200), (2, 200), (3, 200), (10, 200), (100, 40), (1000, 10)] {
        chain(raw, ours, launches, rounds)?;
    }
    Ok(())
}

fn chain(
    raw: Option<&Raw>,
    ours: &Ours,
    launches: usize,
    rounds: usize,
) -> Result<(), Box<dyn Error>> {
    let (graph, factor) = (ours.graph(launches)?, Cell::new(0.0_f32));
    let output = graph.launch().sync_on(&ours.stream)?;
    // SAFETY: `ours` and the output keep the memory until the end of this function, and one row runs at a time.
    let lane = |x| raw.map(|raw| unsafe { ours.lane(raw, x) }).transpose();
    let (own, graphs) = (lane(ours.address_of_x()?)?, lane(ours.address(&output)?)?);
    let chain = |lane| RawGraph::chain(lane, launches);
    let (raw_own, raw_graphs) = (own.as_ref().map(chain), graphs.as_ref().map(chain));
    let mut ways = Vec::new();
    if let (Some(lane), Some(graph), Some(same)) = (&own, &raw_own, &raw_graphs) {
        let launch = move |graph: &RawGraph<'_>| {
            graph.launch();
            lane.synchronize();
        };
        let factor = &factor;
        let changed = move |nodes| {
            move || {
                factor.set(factor.get() + 1.0);
                graph.change(nodes, factor.get());
                launch(graph);
            }
        };
        ways.extend([
            Way::new("raw driver, `cuGraphLaunch`", move || launch(graph)),
            Way::new("raw driver, one node changed", changed(1)),
            Way::new("raw driver, all nodes changed", changed(launches)),
            Way::new("raw driver, launches", move || {
                (0..launches).for_each(|_| lane.scale(lane.x));
                lane.synchronize();
            }),
            Way::new("raw driver, `cuGraphLaunch`, buffer of `graph.launch()`", move || {
                launch(same)
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
