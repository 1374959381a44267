#!/usr/bin/env bash
# Builds the peer's program: target/release/peer_cuda_async beside this file. Needs Rust, python3 with pip, unzip and
# the network; no GPU, no driver, no CUDA. The program opens libcuda when it runs.
#
# Its bindings are made from CUDA's headers by libclang when it is built. Both come from PyPI into ./toolkit. The
# headers are those of CUDA 13.0, which is what a driver 580 speaks and the oldest that the crate takes: so none of
# its calls is one that the driver does not have. `CUDA_HEADERS=13.5 build.sh` takes newer ones.
set -euo pipefail
cd "$(dirname "$0")"
cuda=${CUDA_HEADERS:-13.0}
toolkit=$PWD/toolkit/$cuda

fetch() { # folder, packages..
    local wheels=$toolkit/wheels
    mkdir -p "$wheels"
    python3 -m pip download --quiet --no-deps --only-binary=:all: --dest "$wheels" "$@"
    for wheel in "$wheels"/*.whl; do unzip -qo "$wheel" 'nvidia/cu13/include/*' -d "$toolkit"; done
}

if [[ ! -f $toolkit/nvidia/cu13/include/cuda.h ]]; then
    # cuRAND's header names a version of its own; any of CUDA 13 will do, since nothing here calls it.
    fetch "nvidia-cuda-runtime==$cuda.*" "nvidia-cuda-crt==$cuda.*" "nvidia-curand==10.4.0.35"
    rm -r "$toolkit/wheels"
fi
if [[ -z ${LIBCLANG_PATH:-} ]] && ! ldconfig -p | grep -q libclang; then
    python3 -m pip install --quiet --target "$PWD/toolkit/libclang" libclang==18.1.1
    export LIBCLANG_PATH=$PWD/toolkit/libclang/clang/native
    # It comes without the compiler's own headers.
    export BINDGEN_EXTRA_CLANG_ARGS=-I$(gcc -print-file-name=include)
fi
export CUDA_TOOLKIT_PATH=$toolkit/nvidia/cu13
cargo build --release --locked "$@"
