// Runs the CUDA kernels, compiled by g++, where there is no GPU: a test tool, never installed.
//
// Every CUDA thread is a fiber. Blocks run one after another; the fibers of a block run in an order that the test
// chooses (PYATTNORG_EMULATED_ORDER=forward|backward|shuffled). Nothing orders fibers but the barriers that a kernel
// calls, and ThreadSanitizer is told exactly that: a missing barrier or a race between blocks is reported on every run
// and not by luck. AddressSanitizer guards both ends of shared memory, which is new for every block and full of NaN.
// In any build: all threads of a block must come to the same barrier, a shuffle's mask must name just the lanes that
// take part, a block's sizes must be those that a GPU takes.
//
// Not modelled: memory order apart from barriers and atomics, bank conflicts, coalescing, occupancy, streams.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(16) double2 {
    double x, y;
};

// As much of the runtime as kernel files call themselves: there is one device.
using cudaError_t = int;
constexpr cudaError_t cudaSuccess = 0;
inline cudaError_t cudaGetDevice(int* device) {
    return *device = 0;
}
inline cudaError_t cudaSetDevice(int device) {
    return device == 0 ? cudaSuccess : 101;  // cudaErrorInvalidDevice
}
inline cudaError_t cudaGetDeviceCount(int* count) {
    *count = 1;
    return cudaSuccess;
}
inline cudaError_t cudaGetLastError() {
    return cudaSuccess;
}

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
constexpr int warpSize = 32;

namespace pyattnorg::emulation {

struct Site {  // where in the source a barrier stands
    const char* file;
    int line;
};

void wait_block(Site site);
void wait_warp(unsigned mask, Site site);
std::uint64_t exchange(unsigned mask, std::uint64_t value, int source_lane, Site site);
int lane();
void* dynamic_shared_bytes();
void* static_shared_bytes(const void* key, std::size_t bytes);
void run_grid(dim3 grid, dim3 block, std::size_t shared_bytes, const std::function<void()>& body);
std::mutex& one_at_a_time();

}  // namespace pyattnorg::emulation

#define PYATTNORG_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()
inline void __syncthreads(PYATTNORG_SITE) {
    pyattnorg::emulation::wait_block({file, line});
}
inline void __syncwarp(unsigned mask = 0xffffffffu, PYATTNORG_SITE) {
    pyattnorg::emulation::wait_warp(mask, {file, line});
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int with, PYATTNORG_SITE) {
    static_assert(sizeof(T) <= sizeof(std::uint64_t) && std::is_trivially_copyable_v<T>);
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(T));
    bits = pyattnorg::emulation::exchange(mask, bits, pyattnorg::emulation::lane() ^ with, {file, line});
    std::memcpy(&value, &bits, sizeof(T));
    return value;
}
#undef PYATTNORG_SITE

inline unsigned atomicAdd(unsigned* p, unsigned value) {  // relaxed, as on the device: it orders nothing else
    return std::atomic_ref<unsigned>(*p).fetch_add(value, std::memory_order_relaxed);
}

namespace pyattnorg::cuda {

inline void check(cudaError_t code, const char* what) {
    if (code != cudaSuccess) throw std::runtime_error(std::string("CUDA, ") + what + ": error " + std::to_string(code));
}

template <class S>
S& block_shared() {
    static const char key = 0;  // one a type
    return *static_cast<S*>(emulation::static_shared_bytes(&key, sizeof(S)));
}
template <class T>
T* dynamic_shared() {
    return static_cast<T*>(emulation::dynamic_shared_bytes());
}

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes, void*,
            Arguments&&... arguments) {
    const std::lock_guard lock(emulation::one_at_a_time());
    const std::tuple<Parameters...> values(std::forward<Arguments>(arguments)...);
    emulation::run_grid(grid, block, shared_bytes, [&] { std::apply(kernel, values); });
}

}  // namespace pyattnorg::cuda
