//! Measures the cost of a wake, with a kernel that runs longer than the spin budget.

use std::{error::Error, time::Duration};

use benches::{
    Place, Way, baseline, executor::Parking, heartbeat::one_thread, raw::Raw, report, section,
};
use cuda_async::{prelude::*, runtime::set_max_spin};
use tokio::runtime::Runtime;

use crate::{
    ours::{Ours, Words},
    sizes::Sizes,
};

pub fn measure(raw: Option<&Raw>, ours: &Ours, sizes: &Sizes) -> Result<(), Box<dyn Error>> {
    section("Wake", &["median us", "to the first"]);
    let kernel = Kernel {
        ours,
        x: Place::new(ours.words(1)?),
        nanos: sizes.kernel_nanos,
        tokio: one_thread(),
        parking: Parking::new(),
    };
    let lane = raw.map(|raw| raw.lane(4096)).transpose()?;
    let mut ways = match &lane {
        Some(lane) => baseline::woken(lane, sizes.kernel_nanos)?,
        None => Vec::new(),
    };
    let [spins, sleeps] = [ours.spin, Duration::ZERO];
    ways.extend([
        Way::new("`.sync_on(&stream)`", || kernel.sync_on()),
        Way::new("`.await`, tokio, one thread", || kernel.on_tokio(spins)),
        Way::new("`.await`, tokio, no spinning", || kernel.on_tokio(sleeps)),
        Way::new("`.await`, park and unpark", || kernel.parked(spins)),
        Way::new("`.await`, park and unpark, no spinning", || kernel.parked(sleeps)),
    ]);
    report(&format!("kernel of {} us", sizes.kernel_nanos / 1000), ways, sizes.effort);
    set_max_spin(spins);
    Ok(())
}

/// A kernel that is awaited in several ways, each on the default policy.
struct Kernel<'a> {
    ours: &'a Ours,
    x: Place<Words>,
    nanos: u32,
    tokio: Runtime,
    parking: Parking,
}

impl Kernel<'_> {
    fn sync_on(&self) {
        self.x.lend(|x| self.op(x).sync_on(&self.ours.stream));
    }

    fn on_tokio(&self, spin: Duration) {
        set_max_spin(spin);
        self.x.lend(|x| self.tokio.block_on(self.op(x).into_future()));
    }

    fn parked(&self, spin: Duration) {
        set_max_spin(spin);
        self.x.lend(|x| self.parking.block_on(self.op(x).into_future()));
    }

    fn op(&self, x: Words) -> impl DeviceOp<Output = Words> {
        self.ours.timed(x, self.nanos)
    }
}
