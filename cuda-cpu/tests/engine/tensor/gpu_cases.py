#!/usr/bin/env python3
"""Runs the cases that `tensor/mod.rs` has written on a GPU: gpu_cases.py FOLDER OUT. Needs the driver alone.

Leaves all results, one after the other, in OUT/results.0, OUT/results.1, .. of at most 15 MB: put them together
as FOLDER/results for `adopt`.
"""
import ctypes
import pathlib
import sys

cuda = ctypes.CDLL("libcuda.so.1")
PIECE = 15_000_000


def check(status, what):
    if status:
        raise RuntimeError(f"{what}: {status}")


def upload(data):
    at = ctypes.c_uint64()
    check(cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(len(data))), "alloc")
    check(cuda.cuMemcpyHtoD_v2(at, bytes(data), ctypes.c_size_t(len(data))), "upload")
    return at


def run(inputs, blocks, out, name, ptx):
    module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
    status = cuda.cuModuleLoadData(ctypes.byref(module), ptx + b"\0")
    if status:
        print("refused", name, status)
        return bytes(out)
    check(cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"k"), "function")
    target = upload(b"\xAA" * out)
    pointers = [*inputs, target]
    params = (ctypes.c_void_p * 4)(*(ctypes.addressof(p) for p in pointers))
    check(cuda.cuLaunchKernel(kernel, blocks, 1, 1, 32, 1, 1, 0, None, params, None), f"launch of {name}")
    result = ctypes.create_string_buffer(out)
    check(cuda.cuMemcpyDtoH_v2(result, target, ctypes.c_size_t(out)), f"result of {name}")
    check(cuda.cuMemFree_v2(target), "free")
    cuda.cuModuleUnload(module)
    return result.raw


def main():
    device, context = ctypes.c_int(), ctypes.c_void_p()
    check(cuda.cuInit(0), "cuInit")
    check(cuda.cuDeviceGet(ctypes.byref(device), 0), "cuDeviceGet")
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "context")
    check(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")
    folder, out = map(pathlib.Path, sys.argv[1:])
    known, results = {}, bytearray()
    for line in (folder / "index").read_text().splitlines():
        number, blocks, size, a, b, c, name = line.split(" ", 6)
        for file in (a, b, c):
            if file not in known:
                known[file] = upload((folder / file).read_bytes())
        ptx = (folder / f"{number}.ptx").read_bytes()
        try:
            results += run([known[file] for file in (a, b, c)], int(blocks), int(size), name, ptx)
        except RuntimeError as error:
            # Whatever follows fails too.
            print(error)
            results += bytes(int(size))
    for i in range(0, len(results), PIECE):
        (out / f"results.{i // PIECE}").write_bytes(results[i : i + PIECE])
    print(len(results), "bytes")


main()
