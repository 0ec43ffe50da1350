// Everything that is CUDA-specific in a kernel file, beyond the names that CUDA has built in:
//   launch(kernel, grid, block, shared_bytes, stream, args...)   for <<<>>>, with the check after it
//   block_shared<S>()     one S in a block's static shared memory, for __shared__ S s
//   dynamic_shared<T>()   a block's dynamic shared memory, for extern __shared__ T t[]
// nvcc makes the real thing of them. g++ takes csrc/emulation/emulation.hpp instead, which has all of these.
#pragma once

#ifdef __CUDACC__
#include <cuda_runtime.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace pyattnorg::cuda {

template <class S>
__device__ __forceinline__ S& block_shared() {
    __shared__ S s;
    return s;
}

template <class T>
__device__ __forceinline__ T* dynamic_shared() {
    extern __shared__ __align__(16) unsigned char bytes[];
    return reinterpret_cast<T*>(bytes);
}

inline void check(cudaError_t code, const char* what) {
    if (code == cudaSuccess) return;
    cudaGetLastError();  // it is told once
    throw std::runtime_error(std::string("CUDA, ") + what + ": " + cudaGetErrorString(code));
}

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes, void* stream,
            Arguments&&... arguments) {
    constexpr std::size_t without_asking = 48 * 1024;
    if (shared_bytes > without_asking)
        check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)),
              "shared memory");
    kernel<<<grid, block, shared_bytes, static_cast<cudaStream_t>(stream)>>>(std::forward<Arguments>(arguments)...);
    check(cudaGetLastError(), "launch");
}

}  // namespace pyattnorg::cuda
#else
#include "../emulation/emulation.hpp"
#endif
