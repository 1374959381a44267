//! Measures the time and heap allocations of building and of running operations.

use std::{error::Error, hint::black_box, time::Duration};

use benches::{Place, executor::Parking, heap::cost, heartbeat::one_thread, raw::Raw, section};
use cuda_async::{LaunchConfig, launch, prelude::*, runtime::set_max_spin};

use crate::{
    ours::{Floats, Ours},
    sizes::Sizes,
};

/// The data that the chain uploads.
static DATA: [f32; 16] = [0.0; 16];

pub fn measure(_: Option<&Raw>, ours: &Ours, _: &Sizes) -> Result<(), Box<dyn Error>> {
    section("Building and running", &["ns", "heap allocations"]);
    building(ours);
    running(ours)
}

fn building(ours: &Ours) {
    let scale = ours.scale_function();
    let config = LaunchConfig::for_num_elems(1);
    // SAFETY: never run.
    let op = || unsafe { launch(scale, config, (0u64, 1.0f32, 1u32)) };
    let chain = || {
        h2d(&DATA)
            .then(|x| {
                // SAFETY: never run.
                unsafe { launch(scale, config, (x, 1.0f32, 16u32)) }
            })
            .then(to_host)
    };
    cost("building and dropping", "a launch", || drop(black_box(op())));
    cost("building and dropping", "upload, launch, read back", || drop(black_box(chain())));
    cost("building and dropping", "`zip!` of three launches", || {
        drop(black_box(zip!(op(), op(), op())));
    });
}

fn running(ours: &Ours) -> Result<(), Box<dyn Error>> {
    let x = Place::new(ours.floats()?);
    let op = |x: Floats| ours.scale(x);
    let (parking, tokio) = (Parking::new(), one_thread());
    let what = "running a launch";
    cost(what, "`.sync_on`", || x.lend(|x| op(x).sync_on(&ours.stream)));
    for (spin, hows) in [
        (ours.spin, ["`.await`, park and unpark", "`.await`, tokio, one thread"]),
        (
            Duration::ZERO,
            ["`.await`, park and unpark, no spinning", "`.await`, tokio, no spinning"],
        ),
    ] {
        set_max_spin(spin);
        cost(what, hows[0], || x.lend(|x| parking.block_on(op(x).into_future())));
        cost(what, hows[1], || x.lend(|x| tokio.block_on(op(x).into_future())));
    }
    set_max_spin(ours.spin);
    Ok(())
}
