#!/usr/bin/env python3
"""The chains of the benchmark `graphs` (`benches/graphs/chains.rs`) in PyTorch.

    python3 benches/peers/pytorch/graphs.py

Needs PyTorch 2.11 with CUDA, and a GPU.

A chain is a sequence of in-place multiplications of 2048 floats, captured once with `torch.cuda.graph`. One chain
launches the kernel `scale`, as the other programs do; another uses PyTorch's own kernel. Each measurement replays a
graph, or runs a chain eagerly, on one stream, and waits for the stream or the device. The ways take turns. A value is
the median of all measurements of a way.
"""

import ctypes
import pathlib
import statistics
import sys
import time

import torch

LEN = 2048
CHAINS = ((10, 200), (100, 40), (1000, 10))
IN_A_ROW = 10


class Scale:
    """The kernel `scale` of `kernels/basic.ptx`, launched on PyTorch's current stream by the driver."""

    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        text = pathlib.Path(__file__).parents[3] / "kernels" / "basic.ptx"
        module, self.function = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), text.read_bytes() + b"\0")
        self.call("cuModuleGetFunction", ctypes.byref(self.function), module, b"scale")

    def call(self, name, *arguments):
        code = getattr(self.cuda, name)(*arguments)
        if code != 0:
            sys.exit(f"{name} returned {code}")

    def __call__(self, x, factor, launches):
        values = ctypes.c_uint64(x.data_ptr()), ctypes.c_float(factor), ctypes.c_uint32(LEN)
        params = (ctypes.c_void_p * 3)(*(ctypes.addressof(value) for value in values))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        shape = [ctypes.c_uint(size) for size in (LEN // 256, 1, 1, 256, 1, 1, 0)]
        for _ in range(launches):
            self.call("cuLaunchKernel", self.function, *shape, stream, params, None)


def multiply(x, factor, launches):
    for _ in range(launches):
        x.mul_(factor)


def capture(stream, chain, x, factor, launches):
    """Captures a chain. Its kernels do not run before the first replay."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        chain(x, factor, launches)
    return graph


def check(stream, chain):
    """Checks that one replay of ten multiplications by two multiplies by 1024."""
    x = torch.ones(LEN, device="cuda")
    chain(x, 1.0, 1)  # Loads the kernel.
    stream.synchronize()
    graph = capture(stream, chain, x, 2.0, 10)
    graph.replay()
    stream.synchronize()
    if not torch.equal(x.cpu(), torch.full((LEN,), 1024.0)):
        sys.exit(f"a replay of ten multiplications by 2 gave {x[0].item()}, expected 1024")


def timed(run):
    """Returns the duration of one run in microseconds."""
    start = time.perf_counter_ns()
    run()
    return (time.perf_counter_ns() - start) / 1000


def medians(ways, rounds):
    """Returns the median duration of each way, in microseconds."""
    for _, run in ways:
        for _ in range(IN_A_ROW):
            run()
    times = [[] for _ in ways]
    for _ in range(rounds):
        for (_, run), mine in zip(ways, times):
            mine.extend(timed(run) for _ in range(IN_A_ROW))
    return [statistics.median(mine) for mine in times]


def measure(stream, scale, launches, rounds):
    x = torch.ones(LEN, device="cuda")
    stream.synchronize()
    same = capture(stream, scale, x, 1.0, launches)
    own = capture(stream, multiply, x, 1.0, launches)

    def replay(graph):
        graph.replay()
        stream.synchronize()

    def replay_and_wait_for_device():
        same.replay()
        torch.cuda.synchronize()

    def eager():
        multiply(x, 1.0, launches)
        stream.synchronize()

    ways = (
        ("PyTorch, `CUDAGraph.replay` of `scale`, `stream.synchronize`", lambda: replay(same)),
        ("PyTorch, `CUDAGraph.replay` of `scale`, `torch.cuda.synchronize`", replay_and_wait_for_device),
        ("PyTorch, `CUDAGraph.replay` of `mul_`, `stream.synchronize`", lambda: replay(own)),
        ("PyTorch, eager loop of `mul_`, `stream.synchronize`", eager),
    )
    values = medians(ways, rounds)
    for (name, _), value in zip(ways, values):
        print(f"| chain of {launches} | {name} | {value:.2f} | {value / values[0]:.3f} |", flush=True)


def main():
    if not torch.cuda.is_available():
        sys.exit("PyTorch finds no GPU, which this benchmark needs")
    name = torch.cuda.get_device_name()
    print(f"# PyTorch {torch.__version__}, CUDA {torch.version.cuda}, {name}\n\n## Graphs\n")
    print("| what | how | median us | to the first |\n|---|---|---:|---:|")
    stream = torch.cuda.Stream()
    with torch.inference_mode(), torch.cuda.stream(stream):
        scale = Scale()
        for chain in (scale, multiply):
            check(stream, chain)
        for launches, rounds in CHAINS:
            measure(stream, scale, launches, rounds)


if __name__ == "__main__":
    main()
