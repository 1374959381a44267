#!/usr/bin/env python3
"""Runs the kernels written by `ops.rs` on a GPU: gpu_ops.py FOLDER OUT. Needs only the driver."""
import ctypes, pathlib, sys

cuda = ctypes.CDLL("libcuda.so.1")
COUNT = 1024


def check(status, what):
    if status:
        raise RuntimeError(f"{what}: {status}")


device, context = ctypes.c_int(), ctypes.c_void_p()
check(cuda.cuInit(0), "cuInit")
check(cuda.cuDeviceGet(ctypes.byref(device), 0), "cuDeviceGet")
check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "context")
check(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")
source, target = ctypes.c_uint64(), ctypes.c_uint64()
check(cuda.cuMemAlloc_v2(ctypes.byref(source), ctypes.c_size_t(COUNT * 24)), "alloc")
check(cuda.cuMemAlloc_v2(ctypes.byref(target), ctypes.c_size_t(COUNT * 16)), "alloc")
folder, out = map(pathlib.Path, sys.argv[1:])
for path in sorted(folder.glob("*.ptx")):
    module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
    status = cuda.cuModuleLoadData(ctypes.byref(module), path.read_bytes() + b"\0")
    if status:
        print("refused", path.name, status)
        continue
    data = (folder / f"{path.stem[-1]}.in").read_bytes()
    check(cuda.cuMemcpyHtoD_v2(source, data, ctypes.c_size_t(len(data))), "upload")
    check(cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"k"), "function")
    params = (ctypes.c_void_p * 2)(ctypes.addressof(source), ctypes.addressof(target))
    check(cuda.cuLaunchKernel(kernel, COUNT // 256, 1, 1, 256, 1, 1, 0, None, params, None), "launch")
    result = ctypes.create_string_buffer(COUNT * 16)
    check(cuda.cuMemcpyDtoH_v2(result, target, ctypes.c_size_t(COUNT * 16)), "download")
    (out / f"{path.stem}.out").write_bytes(result.raw)
    cuda.cuModuleUnload(module)
