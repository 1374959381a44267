use cuda_async::kernel::KernelParam;

#[derive(Clone, Copy, KernelParam)]
struct NoLayout {
    a: f32,
}

#[derive(Clone, Copy, KernelParam)]
#[repr(C)]
struct Generic<T> {
    a: T,
}

#[derive(Clone, Copy, KernelParam)]
#[repr(C)]
struct WithFlag {
    on: bool,
    a: f32,
}

#[derive(Clone, Copy, KernelParam)]
#[repr(C)]
struct WithReference {
    a: &'static f32,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct NotDerived {
    a: [f64; 3],
}

#[derive(Clone, Copy, KernelParam)]
#[repr(C)]
struct Short {
    a: [f64; 2],
}

cuda_async::kernels! {
    #[ptx = "../kernels/params.ptx"]
    struct Params;

    unsafe fn struct_with_pointers(view: NotDerived);
    #[entry = "struct_with_pointers"]
    unsafe fn short(view: Short);
}

fn main() {}
