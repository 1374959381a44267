#!/usr/bin/env bash
# Builds target/release/peer_cuda_async. `build.sh check` only checks that it compiles. Needs Rust, gcc, python3 with pip,
# unzip and network access. It needs no GPU, driver or CUDA toolkit: the program opens libcuda when it runs.
#
# The peer's build script generates bindings from CUDA's headers with libclang. This script fetches both from PyPI into
# ./toolkit. CUDA 13.0 is the oldest version that the peer accepts and the one of driver 580, so the bindings contain no
# function that this driver lacks. `CUDA_HEADERS=13.3 bash build.sh` selects another version.
set -euo pipefail
cd "$(dirname "$0")"
cuda=${CUDA_HEADERS:-13.0}
toolkit=$PWD/toolkit/$cuda
libclang=$PWD/toolkit/libclang

if [[ ! -f $toolkit/nvidia/cu13/include/cuda.h ]]; then
    rm -rf "$toolkit"
    mkdir -p "$toolkit/wheels"
    # The build script also reads curand.h. Its version is independent of the driver's: nothing here calls cuRAND.
    python3 -m pip download --quiet --no-deps --only-binary=:all: --dest "$toolkit/wheels" \
        "nvidia-cuda-runtime==$cuda.*" "nvidia-cuda-crt==$cuda.*" "nvidia-curand==10.4.0.35"
    for wheel in "$toolkit"/wheels/*.whl; do unzip -qo "$wheel" 'nvidia/cu13/include/*' -d "$toolkit"; done
    rm -r "$toolkit/wheels"
fi

# An installed libclang.so will do, but libclang-cpp.so is another library.
installed() { ldconfig -p | grep -E '\blibclang(-[0-9.]+)?\.so' >/dev/null; }
if [[ -z ${LIBCLANG_PATH:-} ]] && ! installed; then
    if [[ ! -f $libclang/clang/native/libclang.so ]]; then
        python3 -m pip install --quiet --upgrade --target "$libclang" libclang==18.1.1
    fi
    export LIBCLANG_PATH=$libclang/clang/native
    # The wheel does not contain the compiler's own headers, such as stddef.h.
    BINDGEN_EXTRA_CLANG_ARGS=-I$(gcc -print-file-name=include)
    export BINDGEN_EXTRA_CLANG_ARGS
fi
export CUDA_TOOLKIT_PATH=$toolkit/nvidia/cu13
command=(build --release)
[[ ${1:-} != check ]] || { command=(check); shift; }
cargo "${command[@]}" --locked "$@"
