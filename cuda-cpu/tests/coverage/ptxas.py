#!/usr/bin/env python3
"""Assembles every form of grammar.txt with ptxas. A form that ptxas rejects must not be in the file.

    cargo test -p cuda-cpu --test coverage list -- --ignored
    bash kernels/suite/toolchain.sh /tmp/toolchain
    python3 cuda-cpu/tests/coverage/ptxas.py /tmp/toolchain/cuda13/bin/ptxas target/tmp/coverage
"""

import concurrent.futures
import pathlib
import subprocess
import sys

ptxas, folder = sys.argv[1], pathlib.Path(sys.argv[2])


def ask(line):
    number, target, text = line.split("\t")
    done = subprocess.run([ptxas, f"-arch={target}", str(folder / f"{number}.ptx"), "-o", "/dev/null"], capture_output=True, text=True)
    errors = [e for e in done.stderr.splitlines() if "error" in e]
    return text, errors[0].split("error", 1)[1] if done.returncode and errors else ("" if not done.returncode else done.stderr)


with concurrent.futures.ThreadPoolExecutor() as pool:
    refused = [(text, why) for text, why in pool.map(ask, (folder / "list").read_text().splitlines()) if why]
for text, why in refused:
    print(f"{text}   {why.strip()}")
print(f"{len(refused)} refused")
sys.exit(1 if refused else 0)
