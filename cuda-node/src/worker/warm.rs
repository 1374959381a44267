//! Uses a GPU before a lease does.
//!
//! The first use of each part of the driver is slow: on an H200 the first allocation takes 10 ms, the first pinned block
//! 1 ms, and the first compilation loads the compiler. A spare worker pays for that while it waits.

use cuda_core::{Access, Arguments, Device, DeviceBuffer, LaunchConfig, PinnedBuffer, Provider};

use super::staging::PIECE;

/// A kernel that sets the first byte of its memory.
const PTX: &str = "
.version 7.0
.target sm_50
.address_size 64
.visible .entry touch(.param .u64 memory)
{
    .reg .b64 %address;
    .reg .b16 %one;
    ld.param.u64 %address, [memory];
    cvta.to.global.u64 %address, %address;
    mov.u16 %one, 1;
    st.global.u8 [%address], %one;
    ret;
}";

/// Allocates, copies, loads a kernel and launches it.
///
/// # Errors
/// The device does not work.
pub(super) fn up(provider: &dyn Provider, ordinal: u32) -> cuda_core::Result<()> {
    let device = Device::open(provider, ordinal)?;
    let stream = device.new_stream()?;
    let mut memory = DeviceBuffer::<u8>::uninitialized(&stream, PIECE)?;
    memory.upload(&stream, 0, device.pinned_uninitialized(PIECE)?)?;
    let touch = device.load_ptx_blocking(PTX)?.function("touch")?;
    let mut arguments = Arguments::new();
    arguments.buffer(&memory, Access::Write);
    // SAFETY: writes the first byte of `memory`.
    unsafe { touch.launch(&stream, LaunchConfig::new(1, 1), &arguments) }?;
    let host: PinnedBuffer<u8> = device.pinned_uninitialized(1)?;
    memory.download(&stream, 0..1, host)?.wait().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warm_up_works_on_the_cpu_device() {
        up(&cuda_cpu::CpuProvider::default(), 0).unwrap();
    }
}
