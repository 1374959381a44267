#!/usr/bin/env bash
# Fetches the compilers that make.py calls, from Python's package index, into a folder. clang-19 and clang-22 are
# Debian packages: apt-get install clang-19 clang-22.
set -euo pipefail
to=${1:?a folder}
mkdir -p "$to/wheels"
fetch() { # FOLDER PACKAGE==VERSION..: unpacks each package into FOLDER
    local folder=$1 package
    shift
    for package in "$@"; do
        rm -rf "$to/wheels/one" && mkdir "$to/wheels/one"
        python3 -m pip download -q --no-deps --only-binary=:all: -d "$to/wheels/one" "$package"
        python3 -m zipfile -e "$to"/wheels/one/*.whl "$to/wheels/$folder"
    done
}
fetch nvrtc12.4 nvidia-cuda-nvrtc-cu12==12.4.127
fetch nvrtc12.9 nvidia-cuda-nvrtc-cu12==12.9.86
fetch nvrtc13.0 nvidia-cuda-nvrtc==13.0.88
fetch cuda12 nvidia-cuda-runtime-cu12==12.9.79 nvidia-cuda-nvcc-cu12==12.9.86 nvidia-cuda-cccl-cu12==12.9.27
fetch cuda13 nvidia-cuda-runtime==13.0.96 nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88 \
    nvidia-cuda-cccl==13.0.85 nvidia-curand==10.4.0.35
for version in 12.4 12.9 13.0; do ln -sfn "wheels/nvrtc$version" "$to/nvrtc$version"; done
ln -sfn wheels/cuda13/nvidia/cu13 "$to/cuda13"
chmod -R +x "$to/cuda13/bin" "$to/cuda13/nvvm/bin"
# One folder, as an installed CUDA 12 has it; clang's wrapper asks for a header of cuRAND.
mkdir -p "$to/cuda12"
cp -r "$to"/wheels/cuda12/nvidia/*/. "$to/cuda12"
cp "$to"/cuda13/include/curand* "$to/cuda12/include"
