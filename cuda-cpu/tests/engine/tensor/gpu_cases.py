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


def load(ptx):
    module = ctypes.c_void_p()
    check(cuda.cuModuleLoadData(ctypes.byref(module), ptx + b"\0"), "load")
    return module


def run(module, entry, inputs, blocks, threads, out, name):
    kernel = ctypes.c_void_p()
    check(cuda.cuModuleGetFunction(ctypes.byref(kernel), module, entry.encode()), "function")
    target = upload(b"\xAA" * out)
    pointers = [*inputs, target]
    params = (ctypes.c_void_p * 4)(*(ctypes.addressof(p) for p in pointers))
    check(cuda.cuLaunchKernel(kernel, blocks, 1, 1, threads, 1, 1, 0, None, params, None), f"launch of {name}")
    result = ctypes.create_string_buffer(out)
    check(cuda.cuMemcpyDtoH_v2(result, target, ctypes.c_size_t(out)), f"result of {name}")
    check(cuda.cuMemFree_v2(target), "free")
    return result.raw


def main():
    device, context = ctypes.c_int(), ctypes.c_void_p()
    check(cuda.cuInit(0), "cuInit")
    check(cuda.cuDeviceGet(ctypes.byref(device), 0), "cuDeviceGet")
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "context")
    check(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")
    folder, out = map(pathlib.Path, sys.argv[1:])
    modules, known, results = {}, {}, bytearray()
    for line in (folder / "index").read_text().splitlines():
        ptx, entry, blocks, threads, size, a, b, c, name = line.split(" ", 8)
        try:
            for file in (a, b, c):
                if file not in known:
                    known[file] = upload((folder / file).read_bytes())
            if ptx not in modules:
                modules[ptx] = load((folder / ptx).read_bytes())
            inputs = [known[file] for file in (a, b, c)]
            results += run(modules[ptx], entry, inputs, int(blocks), int(threads), int(size), name)
        except RuntimeError as error:
            # After a fault, whatever follows fails too.
            print(name, error)
            results += bytes(int(size))
    for i in range(0, len(results), PIECE):
        (out / f"results.{i // PIECE}").write_bytes(results[i : i + PIECE])
    print(len(results), "bytes")


main()
