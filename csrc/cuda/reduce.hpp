// Sums over the threads of a block, in one fixed order.
#pragma once

#include "device.hpp"

namespace pyattnorg::cuda {

template <class T>
__device__ inline T warp_sum(T value) {
    for (int step = warpSize / 2; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
    return value;
}

// The block is a whole number of warps in x; every thread gets the sum.
template <class T, int threads>
__device__ inline T block_sum(T value) {
    struct Sums {
        T of_warp[threads / 32];
    };
    auto& sums = block_shared<Sums>();
    value = warp_sum(value);
    if (threadIdx.x % 32 == 0) sums.of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    T total = 0;
    for (int w = 0; w < threads / 32; ++w) total += sums.of_warp[w];
    __syncthreads();  // before the next call writes
    return total;
}

}  // namespace pyattnorg::cuda
