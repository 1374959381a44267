#!/usr/bin/env python3
"""Compiles CUDA C kernels with NVRTC and no other part of CUDA: the repository's to PTX, your own to PTX or cubins.

    pip install nvidia-cuda-nvrtc-cu12==12.4.127 nvidia-cuda-runtime-cu12==12.4.127
    python3 kernels/compile.py            # writes X.ptx beside each X.cu
    python3 kernels/compile.py --check    # fails if a committed .ptx differs from the compiled one

Compiles your own kernels as nvcc would, with line information for the CPU device's messages. Any NVRTC works:

    python3 kernels/compile.py mine.cu                       # writes mine.ptx beside it
    python3 kernels/compile.py mine.cu --arch compute_80 --out /tmp
    python3 kernels/compile.py mine.cu -I include -D TILE=16
    python3 kernels/compile.py mine.cu --arch sm_90          # writes mine.cubin, machine code of one GPU architecture

The PTX beside a source that a program declares by `#[cuda = "mine.cu"]` must state the source's digest. Make it with
`cuda-nvrtc mine.cu` instead.

CUDA's own headers, such as cuda_fp16.h, are in another wheel, which is found by itself:

    pip install nvidia-cuda-runtime-cu12==12.4.127

The PTX is committed so that neither CUDA nor this script is needed to build or to test. To test parsers with the
output of another compiler, which must not be committed (CUDA 13 writes its new style of PTX only for newer targets):

    pip install nvidia-cuda-nvrtc==13.0.88
    python3 kernels/compile.py --nvrtc .../nvidia/cu13/lib/libnvrtc.so.13 --arch compute_100 --out /tmp/ptx13
"""

import argparse
import ctypes
import importlib.util
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The sources, relative to the root. Each example may have its own kernels.
SOURCES = ("kernels/*.cu", "kernels/bugs/*.cu", "kernels/sm_90/*.cu", "examples/*/kernels/*.cu",
           "benches/cpu_device/*.cu", "cuda-tensor/kernels/*.cu", "cuda-tensor/kernels/*/*.cu")
# The folder of headers (`.cuh`) of the sources.
HEADERS = "cuda-tensor/kernels"
# The sources that are compiled with line information.
LINE_INFO = "kernels/bugs/"

# The sources that need compute capability 9.0 and CUDA's headers.
NEW_TARGET = "kernels/sm_90/"

# 12.4 writes PTX ISA 8.4, which every driver from r550 on loads. A newer compiler would exclude drivers
# for features that no kernel here uses.
PIN = (12, 4)
PACKAGE = "nvidia-cuda-nvrtc-cu12==12.4.127"

# The oldest target that CUDA 12 and CUDA 13 both accept, so one set of sources serves both. PTX is compiled
# forward to every later GPU, and nothing here needs an instruction newer than Turing's.
ARCH = "compute_75"
NEW_ARCH = "compute_90"

STANDARD = "--std=c++17"
OPTIONS = (
    # Only an explicit fmaf is a fused multiply-add. The source then defines the result of a kernel, and the
    # host can reproduce it bit for bit.
    "--fmad=false",
    STANDARD,
)
# Options for kernels that are not the repository's.
OWN_OPTIONS = (STANDARD, "--generate-line-info")


class CompileError(Exception):
    """The error of a kernel that does not compile, with the compiler's log."""


