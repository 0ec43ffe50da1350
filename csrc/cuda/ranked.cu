// Numbers of given rank without sorting: bits are found from the highest down, eight a pass, by counting how many
// numbers that agree so far go on with each of 256 values. Twice over, for a rank and the next.
#include "../kernels.hpp"
#include "../math/ordered.hpp"
#include "device.hpp"
#include "work.hpp"

namespace pyattnorg::cuda {
namespace {

constexpr int threads = 256, bins = 256;

struct State {  // what is known of a number: `found` of its leading bits, and its rank among those that agree
    std::uint64_t prefix, rank;
};

__global__ void begin_kernel(State* state, unsigned* counts, std::int64_t rank, std::int64_t n) {
    const int which = blockIdx.x;
    if (threadIdx.x == 0) {
        const std::int64_t wanted = rank + which < n ? rank + which : n - 1;
        state[which] = {0, static_cast<std::uint64_t>(wanted)};
    }
    counts[which * bins + threadIdx.x] = 0;
}

template <class T>
__global__ void count_kernel(const T* values, std::int64_t n, const State* state, int shift, unsigned* counts) {
    const std::int64_t i = std::int64_t{blockIdx.x} * threads + threadIdx.x;
    if (i >= n) return;
    const std::uint64_t bits = math::ordered_bits(values[i]);
    for (int which = 0; which < 2; ++which)
        if (shift + 8 >= 64 || bits >> (shift + 8) == state[which].prefix)
            atomicAdd(counts + which * bins + (bits >> shift & 255u), 1u);
}

template <class T>
__global__ void choose_kernel(State* state, unsigned* counts, int shift, T* out) {
    const int which = threadIdx.x;
    std::uint64_t rank = state[which].rank;
    unsigned* own = counts + which * bins;
    int bin = 0;
    while (rank >= own[bin]) rank -= own[bin++];
    const std::uint64_t prefix = state[which].prefix << 8 | static_cast<unsigned>(bin);
    state[which] = {prefix, rank};
    for (int k = 0; k < bins; ++k) own[k] = 0;
    if (shift == 0) out[which] = math::of_ordered_bits<T>(prefix);
}

}  // namespace

std::int64_t ranked_work() {
    Work work(nullptr);
    work.take<State>(2);
    work.take<unsigned>(2 * bins);
    return work.bytes();
}

template <class T>
void ranked(const T* values, std::int64_t n, std::int64_t rank, T* out, void* memory, Stream stream) {
    Work work(memory);
    State* state = work.take<State>(2);
    unsigned* counts = work.take<unsigned>(2 * bins);
    launch(begin_kernel, dim3(2), dim3(bins), 0, stream, state, counts, rank, n);
    for (int shift = 8 * static_cast<int>(sizeof(T)) - 8; shift >= 0; shift -= 8) {
        launch(count_kernel<T>, dim3(static_cast<unsigned>(blocks_for(n, threads))), dim3(threads), 0, stream, values,
               n, static_cast<const State*>(state), shift, counts);
        launch(choose_kernel<T>, dim3(1), dim3(2), 0, stream, state, counts, shift, out);
    }
}

template void ranked(const float*, std::int64_t, std::int64_t, float*, void*, Stream);
template void ranked(const double*, std::int64_t, std::int64_t, double*, void*, Stream);

}  // namespace pyattnorg::cuda
