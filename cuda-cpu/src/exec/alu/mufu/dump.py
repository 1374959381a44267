#!/usr/bin/env python3
"""Reads the results of a GPU's function unit for `fit.py`: dump.py FOLDER. Needs the driver and numpy. Writes 8 MB.

There is one file per function and octave of arguments [2^n, 2^(n+1)): all 2^23 results, as differences, in byte planes.
"""
import ctypes
import lzma
import multiprocessing
import pathlib
import sys

import numpy as np

COUNT = 1 << 23
OCTAVES = {"rcp": [0], "sqrt": [0, 1], "rsqrt": [0, 1], "ex2": [0], "lg2": [0], "sin": range(-2, 3), "cos": range(-2, 3),
           "tanh": range(-8, 3)}
KERNEL = """.version 7.0
.target sm_75
.address_size 64
.visible .entry k(.param .u64 out, .param .u32 base) {{
.reg .b64 o, s; .reg .b32 i, n, x;
ld.param.u64 o, [out]; ld.param.u32 x, [base];
mov.u32 i, %ctaid.x; mov.u32 n, %ntid.x; mul.lo.u32 i, i, n; mov.u32 n, %tid.x; add.u32 i, i, n;
mul.wide.u32 s, i, 4; add.u64 o, o, s; add.u32 x, x, i;
{}.approx.f32 x, x;
st.global.b32 [o], x; ret; }}
"""
cuda = ctypes.CDLL("libcuda.so.1")


def check(status):
    if status:
        raise RuntimeError(f"the driver says {status}")


def results(name, base, out):
    module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
    check(cuda.cuModuleLoadData(ctypes.byref(module), KERNEL.format(name).encode() + b"\0"))
    check(cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"k"))
    first = ctypes.c_uint32(base)
    params = (ctypes.c_void_p * 2)(ctypes.addressof(out), ctypes.addressof(first))
    check(cuda.cuLaunchKernel(kernel, COUNT // 256, 1, 1, 256, 1, 1, 0, None, params, None))
    bits = np.empty(COUNT, np.uint32)
    check(cuda.cuMemcpyDtoH_v2(bits.ctypes.data_as(ctypes.c_void_p), out, ctypes.c_size_t(bits.nbytes)))
    return bits


def write(job):
    path, label, base, bits = job
    steps = np.diff(bits, prepend=np.uint32(0))
    planes = np.stack([(steps >> 8 * i).astype(np.uint8) for i in range(4)])
    data = lzma.compress(planes.tobytes())
    path.write_bytes(f"{label} {base} {COUNT} {len(data)}\n".encode() + data)


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    device, context, out = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    check(cuda.cuInit(0))
    check(cuda.cuDeviceGet(ctypes.byref(device), 0))
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    check(cuda.cuCtxSetCurrent(context))
    check(cuda.cuMemAlloc_v2(ctypes.byref(out), ctypes.c_size_t(4 * COUNT)))
    with multiprocessing.get_context("spawn").Pool() as pool:
        jobs = []
        for name, octaves in OCTAVES.items():
            for n in octaves:
                label, base = f"{name}_{n}".replace("-", "n"), (127 + n) << 23
                jobs.append((folder / f"{label}.bin", label, base, results(name, base, out)))
        pool.map(write, jobs, 1)


if __name__ == "__main__":
    main()