class Nvrtc:
    """The calls of NVRTC that compile a source."""

    def __init__(self, path, arch):
        self.arch = f"--gpu-architecture={arch}"
        self.machine_code = arch.startswith("sm_")
        # NVRTC opens its built-in functions by name, and some wheels contain no path to them.
        for builtins in sorted(path.parent.glob("libnvrtc-builtins.so*")):
            ctypes.CDLL(str(builtins))
        self.lib = ctypes.CDLL(str(path))
        self.lib.nvrtcGetErrorString.restype = ctypes.c_char_p
        # A handle is a pointer. Without these types, ctypes would pass it as a 32-bit int.
        for name in ("nvrtcCompileProgram", "nvrtcGetProgramLogSize", "nvrtcGetProgramLog",
                     "nvrtcGetPTXSize", "nvrtcGetPTX", "nvrtcGetCUBINSize", "nvrtcGetCUBIN"):
            getattr(self.lib, name).argtypes = [ctypes.c_void_p] + {
                "nvrtcCompileProgram": [ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)],
            }.get(name, [ctypes.c_void_p])

    def check(self, status, what):
        if status != 0:
            raise CompileError(f"{what}: {self.lib.nvrtcGetErrorString(status).decode()}")

    def version(self):
        major, minor = ctypes.c_int(), ctypes.c_int()
        self.check(self.lib.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)), "nvrtcVersion")
        return major.value, minor.value

    def result(self, program, size_call, call):
        """Returns a result as bytes. NVRTC returns its size first."""
        size = ctypes.c_size_t()
        self.check(size_call(program, ctypes.byref(size)), "size")
        buffer = ctypes.create_string_buffer(size.value)
        self.check(call(program, buffer), "result")
        return buffer.raw

    def text(self, program, size_call, text_call):
        """Returns a NUL-terminated text."""
        return self.result(program, size_call, text_call).partition(b"\0")[0].decode()

    def compile(self, name, source, options, arch=None):
        """Returns the PTX of `source`, or the bytes of its cubin for a target `sm_..`, and the compiler's log. `name` is
        the file name in asserts and diagnostics."""
        lib, program = self.lib, ctypes.c_void_p()
        self.check(
            lib.nvrtcCreateProgram(ctypes.byref(program), source.encode(), name.encode(), 0, None, None), name)
        try:
            options = (f"--gpu-architecture={arch}" if arch else self.arch, *options)
            options = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
            status = lib.nvrtcCompileProgram(program, len(options), options)
            log = self.text(program, lib.nvrtcGetProgramLogSize, lib.nvrtcGetProgramLog).strip()
            if status != 0:
                raise CompileError(log or f"{name}: status {status}")
            if self.machine_code:
                return self.result(program, lib.nvrtcGetCUBINSize, lib.nvrtcGetCUBIN), log
            ptx = self.text(program, lib.nvrtcGetPTXSize, lib.nvrtcGetPTX).rstrip() + "\n"
            # Line information contains the working folder of the compiler before the name.
            return ptx.replace(f'"{pathlib.Path.cwd()}/{name}"', f'"{name}"'), log
        finally:
            lib.nvrtcDestroyProgram(ctypes.byref(program))


def pinned_nvrtc():
    """Returns the path of the pinned wheel's library in this Python environment."""
    try:
        spec = importlib.util.find_spec("nvidia.cuda_nvrtc")
    except ModuleNotFoundError:
        spec = None
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for library in sorted(pathlib.Path(folder).glob("lib/libnvrtc.so*")):
            return library
    raise SystemExit(f"NVRTC is not installed here; run: pip install {PACKAGE}")


def arguments():
    parser = argparse.ArgumentParser(description="Compile kernels: the repository's to PTX, your own to PTX or cubins.")
    parser.add_argument("files", nargs="*", type=pathlib.Path, metavar="FILE.cu", help="your own kernels")
    parser.add_argument("--check", action="store_true", help="compare with the committed .ptx, write nothing")
    parser.add_argument("--skip", action="append", default=[], metavar="FOLDER", help="leave out the sources of this folder")
    parser.add_argument("--nvrtc", type=pathlib.Path, help="another libnvrtc")
    parser.add_argument("--out", type=pathlib.Path, help="write to this folder instead of beside the sources")
    parser.add_argument("-I", action="append", default=[], metavar="FOLDER", help="search headers here")
    parser.add_argument("-D", action="append", default=[], metavar="NAME[=VALUE]", help="define a macro")
    parser.add_argument("--arch", default=ARCH, help="another target (default: %(default)s); sm_.. makes a cubin")
    args = parser.parse_args()
    if not args.files and args.arch.startswith("sm_"):
        parser.error("--arch sm_.. is for your own kernels: name their files")
    if args.files and args.check:
        parser.error("--check is for the repository's own kernels")
    if not args.files and (args.nvrtc or args.arch != ARCH) and not args.out:
        parser.error("--nvrtc and --arch need --out: only the pinned compiler and target are committed")
    if not args.files and (args.I or args.D):
        parser.error("-I and -D are for your own kernels: name their files")
    if args.files and args.skip:
        parser.error("--skip is for the repository's own kernels")
    if args.check and args.out:
        parser.error("--check compares with the committed files; it takes no --out")
    return args


