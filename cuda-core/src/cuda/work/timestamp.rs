//! Timestamps: the device's clock, written in the order of a stream.

use super::place::Place;
use crate::{
    cuda::context::Bound,
    protocol::{Error, Region, Result},
};

/// Enqueues a write of the time.
pub(super) fn write(place: Place<'_>, to: Region, bound: &Bound) -> Result<()> {
    let to = place.memory.locate(to, 8)?;
    if to % 8 != 0 {
        let detail = "it is not aligned to eight bytes".into();
        return Err(Error::OutOfRange { what: "the place of a timestamp".into(), detail });
    }
    let Some(clock) = &place.primary.clock else {
        return Err(Error::unsupported("the device's time", &place.primary.info.address));
    };
    // SAFETY: eight bytes fit at `to`, which is aligned to them; the caller holds the stream.
    place.check(unsafe { clock.write(place.api(), to, place.stream.raw, bound) })
}
