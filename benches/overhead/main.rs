//! Overhead of the library compared with raw driver calls: one launch, chains of launches, a read-back, building.
//!
//! `cargo bench -p benches --bench overhead [-- cpu|cuda|null]`. `null` measures the library alone. On a GPU the first
//! row of each device block is driver calls through `cudarc`. They run on the stream of `.sync_on`, or of the default
//! policy for `launch + await`. On the CPU device the first row is the library's own.

mod bare;
mod layers;
mod null;
mod ours;

use benches::{
    Effort, Way, heading,
    raw::{LEN, Lane, Raw},
    report,
};
use cuda_async::Device;

use crate::{null::NullProvider, ours::Ours};

/// The numbers of threads that submit at once, if there are that many cores.
const THREADS: [(usize, &str); 4] =
    [(1, "1 thread"), (2, "2 threads"), (4, "4 threads"), (8, "8 threads")];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let asked = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    if asked.as_deref() != Some("null") {
        on_device(asked.as_deref())?;
    }
    let null = Ours::new(&Device::open(&NullProvider, 0)?)?;
    library_alone(&null)?;
    building(&null);
    Ok(())
}

fn on_device(asked: Option<&str>) -> Result<(), Box<dyn std::error::Error>> {
    let device = asked.map_or_else(cuda_async::default_device, cuda_async::open_blocking)?;
    let info = device.info();
    let driver = if info.address.starts_with("cuda") { Some(Raw::new()?) } else { None };
    heading(&format!("{} ({}), driver {:?}", info.name, info.address, info.driver));
    let ours = Ours::new(&device)?;
    let lane = || driver.as_ref().map(|raw| raw.lane(LEN * 4)).transpose();
    // SAFETY: the stream is `ours`, which lives until the end of this function.
    let (own, raw) = (lane()?, lane()?.map(|lane| unsafe { lane.on(ours.raw_stream()) }));
    one_launch(own.as_ref(), raw.as_ref(), &ours);
    let default = ours.raw_default_stream()?;
    // SAFETY: the stream is the default stream of `ours`, which lives until the end of this function.
    one_await(lane()?.map(|lane| unsafe { lane.on(default) }).as_ref(), &ours);
    for (launches, rounds) in [(10, 200), (100, 40), (1000, 10)] {
        chain(raw.as_ref(), &ours, launches, rounds);
    }
    read_back(raw.as_ref(), &ours);
    if let Some((driver, raw)) = driver.as_ref().zip(raw.as_ref()) {
        layers::measure(driver, raw, &ours)?;
    }
    Ok(())
}

fn with_raw<'a>(
    raw: Option<&'a Lane<'a>>,
    run: impl Fn(&Lane<'_>) + 'a,
    ours: impl IntoIterator<Item = Way<'a>>,
) -> Vec<Way<'a>> {
    let raw = raw.map(|raw| Way::new("raw driver", move || run(raw)));
    raw.into_iter().chain(ours).collect()
}

/// Measures the library on the null device: operations in sequence, chains, and launches of a graph.
fn library_alone(null: &Ours) -> Result<(), Box<dyn std::error::Error>> {
    let graph = null.graph(10)?;
    let hundred = |run: &dyn Fn()| (0..100).for_each(|_| run());
    let ways = vec![
        Way::new("100 x `.sync_on(&stream)`", || null.sync_on_in_sequence(100)),
        Way::new("chain of 100, `.sync_on`", || null.chain_sync(100)),
        Way::new("100 x launch + synchronize, `cuda-core`", || null.core_alone(100, 1)),
        Way::new("100 launches, `cuda-core`", || null.core_alone(100, 100)),
        Way::new("100 x launch of a graph of 10, `.sync_on`", || null.launch_graph(&graph, 100)),
    ];
    report("the library alone", ways, Effort { rounds: 40, in_a_row: 20 });
    let ways = vec![
        Way::new("100 x `.schedule(&single).await`", || {
            null.awaited_in_sequence(&null.single, 100)
        }),
        Way::new("100 x `.await`, default policy", || null.plainly_awaited(100)),
    ];
    report("awaits in one `block_on`", ways, Effort { rounds: 40, in_a_row: 20 });
    let ways = vec![
        Way::new("100 x `.sync_on(&stream)`", || hundred(&|| null.read_sync_on())),
        Way::new("chain of 100, `.sync_on`", || null.read_chain(100)),
    ];
    report("arguments that are only read", ways, Effort { rounds: 40, in_a_row: 20 });
    let ways =
        THREADS.map(|(threads, name)| Way::new(name, move || null.on_threads(threads, 10_000)));
    report("10000 x `.sync_on`, own streams", ways.into(), Effort { rounds: 10, in_a_row: 1 });
    Ok(())
}

