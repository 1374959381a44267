//! Declared variables of a module, on the CPU device.

use cuda_async::{DeviceBuffer, Error, memory::upload_into, open_blocking, prelude::*};

cuda_async::kernels! {
    #[ptx = "../kernels/filter.ptx"]
    unsafe struct Filter; // SAFETY: `filter` reads n + 4 elements of `input` and writes n of `out`.

    /// The taps of the filter.
    #[symbol = "taps"]
    static TAPS: [f32; 5];
    static mut limited: u32;

    /// out[i] = the sum of taps[k] * input[i + k], at most 1
    #[elements(n)]
    safe fn filter(out: &mut [f32], input: &[f32], n: u32 = out.len()) where input.len() == n + 4;
}

#[test]
fn variables_are_typed_buffers() -> Result<(), Error> {
    let device = open_blocking("cpu")?;
    let (stream, filter) = (device.new_stream()?, Filter::load(&device)?);
    let taps: DeviceBuffer<f32> = filter.taps()?;
    assert_eq!(taps.len(), 5);
    let limited: DeviceBuffer<u32> = filter.limited()?;
    upload_into(taps, vec![0.25f32; 5]).sync_on(&stream)?;
    let input = h2d(vec![0.0f32, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0]);
    let op = filter.filter(zeros(3), input).then(|(out, _)| to_host(out));
    assert_eq!(op.sync_on(&stream)?, [0.75, 1.0, 1.0]);
    assert_eq!(to_host(&limited).sync_on(&stream)?, [1]);
    // Clones are of the same module, so they have the same variables.
    assert_eq!(to_host(filter.clone().limited()?).sync_on(&stream)?, [1]);
    // Another load has its own variables.
    assert_eq!(to_host(Filter::load(&device)?.limited()?).sync_on(&stream)?, [0]);
    Ok(())
}
