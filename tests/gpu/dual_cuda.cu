/* SPDX-License-Identifier: Apache-2.0 */
// The executor inside a kernel: compiled in the build; where a GPU exists, main() compares the
// kernel's digest with the host's and prints both.
#include <cstdio>

#include "tests/gpu/dual_body.h"

__global__ void digest_kernel(unsigned long long *out) {
    *out = dual_digest();
}

int main() {
    unsigned long long *out = nullptr, device = 0, host = dual_digest();
    if (cudaMalloc(&out, sizeof *out) != cudaSuccess) {
        std::printf("SKIP cuda_executor_agrees: no usable GPU\n");
        return 0;
    }
    digest_kernel<<<1, 1>>>(out);
    cudaError_t error = cudaMemcpy(&device, out, sizeof device, cudaMemcpyDeviceToHost);
    bool same = error == cudaSuccess && device == host && host != 0;
    std::printf("%s cuda_executor_agrees: device %llx host %llx, %s\n", same ? "PASS" : "FAIL",
                device, host, cudaGetErrorString(error));
    return same ? 0 : 1;
}
