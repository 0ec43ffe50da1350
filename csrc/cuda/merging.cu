// Least-entropy agglomeration (csrc/cpu/entropy_tree.cpp tells how), with nothing that the host has to know before the
// end: which pairs merge is chosen on the device, and the lengths of all lists stay there. A pass is five launches of
// fixed size, whose blocks take what there is to do:
//
//     choose   pairs of folders that are each other's cheapest partner, in the order of their first points
//     mean     their means, in the row of the folder that comes first
//     measure  the new rows against all living ones, in tiles of pairs; few tiles share their features among splits
//     keep     sums of splits, as distances
//     look     for the cheapest partner of every living folder, a warp each
//
// Distances are summed from differences in T over 64 features, in double beyond: every pair has one fixed order.
#include "../math/merging.hpp"

#include "../kernels.hpp"
#include "../math/pair.hpp"
#include "device.hpp"
#include "tile.hpp"
#include "work.hpp"

namespace pyattnorg::cuda {
namespace {

constexpr int threads = 256, warps = threads / 32, side = 64, per_thread = 4, chunks_per_sum = 4;
constexpr int depth = 16;
constexpr std::int64_t least_per_split = depth * chunks_per_sum, columns_per_task = 2048;
constexpr std::int64_t most_blocks = 4 * PYATTNORG_BLOCKS_WANTED;

struct Counts {
    std::int64_t living, fresh, first, merged;  // folders left, new ones of this pass, merges before it and so far
};

template <class T>
struct Plan {
    Counts* counts;
    T* distances;                    // [n][n], by first points
    T* share;                        // [n / 2][2], of both folders in the mean of a new one
    double *size, *cost;             // [n], by first point
    std::int32_t *nearest, *living;  // [n]; [n] ascending
    std::int32_t *columns, *spare;   // [n], new folders and then the others; [n]
    double* partial;                 // [splits][tiles][side][side]

    Plan(std::int64_t n, Work& work)
        : counts(work.take<Counts>(1)),
          distances(work.take<T>(n * n)),
          share(work.take<T>(n)),
          size(work.take<double>(n)),
          cost(work.take<double>(n)),
          nearest(work.take<std::int32_t>(n)),
          living(work.take<std::int32_t>(n)),
          columns(work.take<std::int32_t>(n)),
          spare(work.take<std::int32_t>(n)),
          partial(work.take<double>(most_tiles(n) * side * side)) {}

    static std::int64_t most_tiles(std::int64_t n) {
        return std::max<std::int64_t>(blocks_for(n / 2, side) * blocks_for(n, side), PYATTNORG_BLOCKS_WANTED);
    }
};

// How the pairs of a pass are cut into tiles, and their features into splits.
struct Cut {
    std::int64_t across, tiles, per_split, splits;

