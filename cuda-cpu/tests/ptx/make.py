"""Compiles gemm.cu and copies.cu in this folder. cuda-ptx/tests/corpus/make.py explains how to get the compilers.
CUDA 12.9 also needs nvidia-cuda-cccl-cu12==12.9.27 and nvidia-cuda-nvcc-cu12==12.9.86, and CUDA 13.0 also needs
nvidia-cuda-crt==13.0.88.

    python3 make.py /tmp/v12 /tmp/v13
"""

import ctypes
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent.resolve()
JOBS = [
    ("gemm", 12, "sm_80"),
    ("gemm", 13, "sm_120"),
    ("copies", 12, "sm_80"),
    ("copies", 12, "sm_90"),
    ("copies", 13, "sm_90"),
    ("copies", 13, "sm_120"),
]


def compile_nvrtc(root, source, arch):
    # Loaded first, because NVRTC looks it up by name only.
    ctypes.CDLL(str(next(root.rglob("libnvrtc-builtins.so.*"))), ctypes.RTLD_GLOBAL)
    nvrtc = ctypes.CDLL(str(next(root.rglob("libnvrtc.so.*"))))
    includes = {header.parent for header in root.rglob("cuda_fp16.h")}
    includes |= {header.parent.parent for header in root.rglob("cuda/barrier")}
    includes |= {header.parent.parent for header in root.rglob("crt/mma.h")}
    arguments = [f"--gpu-architecture={arch}", "-default-device", "-std=c++17"]
    arguments += [f"-I{path}" for path in sorted(includes)]
    arguments = [a.encode() for a in arguments]
    program = ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), (HERE / source).read_bytes(), source.encode(), 0, None, None)
    status = nvrtc.nvrtcCompileProgram(program, len(arguments), (ctypes.c_char_p * len(arguments))(*arguments))
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
    for name, toolkit, arch in JOBS:
        # One process each, because two toolkits conflict in one.
        command = [sys.executable, str(HERE / "make.py"), "one", roots[toolkit], f"{name}.cu", arch]
        output = HERE / f"{name}_{toolkit}_{arch}.ptx"
        # In the root folder, so that the .file directives contain no path of this machine.
        subprocess.run(command, check=True, stdout=output.open("w"), cwd="/")


if sys.argv[1] == "one":
    print(compile_nvrtc(pathlib.Path(sys.argv[2]), sys.argv[3], sys.argv[4]), end="")
else:
    main()