fn launch_and_wait(raw: &Lane<'_>) {
    raw.scale(raw.x);
    raw.synchronize();
}

fn one_launch(own: Option<&Lane<'_>>, raw: Option<&Lane<'_>>, ours: &Ours) {
    let ways = [
        Way::new("`.sync_on(&stream)`", || ours.sync_on()),
        Way::new("`.sync()`", || ours.sync()),
        Way::new("`.await`, single stream", || ours.awaited(&ours.single)),
    ];
    let variants = own.zip(raw).into_iter().flat_map(|(own, raw)| {
        let on_own = Way::new("raw driver, a stream of its own", move || launch_and_wait(own));
        let packed = Way::new("raw driver, parameters packed", move || {
            raw.scale_packed();
            raw.synchronize();
        });
        let queried = Way::new("raw driver, launch + queries until idle", move || {
            raw.scale(raw.x);
            raw.query_until_idle();
        });
        [on_own, packed, queried]
    });
    let ways = variants.chain(ways);
    report(
        "launch + synchronize",
        with_raw(raw, launch_and_wait, ways),
        Effort { rounds: 40, in_a_row: 100 },
    );
}

/// Measures as [`one_launch`] does, on the stream that the default policy chooses.
fn one_await(raw: Option<&Lane<'_>>, ours: &Ours) {
    let inside = raw.map(|raw| {
        Way::new("raw driver, inside `block_on`", move || {
            ours.inside_block_on(|| launch_and_wait(raw))
        })
    });
    let awaited = Way::new("`.await`, default policy", || ours.awaited(&*ours.default));
    let ways = inside.into_iter().chain([awaited]);
    report(
        "launch + await",
        with_raw(raw, launch_and_wait, ways),
        Effort { rounds: 40, in_a_row: 100 },
    );
}

fn chain(raw: Option<&Lane<'_>>, ours: &Ours, launches: usize, rounds: usize) {
    let ways = [
        Way::new("`iterate`, `.sync_on`", move || ours.chain_sync(launches)),
        Way::new("`iterate`, `.await`", move || ours.chain_await(launches)),
    ];
    let run = move |raw: &Lane<'_>| {
        (0..launches).for_each(|_| raw.scale(raw.x));
        raw.synchronize();
    };
    let what = format!("chain of {launches}");
    report(&what, with_raw(raw, run, ways), Effort { rounds, in_a_row: 5 });
}

fn read_back(raw: Option<&Lane<'_>>, ours: &Ours) {
    let ways = [
        Way::new("`to_host`, `.sync_on`", || ours.read_back_sync()),
        Way::new("`to_host`, `.await`", || ours.read_back_await()),
    ];
    let run = |raw: &Lane<'_>| {
        raw.scale(raw.x);
        raw.download();
        raw.synchronize();
    };
    report(
        "launch + read back 8 KiB",
        with_raw(raw, run, ways),
        Effort { rounds: 40, in_a_row: 50 },
    );
}

/// Measures the time to build and drop 1000 launch ops. One takes less than the clock's resolution.
fn building(ours: &Ours) {
    let way = Way::new("1000 launch ops, built and dropped", || ours.build(1000));
    report("building, no device", vec![way], Effort { rounds: 40, in_a_row: 20 });
}
