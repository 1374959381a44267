#!/usr/bin/env python3
"""Runs every case of the suite with cuda-run, and writes outputs and printed text to FOLDER/DEVICE.

    cargo test -p cuda-cpu --test suite write -- --ignored       # writes FOLDER: inputs, PTX, command lines
    python3 kernels/suite/run.py target/release/cuda-run FOLDER cuda [RESULTS.tar.xz]
    cargo test -p cuda-cpu --test suite update -- --ignored       # copies FOLDER/cuda to golden/

On `cuda`, variants for targets after sm_90 are skipped, because an H200 cannot load them. Needs only Python.
"""

import concurrent.futures
import pathlib
import subprocess
import sys
import tarfile
import time


def run(program, folder, device, line):
    """Runs a case. Returns its exit status and its duration."""
    name, *words = line.split("\t")
    judge, full = name.split(":", 1)
    if device.startswith("cuda") and judge not in full:
        return full, None, 0.0
    # Paths in the command lines are relative to the folder.
    words = [word.replace("OUT/", f"{device}/") for word in words]
    started = time.time()
    try:
        done = subprocess.run([program, *words, "--device", device], cwd=folder, capture_output=True, text=True, timeout=60)
        error, printed = done.stderr.strip() if done.returncode else "", done.stdout
    except subprocess.TimeoutExpired:
        error, printed = "timed out", ""
    if printed:
        (folder / device / f"{full}.printed").write_text(printed)
    return full, error, time.time() - started


def main():
    program, folder, device = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve(), sys.argv[3]
    (folder / device).mkdir(exist_ok=True)
    lines = (folder / "commands").read_text().splitlines()
    failed = skipped = 0
    with concurrent.futures.ThreadPoolExecutor(14 if device != "cpu" else 2) as pool:
        for full, error, seconds in pool.map(lambda line: run(program, folder, device, line), lines):
            skipped += error is None
            if error:
                failed += 1
                print(f"{full}: {error[:300]}")
            elif seconds > 10:
                print(f"{full}: took {seconds:.1f} s")
    print(f"{len(lines) - failed - skipped} ran, {failed} failed, {skipped} are for later GPUs")
    if len(sys.argv) > 4:
        with tarfile.open(sys.argv[4], "w:xz") as tar:
            tar.add(folder / device, device)


if __name__ == "__main__":
    main()
