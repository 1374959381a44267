#!/usr/bin/env python3
"""The operations of the benchmark `tensors` (`benches/tensors/main.rs`) in PyTorch.

    python3 benches/peers/pytorch/tensors.py [MIB]

Needs PyTorch 2.11 with CUDA, and a GPU. Each measurement runs 100 operations on one stream and waits for the last. A
value is the median.
"""

import statistics
import sys
import time

import torch

IN_SEQUENCE = 100
ROUNDS = 25


def measure(name, traffic, run):
    times = []
    for _ in range(ROUNDS + 5):
        start = time.perf_counter()
        for _ in range(IN_SEQUENCE):
            run()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    micros = statistics.median(times[5:]) * 1e6 / IN_SEQUENCE
    print(f"| {name} | {micros:.1f} | {traffic / micros / 1e3:.0f} |")


def floats(dtype, name, size):
    n = size // dtype.itemsize
    x = torch.rand(n, device="cuda", dtype=dtype)
    square = x.reshape(-1, 4096)
    measure(f"sum, {name}", size, x.sum)
    measure(f"sum of rows of 4096, {name}", size, lambda: square.sum(1))
    measure(f"sum of columns, {name}", size, lambda: square.sum(0))
    measure(f"argmax of rows of 4096, {name}", size, lambda: square.argmax(1))
    for length in (1024, 8192, 65536):
        rows = x.reshape(-1, length)
        measure(f"softmax of rows of {length}, {name}", 2 * size, lambda: torch.softmax(rows, 1))
    measure(f"a + b, {name}", 3 * size, lambda: x + x)
    number, row = (torch.ones(shape, device="cuda", dtype=dtype) for shape in ((), 4096))
    measure(f"a + number on the device, {name}", 2 * size, lambda: x + number)
    measure(f"rows of 4096 + row, {name}", 2 * size, lambda: square + row)
    column = torch.ones((n // 4096, 1), device="cuda", dtype=dtype)
    measure(f"columns of a matrix + column, {name}", 2 * size, lambda: square + column)
    measure(f"a < b, {name}", 2 * size + n, lambda: x < x)
    mask = x < number
    measure(f"selection, {name}", 3 * size + n, lambda: torch.where(mask, x, x))
    measure(f"exp, {name}", 2 * size, x.exp)
    measure(f"copy, {name}", 2 * size, x.clone)
    measure(f"copy of half of each row, {name}", size, lambda: square[:, :2048].contiguous())
    measure(f"copy of a transposed view, {name}", 2 * size, lambda: square.t().contiguous())


def main():
    mib = int(sys.argv[1]) if len(sys.argv) > 1 else 256
    print(f"# PyTorch {torch.__version__}, {torch.cuda.get_device_name()}, {mib} MiB")
    print("\n| operation | us | GB/s |\n|---|---:|---:|")
    size = mib << 20
    source = torch.zeros(size // 4, device="cuda", dtype=torch.int32)
    target = torch.zeros_like(source)
    measure("copy by the driver", 2 * size, lambda: target.copy_(source))
    floats(torch.float32, "f32", size)
    floats(torch.bfloat16, "bf16", size)


if __name__ == "__main__":
    main()
