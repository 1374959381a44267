//! Compares copies of ordinary host memory with the driver's copies.

use std::{cell::RefCell, sync::Arc};

use benches::{Way, done, heartbeat::one_thread, raw::Raw, report, section};
use cuda_async::{memory::upload_into, prelude::*};

use crate::{ours::Ours, sizes::Sizes};

pub fn measure(
    raw: Option<&Raw>,
    ours: &Ours,
    sizes: &Sizes,
) -> Result<(), Box<dyn std::error::Error>> {
    section("Vectors", &["median us", "to the first"]);
    let bytes = sizes.vector;
    let lane = raw.map(|raw| raw.lane(bytes)).transpose()?;
    let source = Arc::new(vec![1u8; bytes]);
    let buffer = RefCell::new(zeros::<u8>(bytes).sync_on(&ours.stream)?);
    let (stream, executor) = (&ours.stream, one_thread());
    let what = |what| format!("{what} of {} MiB", bytes >> 20);
    let uploads =
        lane.iter().map(|lane| Way::new("raw driver, from a `Vec`", || lane.upload_from(&source)));
    let ours_up = [
        Way::new("`upload_into`, `.sync_on`", || {
            done(upload_into(&mut *buffer.borrow_mut(), &*source).sync_on(stream).map(drop));
        }),
        Way::new("`h2d`, `.sync_on`", || done(h2d(&*source).sync_on(stream).map(drop))),
        Way::new("`h2d` of an `Arc<Vec>`, `.await`", || {
            done(executor.block_on(h2d(source.clone()).map(drop).into_future()))
        }),
        Way::new("`h2d` of a borrowed `Vec`, `.await`", || {
            done(executor.block_on(h2d(&*source).map(drop).into_future()))
        }),
    ];
    report(&what("upload"), uploads.chain(ours_up).collect(), sizes.vector_effort);
    let target = RefCell::new(vec![0u8; bytes]);
    let downloads = lane.iter().flat_map(|lane| {
        [
            Way::new("raw driver, into a new `Vec`", || {
                let mut target = vec![0u8; bytes];
                lane.download_to(&mut target);
            }),
            Way::new("raw driver, into a `Vec` in use", || {
                lane.download_to(&mut target.borrow_mut());
            }),
        ]
    });
    let ours_down = [
        Way::new("`to_host`, `.sync_on`", || {
            done(to_host(&*buffer.borrow()).sync_on(stream).map(drop));
        }),
        Way::new("`to_host`, `.await`", || {
            done(executor.block_on(to_host(&*buffer.borrow()).map(drop).into_future()));
        }),
    ];
    report(&what("download"), downloads.chain(ours_down).collect(), sizes.vector_effort);
    Ok(())
}
