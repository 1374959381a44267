#!/usr/bin/env python3
"""Runs the cases written by `tensor/mod.rs` on a GPU: gpu_cases.py FOLDER OUT. Needs only the driver.

Writes all results in sequence to OUT/results.0, OUT/results.1 and so on, of at most 15 MB each. Concatenate them to
FOLDER/results for `update`. A fault makes CUDA unusable in its process, so another process continues.
"""
import ctypes
import os
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


def begin():
    device, context = ctypes.c_int(), ctypes.c_void_p()
    check(cuda.cuInit(0), "cuInit")
    check(cuda.cuDeviceGet(ctypes.byref(device), 0), "cuDeviceGet")
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "context")
    check(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")


def work(folder, lines, first, results):
    """Runs the cases from `first` on, up to one that fails. Returns the next one."""
    begin()
    modules, known = {}, {}
    for number, line in enumerate(lines[first:], first):
        ptx, entry, blocks, threads, size, a, b, c, name = line.split(" ", 8)
        try:
            for file in (a, b, c):
                if file not in known:
                    known[file] = upload((folder / file).read_bytes())
            if ptx not in modules:
                modules[ptx] = load((folder / ptx).read_bytes())
            inputs = [known[file] for file in (a, b, c)]
            results.write(run(modules[ptx], entry, inputs, int(blocks), int(threads), int(size), name))
        except RuntimeError as error:
            print(name, error, flush=True)
            results.write(bytes(int(size)))
            return number + 1
    return len(lines)


def main():
    folder, out = map(pathlib.Path, sys.argv[1:])
    lines = (folder / "index").read_text().splitlines()
    whole, first = out / "all", 0
    whole.write_bytes(b"")
    while first < len(lines):
        reader, writer = os.pipe()
        if os.fork() == 0:
            with whole.open("ab") as results:
                first = work(folder, lines, first, results)
            os.write(writer, str(first).encode())
            os._exit(0)
        os.close(writer)
        os.wait()
        first = int(os.read(reader, 20))
    results = whole.read_bytes()
    whole.unlink()
    for i in range(0, len(results), PIECE):
        (out / f"results.{i // PIECE}").write_bytes(results[i : i + PIECE])
    print(len(results), "bytes")


main()
