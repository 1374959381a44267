use cuda_async::{
    DeviceBuffer,
    cuda_core::Arguments,
    kernel::{KernelInput, KernelOutput},
};

#[derive(Clone, Copy, bytemuck::Zeroable, bytemuck::Pod)]
#[repr(C)]
struct Large([u64; 8]);

impl KernelInput<Large> for DeviceBuffer<u8> {
    fn push_read<'a>(&'a self, _: &mut Arguments<'a>) {}
}

impl KernelOutput<Large> for DeviceBuffer<u8> {}

fn main() {}