def wheel_headers():
    """Returns the folders of CUDA's headers in this Python environment, perhaps none."""
    try:
        spec = importlib.util.find_spec("nvidia.cuda_runtime")
    except ModuleNotFoundError:
        spec = None
    folders = [pathlib.Path(folder) / "include" for folder in (spec.submodule_search_locations or ())] if spec else []
    return [folder.as_posix() for folder in folders if folder.is_dir()]


def compile_own(nvrtc, files, out, folders, macros):
    """Compiles kernels that are not the repository's. Warnings are printed and are not errors."""
    failed = 0
    given = [f"--include-path={folder}" for folder in (*folders, *wheel_headers())]
    given += [f"--define-macro={macro}" for macro in macros]
    for path in files:
        suffix = ".cubin" if nvrtc.machine_code else ".ptx"
        target = (out or path.parent) / path.with_suffix(suffix).name
        try:
            code, log = nvrtc.compile(path.as_posix(), path.read_text(), (*OWN_OPTIONS, *given))
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(code if nvrtc.machine_code else code.encode())
            print(f"{log}\n" if log else "", f"wrote {target}", sep="")
        except (CompileError, OSError) as error:
            print(f"FAILED {path}\n{error}", file=sys.stderr)
            failed += 1
    return 1 if failed else 0


def place(path):
    """The place of a source in the order of compilation. Calls are numbered across all sources."""
    name = path.as_posix()
    return name.startswith(NEW_TARGET), name.startswith(HEADERS), name.startswith(LINE_INFO), name


def main():
    args = arguments()
    nvrtc = Nvrtc(args.nvrtc or pinned_nvrtc(), args.arch)
    if args.files:
        return compile_own(nvrtc, args.files, args.out, args.I, args.D)
    if not args.nvrtc and nvrtc.version() != PIN:
        raise SystemExit(f"found NVRTC {nvrtc.version()}, expected {PIN}; run: pip install {PACKAGE}")
    failed = 0
    sources = sorted(path.relative_to(ROOT) for pattern in SOURCES for path in ROOT.glob(pattern))
    for path in sorted(sources, key=place):
        if any(path.is_relative_to(folder) for folder in args.skip):
            continue
        source, name = ROOT / path, path.as_posix()
        try:
            lines = ("--generate-line-info",) if name.startswith(LINE_INFO) else ()
            options = (*OPTIONS, f"--include-path={ROOT / HEADERS}", *lines)
            arch = None
            if name.startswith(NEW_TARGET):
                options += tuple(f"--include-path={folder}" for folder in wheel_headers())
                arch = NEW_ARCH if args.arch == ARCH else None
            ptx, log = nvrtc.compile(name, source.read_text(), options, arch)
            # A warning is an error, because users read these sources first.
            if log:
                raise CompileError(log)
        except CompileError as error:
            print(f"FAILED {name}\n{error}", file=sys.stderr)
            failed += 1
            continue
        target = source.with_suffix(".ptx")
        if args.out:
            target = args.out / target.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
        if not args.check:
            target.write_text(ptx)
            print(f"wrote {target}")
        elif not target.exists() or target.read_text() != ptx:
            print(f"STALE {target.relative_to(ROOT)}: run kernels/compile.py", file=sys.stderr)
            failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
