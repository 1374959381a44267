#!/usr/bin/env python3
"""The benchmark `cpu_device` at its small sizes, in Numba's CUDA simulator.

    pip install numba==0.68.1 numpy==2.4.6
    python3 benches/peers/numba_simulator [NAME ..]

The simulator runs every CUDA thread as a Python thread, one block at a time. The time is that of a launch without the
copies of its arrays. Each result is compared with numpy's. Python runs one thread at a time, so a processor time below
the duration indicates a busy machine. Do not use `chrt -f`: a polling thread would block the others.
"""

import statistics
import sys
import time

import numpy as np
from cases import CASES
from kernels import cuda

ROUNDS = 3


def run(case):
    """Launches once; returns the time, the processor time, and whether the result is correct."""
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
