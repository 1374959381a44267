//! Measures a chain of launches and a single launch, layer by layer, to separate the library's time from the driver's.

use benches::{
    Effort, Way,
    raw::{LEN, Lane, LibraryKernel, Raw},
    report,
};
use cuda_async::Device;

use crate::{bare::Bare, null::NullProvider, ours::Ours};

/// Launches of the chain.
const LAUNCHES: usize = 100;

pub fn measure(
    driver: &Raw,
    raw: &Lane<'_>,
    ours: &Ours,
) -> Result<(), Box<dyn std::error::Error>> {
    let (bare, library) = (Bare::new()?, raw.library_kernel()?);
    // SAFETY: the stream is never destroyed.
    let below = unsafe { driver.lane(LEN * 4)?.on(bare.raw_stream()?) };
    let null = Ours::new(&Device::open(&NullProvider, 0)?)?;
    let layers = Layers { raw, below, bare, ours, null };
    layers.chain(library);
    layers.one();
    Ok(())
}

struct Layers<'a> {
    raw: &'a Lane<'a>,
    /// Raw calls on the stream of `bare`.
    below: Lane<'a>,
    bare: Bare,
    ours: &'a Ours,
    null: Ours,
}

impl Layers<'_> {
    fn chain(&self, library: LibraryKernel) {
        let Self { raw, below, bare, ours, null } = self;
        let chain_on = |raw: &Lane<'_>, launch: &dyn Fn()| {
            (0..LAUNCHES).for_each(|_| launch());
            raw.synchronize();
        };
        let chain = |launch: &dyn Fn()| chain_on(raw, launch);
        let ways = vec![
            Way::new("raw driver", || chain(&|| raw.scale(raw.x))),
            Way::new("raw driver, the stream of the backend alone", || {
                chain_on(below, &|| below.scale(raw.x));
            }),
            Way::new("raw driver, parameters packed", || chain(&|| raw.scale_packed())),
            Way::new("raw driver, packed, context queried before each", || {
                chain(&|| {
                    raw.query_context();
                    raw.scale_packed();
                })
            }),
            Way::new("raw driver, packed, kernel of a library", || {
                chain(&|| raw.scale_by(library))
            }),
            Way::new("raw driver, packed, `cuda-core` without a driver before each", || {
                chain(&|| {
                    null.core_alone(1, 2);
                    raw.scale_packed();
                })
            }),
            Way::new("the CUDA backend alone", || bare.chain(LAUNCHES)),
            Way::new("`cuda-core`", || ours.core_alone(LAUNCHES, LAUNCHES)),
            Way::new("`iterate`, `.sync_on`", || ours.chain_sync(LAUNCHES)),
            Way::new("`cuda-core` without a driver", || null.core_alone(LAUNCHES, LAUNCHES)),
        ];
        report("chain of 100, by layers", ways, Effort { rounds: 60, in_a_row: 5 });
    }

    fn one(&self) {
        let Self { raw, below, bare, ours, null } = self;
        let ways = vec![
            Way::new("raw driver", || {
                raw.scale_packed();
                raw.synchronize();
            }),
            Way::new("raw driver, the stream of the backend alone", || {
                below.scale_packed();
                below.synchronize();
            }),
            Way::new("raw driver, `.sync_on` without a driver before the launch", || {
                null.sync_on();
                raw.scale_packed();
                raw.synchronize();
            }),
            Way::new("raw driver, `.sync_on` without a driver behind the launch", || {
                raw.scale_packed();
                null.sync_on();
                raw.synchronize();
            }),
            Way::new("raw driver, `.sync_on` without a driver at the end", || {
                raw.scale_packed();
                raw.synchronize();
                null.sync_on();
            }),
            Way::new("the CUDA backend alone", || bare.chain(1)),
            Way::new("`cuda-core`", || ours.core_alone(1, 1)),
            Way::new("`.sync_on`", || ours.sync_on()),
            Way::new("`.sync_on` without a driver", || null.sync_on()),
        ];
        report("launch + synchronize, by layers", ways, Effort { rounds: 100, in_a_row: 100 });
    }
}
