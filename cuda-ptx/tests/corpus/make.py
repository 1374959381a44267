"""Compiles the .cu files here to the .ptx files that tests/corpus.rs parses.

    python3 -m venv /tmp/v
    /tmp/v/bin/pip install --no-deps --target /tmp/v13 nvidia-cuda-nvrtc==13.0.88 \
        nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85
    /tmp/v/bin/pip install --no-deps --target /tmp/v12 nvidia-cuda-nvrtc-cu12==12.9.86 \
        nvidia-cuda-runtime-cu12==12.9.79
    python3 make.py /tmp/v12 /tmp/v13 [clang]
"""

import ctypes
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent.resolve()

# Source, toolkit, architecture, further options.
JOBS = [
    ("params", 12, "sm_80", []),
    ("params", 13, "sm_120", []),
    ("control", 12, "sm_80", []),
    ("print", 12, "sm_80", []),
    ("memory", 13, "sm_90", []),
    ("warp", 12, "sm_80", ["--device-int128"]),
    ("warp", 13, "sm_120", ["--device-int128"]),
    ("control", 13, "sm_120", ["-lineinfo"]),
    ("half", 13, "sm_120", ["--use_fast_math"]),
    ("cooperative", 13, "sm_80", []),
    ("asm", 13, "sm_90", []),
    ("tensor", 13, "sm_90a", []),
    ("debug", 12, "sm_80", ["-lineinfo"]),
]


def compile_nvrtc(root, source, arch, options):
    # Loaded first, because nvrtc looks for it by name only.
    ctypes.CDLL(str(next(root.rglob("libnvrtc-builtins.so.*"))), ctypes.RTLD_GLOBAL)
    nvrtc = ctypes.CDLL(str(next(root.rglob("libnvrtc.so.*"))))
    include = next(root.rglob("cuda_fp16.h")).parent
    arguments = [f"--gpu-architecture={arch}", f"-I{include}", f"-I{include / 'cccl'}", "-default-device"]
    arguments = [a.encode() for a in arguments + options]
    program = ctypes.c_void_p()
    text = (HERE / source).read_bytes()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, source.encode(), 0, None, None)
    array = (ctypes.c_char_p * len(arguments))(*arguments)
    status = nvrtc.nvrtcCompileProgram(program, len(arguments), array)
    if status != 0:
        raise SystemExit(f"{source}: {fetch(nvrtc, 'ProgramLog', program)}")
    return fetch(nvrtc, "PTX", program)


def fetch(nvrtc, what, program):
    size = ctypes.c_size_t()
    getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    getattr(nvrtc, f"nvrtcGet{what}")(program, buffer)
    return buffer.value.decode()


def main():
    roots = {12: str(pathlib.Path(sys.argv[1]).resolve()), 13: str(pathlib.Path(sys.argv[2]).resolve())}
    for name, toolkit, arch, options in JOBS:
        # A process each: two toolkits do not get on in one.
        command = [sys.executable, str(HERE / "make.py"), "one", roots[toolkit], f"{name}.cu", arch, *options]
        # From the root, so that no path of this machine gets into a .file directive.
        output = HERE / f"{name}_{toolkit}_{arch}.ptx"
        subprocess.run(command, check=True, stdout=output.open("w"), cwd="/")
    if len(sys.argv) > 3:
        command = [sys.argv[3], "-x", "cuda", "--cuda-device-only", "--cuda-gpu-arch=sm_80", "-nocudainc"]
        command += ["-nocudalib", "-S", "-O2", "clang.cu", "-o", "clang_sm_80.ptx"]
        subprocess.run(command, cwd=HERE, check=True)


if sys.argv[1] == "one":
    print(compile_nvrtc(pathlib.Path(sys.argv[2]), sys.argv[3], sys.argv[4], sys.argv[5:]), end="")
else:
    main()