    __device__ Cut(const Counts& counts, std::int64_t features) {
        across = (counts.living + side - 1) / side;
        tiles = (counts.fresh + side - 1) / side * across;
        const std::int64_t most = tiles && PYATTNORG_BLOCKS_WANTED > tiles ? PYATTNORG_BLOCKS_WANTED / tiles : 1;
        const std::int64_t wanted = (features + most - 1) / most;
        per_split = (wanted + least_per_split - 1) / least_per_split * least_per_split;
        splits = per_split ? (features + per_split - 1) / per_split : 0;
    }
};

template <class T>
__global__ void start_kernel(std::int64_t n, const T* given, Plan<T> plan) {
    const std::int64_t step = std::int64_t{gridDim.x} * threads;
    for (std::int64_t e = std::int64_t{blockIdx.x} * threads + threadIdx.x; e < n * n; e += step) {
        plan.distances[e] = given[e];
        if (e >= n) continue;
        plan.size[e] = 1;
        plan.living[e] = static_cast<std::int32_t>(e);
        if (e == 0) *plan.counts = {n, 0, 0, 0};
    }
}

// One block; a thread has a stretch of the living folders.
template <class T>
__global__ void __launch_bounds__(threads)
    choose_pairs(Plan<T> plan, std::int32_t* merges, double* costs, std::int64_t* left) {
    struct Found {
        std::int32_t pairs[threads], others[threads];
    };
    auto& before = block_shared<Found>();
    const Counts counts = *plan.counts;
    const std::int64_t per = (counts.living + threads - 1) / threads, begin = threadIdx.x * per;
    const std::int64_t end = begin + per < counts.living ? begin + per : counts.living;
    const auto partner = [&](std::int32_t i) {  // -1: none that has i as its own cheapest
        const std::int32_t j = plan.nearest[i];
        return j >= 0 && plan.nearest[j] == i ? j : -1;
    };
    std::int32_t pairs = 0, others = 0;
    for (std::int64_t k = begin; k < end; ++k) {
        const std::int32_t i = plan.living[k], j = partner(i);
        pairs += j > i;
        others += j < 0;
    }
    before.pairs[threadIdx.x] = pairs;
    before.others[threadIdx.x] = others;
    __syncthreads();
    if (threadIdx.x == 0) {
        pairs = others = 0;
        for (int t = 0; t < threads; ++t) {
            const std::int32_t own_pairs = before.pairs[t], own_others = before.others[t];
            before.pairs[t] = pairs;
            before.others[t] = others;
            pairs += own_pairs;
            others += own_others;
        }
        *plan.counts = {others + pairs, pairs, counts.merged, counts.merged + pairs};
        *left = others + pairs;
    }
    __syncthreads();
    const std::int64_t fresh = plan.counts->fresh, living = plan.counts->living;
    std::int64_t p = before.pairs[threadIdx.x], o = before.others[threadIdx.x];
    for (std::int64_t k = begin; k < end; ++k) {
        const std::int32_t i = plan.living[k], j = partner(i);
        if (j < 0) plan.columns[fresh + o] = i;
        if (j < 0 || j > i) plan.spare[p + o] = i;
        if (j > i) {
            const double s = plan.size[i], M = plan.size[j];
            plan.share[2 * p] = static_cast<T>(s / (s + M));
            plan.share[2 * p + 1] = static_cast<T>(M / (s + M));
            plan.size[i] = s + M;
            plan.columns[p] = i;
            merges[2 * (counts.merged + p)] = i;
            merges[2 * (counts.merged + p) + 1] = j;
            costs[counts.merged + p] = plan.cost[i];
        }
        p += j > i;
        o += j < 0;
    }
    __syncthreads();
    for (std::int64_t k = threadIdx.x; k < living; k += threads) plan.living[k] = plan.spare[k];
}

template <class T>
__global__ void mean_rows(T* x, std::int64_t features, std::int64_t stride, Plan<T> plan, const std::int32_t* merges) {
    const Counts counts = *plan.counts;
    const std::int64_t tasks = (features + columns_per_task - 1) / columns_per_task;
    for (std::int64_t task = blockIdx.x; task < counts.fresh * tasks; task += gridDim.x) {
        const std::int64_t p = task / tasks, begin = task % tasks * columns_per_task;
        const std::int64_t end = begin + columns_per_task < features ? begin + columns_per_task : features;
        T* const a = x + merges[2 * (counts.first + p)] * stride;
        const T* const b = x + merges[2 * (counts.first + p) + 1] * stride;
        const T of_a = plan.share[2 * p], of_b = plan.share[2 * p + 1];
        for (std::int64_t f = begin + threadIdx.x; f < end; f += threads) a[f] = of_a * a[f] + of_b * b[f];
    }
}

template <class T>
struct Stage {
    alignas(16) T rows[depth][side + 4];  // four more keep threads off one another's memory banks
    alignas(16) T columns[depth][side + 4];
};

// Thread (tx, ty) of 16 x 16 holds four rows and four columns of a tile.
template <class T>
__global__ void __launch_bounds__(threads)
    measure_rows(const T* x, std::int64_t features, std::int64_t stride, Plan<T> plan) {
    using V = typename Vector<T>::type;
    constexpr int width = sizeof(V) / sizeof(T), loads = side / (threads / depth);
    struct Stages {
        Stage<T> stage[2];
    };
    auto& shared = block_shared<Stages>();
    const Counts counts = *plan.counts;
    const Cut cut(counts, features);
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16, k_in = threadIdx.x % depth, p_in = threadIdx.x / depth;
    for (std::int64_t item = blockIdx.x; item < cut.tiles * cut.splits; item += gridDim.x) {
        const std::int64_t tile = item % cut.tiles, split = item / cut.tiles;
        const std::int64_t row = tile / cut.across, column = tile % cut.across;
        if (column < row) continue;  // new against new: measured as (column, row)
        const std::int64_t begin = split * cut.per_split;
        const std::int64_t end = begin + cut.per_split < features ? begin + cut.per_split : features;
        const T *row_at[loads], *column_at[loads];
#pragma unroll
        for (int l = 0; l < loads; ++l) {  // what lies beyond the last is measured and not kept
            const std::int64_t p = row * side + l * (threads / depth) + p_in;
            const std::int64_t o = column * side + l * (threads / depth) + p_in;
            row_at[l] = x + plan.columns[p < counts.fresh ? p : counts.fresh - 1] * stride + k_in;
            column_at[l] = x + plan.columns[o < counts.living ? o : counts.living - 1] * stride + k_in;
        }
        T next_rows[loads], next_columns[loads];
        const auto fetch = [&](std::int64_t from) {
#pragma unroll
            for (int l = 0; l < loads; ++l) {
                next_rows[l] = from + k_in < end ? row_at[l][from] : T(0);
                next_columns[l] = from + k_in < end ? column_at[l][from] : T(0);
            }
        };
        const auto store = [&](Stage<T>& stage) {
#pragma unroll
            for (int l = 0; l < loads; ++l) {
                stage.rows[k_in][l * (threads / depth) + p_in] = next_rows[l];
                stage.columns[k_in][l * (threads / depth) + p_in] = next_columns[l];
            }
        };
        T sum[per_thread][per_thread] = {};
        double total[per_thread][per_thread] = {};
        const auto flush = [&] {
#pragma unroll
            for (int r = 0; r < per_thread; ++r)
#pragma unroll
                for (int c = 0; c < per_thread; ++c) {
                    total[r][c] += static_cast<double>(sum[r][c]);
                    sum[r][c] = 0;
                }
        };
        fetch(begin);
        store(shared.stage[0]);
        __syncthreads();
        int chunk = 0;
        for (std::int64_t from = begin; from < end; from += depth, ++chunk) {
            const bool more = from + depth < end;
            if (more) fetch(from + depth);
            const Stage<T>& stage = shared.stage[chunk % 2];
#pragma unroll
            for (int k = 0; k < depth; ++k) {
                T a[per_thread], b[per_thread];
#pragma unroll
                for (int g = 0; g < per_thread; g += width) {
                    *reinterpret_cast<V*>(a + g) = *reinterpret_cast<const V*>(&stage.rows[k][ty * per_thread + g]);
                    *reinterpret_cast<V*>(b + g) = *reinterpret_cast<const V*>(&stage.columns[k][tx * per_thread + g]);
                }
#pragma unroll
                for (int r = 0; r < per_thread; ++r)
#pragma unroll
                    for (int c = 0; c < per_thread; ++c)
                        sum[r][c] = math::add_term<Term::l1, false>(sum[r][c], a[r], b[c], T(1));
            }
            if (chunk % chunks_per_sum == chunks_per_sum - 1) flush();
            if (more) store(shared.stage[(chunk + 1) % 2]);
            __syncthreads();
        }
        flush();
        double* const out = plan.partial + item * side * side;
#pragma unroll
        for (int r = 0; r < per_thread; ++r)
#pragma unroll
            for (int c = 0; c < per_thread; ++c) out[(ty * per_thread + r) * side + tx * per_thread + c] = total[r][c];
    }
}

template <class T>
__global__ void keep_distances(std::int64_t n, std::int64_t features, Plan<T> plan) {
    const Counts counts = *plan.counts;
    const Cut cut(counts, features);
    const std::int64_t step = std::int64_t{gridDim.x} * threads;
    for (std::int64_t e = std::int64_t{blockIdx.x} * threads + threadIdx.x; e < counts.fresh * counts.living;
         e += step) {
        const std::int64_t p = e / counts.living, o = e % counts.living;
        if (o <= p) continue;  // itself, or new against new: kept as (o, p)
        const std::int64_t tile = p / side * cut.across + o / side, at = p % side * side + o % side;
        double sum = 0;
        for (std::int64_t s = 0; s < cut.splits; ++s) sum += plan.partial[(s * cut.tiles + tile) * side * side + at];
        const std::int64_t i = plan.columns[p], j = plan.columns[o];
        plan.distances[i * n + j] = plan.distances[j * n + i] = static_cast<T>(sum);
    }
}

template <class T>
__global__ void __launch_bounds__(threads) look_around(std::int64_t n, Plan<T> plan) {
    const std::int64_t at = std::int64_t{blockIdx.x} * warps + threadIdx.x / 32, living = plan.counts->living;
    if (at >= living) return;  // whole warps
    const std::int32_t i = plan.living[at];
    const double size = plan.size[i];
    double best = 0;
    std::int32_t known = -1;
    for (std::int64_t k = threadIdx.x % 32; k < living; k += 32) {
        const std::int32_t j = plan.living[k];
        if (j == i) continue;
        const double cost = math::merge_cost(size, plan.size[j], static_cast<double>(plan.distances[i * n + j]));
        if (!math::cheaper(cost, j, best, known)) continue;
        best = cost;
        known = j;
    }
    for (int step = 16; step > 0; step /= 2) {
        const double cost = __shfl_xor_sync(0xffffffffu, best, step);
        const std::int32_t j = __shfl_xor_sync(0xffffffffu, known, step);
        if (j < 0 || !math::cheaper(cost, j, best, known)) continue;
        best = cost;
        known = j;
    }
    if (threadIdx.x % 32 == 0) {
        plan.cost[i] = best;
        plan.nearest[i] = known;
    }
}

dim3 grid(std::int64_t tasks) {
    return dim3(static_cast<unsigned>(std::clamp<std::int64_t>(tasks, 1, most_blocks)));
}

template <class T>
void look(std::int64_t n, const Plan<T>& plan, Stream stream) {
    launch(look_around<T>, dim3(static_cast<unsigned>(blocks_for(n, warps))), dim3(threads), 0, stream, n, plan);
}

}  // namespace

std::int64_t merge_work(std::int64_t n, bool wide) {
    Work work(nullptr);
    if (wide)
        Plan<double>(n, work);
    else
        Plan<float>(n, work);
    return work.bytes();
}

template <class T>
void merge_start(const T* distances, std::int64_t n, void* memory, Stream stream) {
    Work work(memory);
    const Plan<T> plan(n, work);
    launch(start_kernel<T>, grid(blocks_for(n * n, threads)), dim3(threads), 0, stream, n, distances, plan);
    look(n, plan, stream);
}

template <class T>
void merge_passes(T* x, std::int64_t n, std::int64_t features, std::int64_t stride, std::int64_t passes,
                  std::int32_t* merges, double* costs, std::int64_t* left, void* memory, Stream stream) {
    Work work(memory);
    const Plan<T> plan(n, work);
    const std::int64_t tasks = n / 2 * blocks_for(features, columns_per_task);
    for (std::int64_t pass = 0; pass < passes; ++pass) {
        launch(choose_pairs<T>, dim3(1), dim3(threads), 0, stream, plan, merges, costs, left);
        launch(mean_rows<T>, grid(tasks), dim3(threads), 0, stream, x, features, stride, plan,
               static_cast<const std::int32_t*>(merges));
        launch(measure_rows<T>, grid(Plan<T>::most_tiles(n)), dim3(threads), 0, stream, static_cast<const T*>(x),
               features, stride, plan);
        launch(keep_distances<T>, grid(blocks_for(n / 2 * n, threads)), dim3(threads), 0, stream, n, features, plan);
        look(n, plan, stream);
    }
}

#define PYATTNORG_INSTANTIATE(T)                                                                                   \
    template void merge_start(const T*, std::int64_t, void*, Stream);                                              \
    template void merge_passes(T*, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int32_t*, double*, \
                               std::int64_t*, void*, Stream);
PYATTNORG_INSTANTIATE(float)
PYATTNORG_INSTANTIATE(double)

}  // namespace pyattnorg::cuda
