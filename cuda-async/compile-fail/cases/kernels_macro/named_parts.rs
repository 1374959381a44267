use cuda_async::{DeviceBuffer, Function, LaunchConfig, Module, Stream, cuda_launch, cuda_launch_async};

fn eager(module: &Module, stream: &Stream, x: DeviceBuffer<f32>) {
    let _ = cuda_launch! {
        kernel: scale, stream: stream, module: module, config: LaunchConfig::new(1, 1), args: [slice(x)]
    };
}

fn lazy(function: &Function, x: DeviceBuffer<f32>) {
    let _ = cuda_launch_async! { kernel: function, config: LaunchConfig::new(1, 1), args: [slice(x)] };
}

fn shared_output(function: &Function, x: &DeviceBuffer<f32>) {
    // SAFETY: never run.
    let _ = unsafe {
        cuda_launch_async! { kernel: function, config: LaunchConfig::new(1, 1), args: [slice_mut(x)] }
    };
}

fn main() {
    let _ = (eager, lazy, shared_output);
}
