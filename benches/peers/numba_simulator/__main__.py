#!/usr/bin/env python3
"""The benchmark `cpu_device` at its small sizes, in Numba's CUDA simulator.

    pip install numba==0.68.1 numpy==2.4.6
    python3 benches/peers/numba_simulator [NAME ..]

The simulator runs every CUDA thread as a thread of Python, one block after the other. What is timed is a launch without
the copies to and from its arrays; each result is compared with numpy's. The processor time that the launch took beside
its duration tells a busy machine from a slow launch: Python runs one thread at a time. Not for `chrt -f`: there a
thread that polls keeps the others waiting.
"""

import statistics
import sys
import time

import numpy as np
from cases import CASES
from kernels import cuda

ROUNDS = 3


def run(case):
    """One launch: how long it took, its processor time, and whether its result is right."""
    args = [cuda.to_device(arg) if isinstance(arg, np.ndarray) else arg for arg in case.args]
    launch = case.kernel[case.grid, case.block, 0, case.shared]
    start, used = time.perf_counter(), time.process_time()
    launch(*args)
    took, used = time.perf_counter() - start, time.process_time() - used
    got, want = args[case.result].copy_to_host().astype(float), case.want.astype(float)
    return took, used, np.all(np.abs(got - want) <= case.tolerance * np.maximum(np.abs(want), 1))


def main():
    print("| what | size | Numba's simulator, ms | fastest | processor time, ms |\n|---|---|---:|---:|---:|")
    wrong = 0
    for name in sys.argv[1:] or CASES:
        case = CASES[name]()
        times, used, right = zip(*(run(case) for _ in range(ROUNDS)))
        values = (statistics.median(times), min(times), statistics.median(used))
        columns = " | ".join(f"{value * 1e3:.1f}" for value in values)
        note = "" if all(right) else " wrong result"
        wrong += bool(note)
        print(f"| {name} | {case.size} | {columns} |{note}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
