// Weights for features that noise has a part in (csrc/cpu/shrink_features.cpp). Columns that are kept are numbered in
// their order: blocks count theirs, one block adds up the counts, and every block writes its own.
#include "../kernels.hpp"
#include "device.hpp"
#include "reduce.hpp"
#include "work.hpp"

namespace pyattnorg::cuda {
namespace {

constexpr int threads = 256;

template <class T>
struct Plan {
    T* weight;           // [features]
    std::int64_t* kept;  // [blocks], of a block and then before it

    Plan(std::int64_t features, Work& work)
        : weight(work.take<T>(features)), kept(work.take<std::int64_t>(blocks_for(features, threads))) {}
};

template <class T>
__global__ void __launch_bounds__(threads)
    weigh_kernel(const T* x, std::int64_t n, std::int64_t features, double noise, Plan<T> plan) {
    const std::int64_t f = std::int64_t{blockIdx.x} * threads + threadIdx.x;
    T weight = 0;
    if (f < features) {
        const auto from = static_cast<double>(x[f]);  // what is far from 0 must not cancel
        double sum = 0, square = 0;
        for (std::int64_t i = 1; i < n; ++i) {
            const double d = static_cast<double>(x[i * features + f]) - from;
            sum += d;
            square += d * d;
        }
        const auto points = static_cast<double>(n);
        const double variance = (square - sum * sum / points) / (n > 1 ? points - 1 : 1.0);
        if (variance > noise) weight = static_cast<T>(sqrt(1 - noise / variance));
        plan.weight[f] = weight;
    }
    const std::int32_t kept = block_sum<std::int32_t, threads>(weight > 0);
    if (threadIdx.x == 0) plan.kept[blockIdx.x] = kept;
}

// One block: counts become what comes before; out gets the sum.
__global__ void __launch_bounds__(threads) add_counts(std::int64_t* counts, std::int64_t n, std::int64_t* out) {
    struct Stretches {
        std::int64_t sum[threads];
    };
    auto& before = block_shared<Stretches>();
    const std::int64_t per = (n + threads - 1) / threads, begin = threadIdx.x * per;
    const std::int64_t end = begin + per < n ? begin + per : n;
    std::int64_t sum = 0;
    for (std::int64_t k = begin; k < end; ++k) sum += counts[k];
    before.sum[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        std::int64_t all = 0;
        for (int t = 0; t < threads; ++t) {
            const std::int64_t own = before.sum[t];
            before.sum[t] = all;
            all += own;
        }
        *out = all;
    }
    __syncthreads();
    sum = before.sum[threadIdx.x];
    for (std::int64_t k = begin; k < end; ++k) {
        const std::int64_t own = counts[k];
        counts[k] = sum;
        sum += own;
    }
}

template <class T>
__global__ void __launch_bounds__(threads)
    place_kernel(std::int64_t features, Plan<T> plan, std::int32_t* columns, T* factors) {
    struct Ranks {
        std::int32_t of[threads];
    };
    auto& ranks = block_shared<Ranks>();
    const std::int64_t f = std::int64_t{blockIdx.x} * threads + threadIdx.x;
    const T weight = f < features ? plan.weight[f] : T(0);
    ranks.of[threadIdx.x] = weight > 0;
    __syncthreads();
    if (threadIdx.x == 0) {
        std::int32_t rank = 0;
        for (int t = 0; t < threads; ++t) {
            const std::int32_t own = ranks.of[t];
            ranks.of[t] = rank;
            rank += own;
        }
    }
    __syncthreads();
    if (!(weight > 0)) return;
    const std::int64_t at = plan.kept[blockIdx.x] + ranks.of[threadIdx.x];
    columns[at] = static_cast<std::int32_t>(f);
    factors[at] = weight;
}

// A block a row, from the left: what a stretch is made of lies in it or to the right of it.
template <class T>
__global__ void __launch_bounds__(threads)
    close_gaps_kernel(T* x, std::int64_t features, const std::int32_t* columns, const T* factors, std::int64_t kept) {
    T* const row = x + blockIdx.x * features;
    for (std::int64_t begin = 0; begin < kept; begin += threads) {
        const std::int64_t k = begin + threadIdx.x;
        const T value = k < kept ? factors[k] * row[columns[k]] : T(0);
        __syncthreads();
        if (k < kept) row[k] = value;
        __syncthreads();
    }
}

}  // namespace

std::int64_t weigh_features_work(std::int64_t features, bool wide) {
    Work work(nullptr);
    if (wide)
        Plan<double>(features, work);
    else
        Plan<float>(features, work);
    return work.bytes();
}

template <class T>
void weigh_features(const T* x, std::int64_t n, std::int64_t features, double noise, std::int32_t* columns, T* factors,
                    std::int64_t* kept, void* memory, Stream stream) {
    Work work(memory);
    const Plan<T> plan(features, work);
    const std::int64_t blocks = blocks_for(features, threads);
    const dim3 grid(static_cast<unsigned>(blocks));
    launch(weigh_kernel<T>, grid, dim3(threads), 0, stream, x, n, features, noise, plan);
    launch(add_counts, dim3(1), dim3(threads), 0, stream, plan.kept, blocks, kept);
    launch(place_kernel<T>, grid, dim3(threads), 0, stream, features, plan, columns, factors);
}

template <class T>
void close_gaps(T* x, std::int64_t n, std::int64_t features, const std::int32_t* columns, const T* factors,
                std::int64_t kept, Stream stream) {
    launch(close_gaps_kernel<T>, dim3(static_cast<unsigned>(n)), dim3(threads), 0, stream, x, features, columns,
           factors, kept);
}

#define PYATTNORG_INSTANTIATE(T)                                                                                 \
    template void weigh_features(const T*, std::int64_t, std::int64_t, double, std::int32_t*, T*, std::int64_t*, \
                                 void*, Stream);                                                                 \
    template void close_gaps(T*, std::int64_t, std::int64_t, const std::int32_t*, const T*, std::int64_t, Stream);
PYATTNORG_INSTANTIATE(float)
PYATTNORG_INSTANTIATE(double)

}  // namespace pyattnorg::cuda
