#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compiles the dual headers as CUDA for the host and for a device, and runs the kernel where a GPU is.
set -u
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
if ! [ -x "$nvcc" ]; then
    echo "SKIP cuda_headers_compile: no nvcc on this machine"
    exit 0
fi
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
if "$nvcc" -std=c++17 -I. -Werror all-warnings -gencode arch=compute_80,code=sm_80 \
    -gencode arch=compute_90,code=sm_90 -gencode arch=compute_90,code=compute_90 \
    -o "$folder/dual" tests/gpu/dual_cuda.cu 2>"$folder/log"; then
    echo "PASS cuda_headers_compile"
else
    cat "$folder/log"
    echo "FAIL cuda_headers_compile: nvcc refused the headers"
    exit 1
fi
"$folder/dual"
