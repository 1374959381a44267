#!/usr/bin/env python3
"""Runs the kernels written by the sweep's `write` on a GPU: gpu.py FOLDER OUT. Needs only the driver.

The name of a kernel's file contains its number, log2 of its inputs and whether all 2^32 inputs are run. The script
writes OUT/sums.bin (for each kernel the hashes of its chunks, then of 4096 parts of all inputs) and OUT/refused.txt. If
FOLDER/wanted.txt has lines, the script writes the operands and results of the chunks that it names to OUT/wanted.bin
instead. A line contains the number, the first index, and whether the chunk is one of all inputs.
"""
import ctypes
import multiprocessing
import pathlib
import sys

CHUNK, THREADS, ROUNDS, PARTS = 1 << 14, 256, 64, 4096
cuda = None


def check(status, what):
    if status:
        raise RuntimeError(f"{what}: {status}")


def start():
    global cuda, memory
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    check(cuda.cuInit(0), "cuInit")
    check(cuda.cuDeviceGet(ctypes.byref(device), 0), "cuDeviceGet")
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "context")
    check(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")
    check(cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(CHUNK * 24)), "alloc")


def launch(module, name, blocks, *arguments):
    """Returns the first bytes of memory after the kernel."""
    kernel = ctypes.c_void_p()
    check(cuda.cuModuleGetFunction(ctypes.byref(kernel), module, name), "function")
    check(cuda.cuMemsetD8_v2(memory, 0, ctypes.c_size_t(CHUNK * 24)), "fill")
    holders = [memory, *arguments]
    params = (ctypes.c_void_p * len(holders))(*(ctypes.addressof(h) for h in holders))
    check(cuda.cuLaunchKernel(kernel, blocks, 1, 1, THREADS, 1, 1, 0, None, params, None), "launch")


def download(size):
    result = ctypes.create_string_buffer(size)
    check(cuda.cuMemcpyDtoH_v2(result, memory, ctypes.c_size_t(size)), "download")
    return result.raw


def sums(module, name, blocks, rounds):
    launch(module, name, blocks, ctypes.c_uint64(0), ctypes.c_uint32(rounds))
    return download(8 * blocks)


def values(module, first, every):
    launch(module, b"values", CHUNK // THREADS, ctypes.c_uint64(first), ctypes.c_uint32(every))
    return download(24 * CHUNK)


def run(job):
    path, wanted = job
    module = ctypes.c_void_p()
    status = cuda.cuModuleLoadData(ctypes.byref(module), path.read_bytes() + b"\0")
    if status:
        return status, b""
    number, log2, every = path.stem.split("_")
    if wanted:
        result = b"".join(values(module, *which) for which in wanted)
    else:
        result = sums(module, b"sums", (1 << int(log2)) // CHUNK, ROUNDS)
        if every == "e":
            result += sums(module, b"every", PARTS, (1 << 32) // PARTS // THREADS)
    cuda.cuModuleUnload(module)
    return 0, result


def main():
    folder, out = map(pathlib.Path, sys.argv[1:])
    wanted = {}
    if (folder / "wanted.txt").exists():
        for line in (folder / "wanted.txt").read_text().splitlines():
            number, first, every = map(int, line.split())
            wanted.setdefault(number, []).append((first, every))
    jobs = [(path, wanted.get(int(path.stem[:4]))) for path in sorted(folder.glob("*.ptx"))]
    jobs = [job for job in jobs if job[1] or not wanted]
    with multiprocessing.get_context("spawn").Pool(8, start) as pool:
        results = pool.map(run, jobs, 4)
    refused = [f"{path.stem} {status}\n" for (path, _), (status, _) in zip(jobs, results) if status]
    (out / "refused.txt").write_text("".join(refused))
    name = "wanted.bin" if wanted else "sums.bin"
    (out / name).write_bytes(b"".join(result for _, result in results))


if __name__ == "__main__":
    main()
