#!/usr/bin/env python3
"""The chains of the benchmark `graphs` (`benches/graphs/chains.rs`) in PyTorch.

    python3 benches/peers/pytorch/graphs.py

Needs PyTorch 2.11 with CUDA, and a GPU.

A chain is a sequence of in-place multiplications of 2048 floats, captured once with `torch.cuda.graph`. PyTorch's own
kernel takes the place of `scale`, so the time on the GPU can differ. Each measurement replays the graph, or runs the
chain eagerly, on one stream, and waits for the stream or the device. The ways take turns. A value is the median of all
measurements of a way.
"""

import statistics
import sys
import time

import torch

LEN = 2048
CHAINS = ((10, 200), (100, 40), (1000, 10))
IN_A_ROW = 10


def multiply(x, factor, launches):
    for _ in range(launches):
        x.mul_(factor)


def capture(stream, x, factor, launches):
    """Captures a chain. The multiplications do not run before the first replay."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        multiply(x, factor, launches)
    return graph


def check(stream):
    """Checks that one replay of ten multiplications by two multiplies by 1024."""
    x = torch.ones(LEN, device="cuda")
    x.mul_(1.0)  # Loads the kernel.
    stream.synchronize()
    graph = capture(stream, x, 2.0, 10)
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


def measure(stream, launches, rounds):
    x = torch.ones(LEN, device="cuda")
    stream.synchronize()
    graph = capture(stream, x, 1.0, launches)

    def replay():
        graph.replay()
        stream.synchronize()

    def replay_and_wait_for_device():
        graph.replay()
        torch.cuda.synchronize()

    def eager():
        multiply(x, 1.0, launches)
        stream.synchronize()

    ways = (
        ("PyTorch, `CUDAGraph.replay`, `stream.synchronize`", replay),
        ("PyTorch, `CUDAGraph.replay`, `torch.cuda.synchronize`", replay_and_wait_for_device),
        ("PyTorch, eager loop, `stream.synchronize`", eager),
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
        check(stream)
        for launches, rounds in CHAINS:
            measure(stream, launches, rounds)


if __name__ == "__main__":
    main()
