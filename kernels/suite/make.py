#!/usr/bin/env python3
"""Compiles the suite's kernels to ptx/THEME.VARIANT.ptx.gz, for every variant on a source's `// compile` lines.

A variant is COMPILER-TARGET[-OPTION..], such as nvrtc12.9-sm_80, nvcc13.0-sm_90-fast, clang19-sm_75-G. The
compilers come from Python packages and from Debian. CUDA need not be installed:

    bash kernels/suite/toolchain.sh /tmp/toolchain          # fetches and unpacks them
    python3 kernels/suite/make.py /tmp/toolchain            # variants that are missing or older than their source
    python3 kernels/suite/make.py /tmp/toolchain --all scan # all variants of these themes
"""

import argparse
import ctypes
import gzip
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent.resolve()
OPTIONS = {
    "nvrtc": {"fast": ["--use_fast_math"], "G": ["-G"], "lineinfo": ["-lineinfo"], "nofma": ["--fmad=false"]},
    "nvcc": {"fast": ["--use_fast_math"], "G": ["-G"], "lineinfo": ["-lineinfo"], "nofma": ["--fmad=false"]},
    "clang": {"fast": ["-ffast-math", "-fcuda-flush-denormals-to-zero"], "G": ["-g", "-O0"], "lineinfo": ["-gline-tables-only"],
              "nofma": ["-ffp-contract=off"], "O1": ["-O1"], "O3": ["-O3"]},
}


def variants(source):
    """Returns the variants on the `// compile` lines of a source."""
    lines = re.findall(r"^// compile (.*)$", source.read_text(), re.M)
    return [variant for line in lines for variant in line.split()]


def command(tools, variant, source):
    """Returns the command that compiles `source` to the file OUTPUT."""
    compiler, arch, *options = variant.split("-")
    kind, version = re.fullmatch(r"([a-z]+)([0-9.]+)", compiler).groups()
    flags = [flag for option in options for flag in OPTIONS[kind][option]]
    if kind == "nvrtc":
        return [sys.executable, __file__, str(tools), "--nvrtc", version, arch, source.name, "OUTPUT", *flags]
    if kind == "nvcc":
        home = tools / f"cuda{version.split('.')[0]}"
        return [str(home / "bin/nvcc"), "-ptx", f"-arch={arch}", "-std=c++17", "-Wno-deprecated-gpu-targets",
                f"-I{home / 'include/cccl'}", *flags, source.name, "-o", "OUTPUT"]
    level = [] if "G" in options or "O1" in options or "O3" in options else ["-O2"]
    return [f"clang-{version}", "-x", "cuda", "--cuda-device-only", f"--cuda-gpu-arch={arch}", "-std=c++17",
            f"--cuda-path={tools / 'cuda12'}", "-Wno-unknown-cuda-version", "-S", *level, *flags, source.name, "-o", "OUTPUT"]


def nvrtc(tools, version, arch, name, flags):
    """Compiles a source by NVRTC in a separate process, because two versions conflict in one."""
    root = tools / f"nvrtc{version}"
    home = tools / f"cuda{version.split('.')[0]}"
    # Loaded first, because NVRTC looks it up by name only.
    ctypes.CDLL(str(next(root.rglob("libnvrtc-builtins.so.*"))), ctypes.RTLD_GLOBAL)
    lib = ctypes.CDLL(str(next(path for path in root.rglob("libnvrtc.so.*"))))
    flags = [f"--gpu-architecture={arch}", f"-I{home / 'include'}", f"-I{home / 'include/cccl'}", "-default-device",
             "-std=c++17", "--device-int128", *flags]
    program = ctypes.c_void_p()
    lib.nvrtcCreateProgram(ctypes.byref(program), pathlib.Path(name).read_bytes(), name.encode(), 0, None, None)
    array = (ctypes.c_char_p * len(flags))(*(flag.encode() for flag in flags))
    status = lib.nvrtcCompileProgram(program, len(flags), array)
    what = "PTX" if status == 0 else "ProgramLog"
    size = ctypes.c_size_t()
    getattr(lib, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    getattr(lib, f"nvrtcGet{what}")(program, text)
    if status:
        raise SystemExit(text.value.decode())
    return text.value.decode()


def slim(ptx):
    """Removes comment lines and blank lines. Code stays unchanged."""
    lines = [line.rstrip() for line in ptx.splitlines()]
    return "\n".join(line for line in lines if line and not re.match(r"\s*//", line)) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("toolchain", type=pathlib.Path)
    parser.add_argument("themes", nargs="*", help="sources without .cu (default: all)")
    parser.add_argument("--all", action="store_true", help="also what is newer than its source")
    args = parser.parse_args()
    failed = 0
    for source in sorted(HERE.glob("*.cu")):
        if args.themes and source.stem not in args.themes:
            continue
        for variant in variants(source):
            output = HERE / "ptx" / f"{source.stem}.{variant}.ptx.gz"
            if not args.all and output.exists() and output.stat().st_mtime >= source.stat().st_mtime:
                continue
            # In the folder itself, so that the PTX contains no path of this machine.
            with tempfile.TemporaryDirectory() as folder:
                made = pathlib.Path(folder) / "made.ptx"
                words = [str(made) if word == "OUTPUT" else word for word in command(args.toolchain.resolve(), variant, source)]
                done = subprocess.run(words, cwd=HERE, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300)
                ptx = made.read_text() if made.exists() else ""
            if done.returncode or not ptx:
                print(f"FAILED {output.name}\n{done.stderr}{done.stdout[:2000]}", file=sys.stderr)
                failed += 1
                continue
            # Without time and name, so that the same PTX has the same file.
            output.write_bytes(gzip.compress(slim(ptx).encode(), 9, mtime=0))
            print(f"{output.name}: {output.stat().st_size} bytes")
    return 1 if failed else 0


if __name__ == "__main__":
    if "--nvrtc" in sys.argv:
        at = sys.argv.index("--nvrtc")
        version, arch, name, output, *flags = sys.argv[at + 1:]
        pathlib.Path(output).write_text(nvrtc(pathlib.Path(sys.argv[1]), version, arch, name, flags))
    else:
        sys.exit(main())
