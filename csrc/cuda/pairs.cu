// Tiles of pairs, as a matrix product has them: a block holds a tile of sums in registers and takes its rows' and
// columns' features through shared memory, a few at a time, the next ones on their way while these are added.
//
// |a - b| is a subtraction and an addition of a magnitude: two instructions, and nothing cancels but what is equal.
// Sums run in T over 64 features, in T over those of a split, in double over splits and panels: every pair has one
// fixed order. Splits share the features of a panel among blocks where tiles alone are too few for a GPU.
#include "pairs.hpp"

#include "../math/pair.hpp"
#include "device.hpp"
#include "tile.hpp"

namespace pyattnorg::cuda {
namespace {

constexpr int threads = 256, depth = 16, chunks_per_sum = 4;
constexpr std::int64_t least_per_split = depth * chunks_per_sum;
constexpr std::int64_t most_waves = 16;  // of blocks over all multiprocessors

template <class T, int side>
struct Stage {
    alignas(16) T rows[depth][side];
    alignas(16) T columns[depth][side];
    T weights[depth];
};

// Thread (tx, ty) of 16 x 16 holds `size` rows and columns of the tile, in groups as wide as a vector.
template <class T, int size, Term term, bool weighted>
__global__ void __launch_bounds__(threads)
    pair_tiles(const T* panel, std::int64_t pitch, std::int64_t first_row, std::int64_t features, const T* weights,
               bool triangle, std::int64_t tile_columns, std::int64_t n_tiles, std::int64_t per_split, T* partial) {
    using V = typename Vector<T>::type;
    constexpr int side = 16 * size, width = sizeof(V) / sizeof(T), groups = size / width;
    constexpr int vectors = depth * side / width, loads = vectors / threads;
    struct Stages {
        Stage<T, side> stage[2];
    };
    auto& shared = block_shared<Stages>();

    const int thread = threadIdx.x, tx = thread % 16, ty = thread / 16;
    const std::int64_t tile = blockIdx.x % n_tiles, split = blockIdx.x / n_tiles;
    const math::TilePlace place =
        triangle ? math::triangle_place(tile) : math::TilePlace{tile / tile_columns, tile % tile_columns};
    const T* const rows = panel + first_row + place.row * side;
    const T* const columns = panel + place.column * side;
    const std::int64_t begin = split * per_split, end = begin + per_split < features ? begin + per_split : features;

    V next_rows[loads], next_columns[loads];
    T next_weight = 0;
    const auto fetch = [&](std::int64_t from) {
#pragma unroll
        for (int l = 0; l < loads; ++l) {
            const int v = thread + l * threads, k = v / (side / width), at = v % (side / width) * width;
            const std::int64_t feature = from + k;
            const V nothing{};
            next_rows[l] = feature < end ? *reinterpret_cast<const V*>(rows + feature * pitch + at) : nothing;
            next_columns[l] = feature < end ? *reinterpret_cast<const V*>(columns + feature * pitch + at) : nothing;
        }
        if (weighted && thread < depth) next_weight = from + thread < end ? weights[from + thread] : T(0);
    };
    const auto store = [&](Stage<T, side>& stage) {
#pragma unroll
        for (int l = 0; l < loads; ++l) {
            const int v = thread + l * threads, k = v / (side / width), at = v % (side / width) * width;
            *reinterpret_cast<V*>(&stage.rows[k][at]) = next_rows[l];
            *reinterpret_cast<V*>(&stage.columns[k][at]) = next_columns[l];
        }
        if (weighted && thread < depth) stage.weights[thread] = next_weight;
    };

    T sum[size][size] = {}, total[size][size] = {};
    fetch(begin);
    store(shared.stage[0]);
    __syncthreads();
    int chunk = 0;
    for (std::int64_t from = begin; from < end; from += depth, ++chunk) {
        const bool more = from + depth < end;
        if (more) fetch(from + depth);
        const Stage<T, side>& stage = shared.stage[chunk % 2];
#pragma unroll
        for (int k = 0; k < depth; ++k) {
            T a[size], b[size];
#pragma unroll
            for (int g = 0; g < groups; ++g) {
                *reinterpret_cast<V*>(a + g * width) =
                    *reinterpret_cast<const V*>(&stage.rows[k][(g * 16 + ty) * width]);
                *reinterpret_cast<V*>(b + g * width) =
                    *reinterpret_cast<const V*>(&stage.columns[k][(g * 16 + tx) * width]);
            }
            const T weight = weighted ? stage.weights[k] : T(1);
#pragma unroll
            for (int r = 0; r < size; ++r)
#pragma unroll
                for (int c = 0; c < size; ++c)
                    sum[r][c] = math::add_term<term, weighted>(sum[r][c], a[r], b[c], weight);
        }
        if (sizeof(T) == sizeof(float) && chunk % chunks_per_sum == chunks_per_sum - 1) {
#pragma unroll
            for (int r = 0; r < size; ++r)
#pragma unroll
                for (int c = 0; c < size; ++c) {
                    total[r][c] += sum[r][c];
                    sum[r][c] = 0;
                }
        }
        if (more) store(shared.stage[(chunk + 1) % 2]);
        __syncthreads();
    }
    T* out = partial + (split * n_tiles + tile) * side * side;
#pragma unroll
    for (int r = 0; r < size; ++r)
#pragma unroll
        for (int g = 0; g < groups; ++g) {
            alignas(16) T line[width];
#pragma unroll
            for (int c = 0; c < width; ++c) line[c] = total[r][g * width + c] + sum[r][g * width + c];
            const int row = (r / width * 16 + ty) * width + r % width;
            *reinterpret_cast<V*>(out + row * side + (g * 16 + tx) * width) = *reinterpret_cast<const V*>(line);
        }
}

__global__ void clear_sums(double* sums, std::int64_t n) {
    const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    if (i < n) sums[i] = 0;
}

template <class T>
__global__ void add_splits(const T* partial, std::int64_t n, std::int64_t splits, double* sums) {
    const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double sum = sums[i];
    for (std::int64_t s = 0; s < splits; ++s) sum += static_cast<double>(partial[s * n + i]);
    sums[i] = sum;
}

// Of tile [side][side] to out [rows][columns], and across the diagonal where one triangle of tiles was summed.
template <class T>
__global__ void write_tiles(const double* sums, bool triangle, std::int64_t side, std::int64_t tile_columns,
                            std::int64_t rows, std::int64_t columns, T* out) {
    const std::int64_t tile = blockIdx.x;
    const math::TilePlace place =
        triangle ? math::triangle_place(tile) : math::TilePlace{tile / tile_columns, tile % tile_columns};
    for (std::int64_t e = threadIdx.x; e < side * side; e += blockDim.x) {
        const std::int64_t i = place.row * side + e / side, j = place.column * side + e % side;
        if (i >= rows || j >= columns) continue;
        const T value = static_cast<T>(sums[tile * side * side + e]);
        out[i * columns + j] = value;
        if (triangle && place.row != place.column) out[j * columns + i] = value;
    }
}

// Features of a split. Blocks take equally long, and a tile of floats fills a multiprocessor by itself: 530 blocks on
// 132 of them take as long as 660. So splits are counted for waves that are full, and a block is charged what it costs
// beside its features, as much as 64 of them.
std::int64_t features_of_split(std::int64_t n_tiles, std::int64_t most_splits, std::int64_t features) {
    std::int64_t best = 0, least = 0;
    for (std::int64_t splits = 1; splits <= most_splits; ++splits) {
        const std::int64_t per = blocks_for(blocks_for(features, splits), least_per_split) * least_per_split;
        const std::int64_t waves = blocks_for(n_tiles * blocks_for(features, per), PYATTNORG_MULTIPROCESSORS);
        const std::int64_t time = waves * (per + least_per_split);
        if (best && time >= least) continue;
        best = per;
        least = time;
    }
    return best;
}

template <class T, int size>
void launch_tiles(const Pairs<T>& p, const T* panel, const T* weights, std::int64_t features, std::int64_t per_split,
                  std::int64_t splits, Stream stream) {
    const auto go = [&](auto kernel) {
        launch(kernel, dim3(static_cast<unsigned>(p.n_tiles * splits)), dim3(threads), 0, stream, panel, p.at.pitch,
               p.at.rows, features, weights, p.symmetric, p.tile_columns, p.n_tiles, per_split, p.partial);
    };
    switch (p.term) {
        case Term::l1:
            return weights ? go(pair_tiles<T, size, Term::l1, true>) : go(pair_tiles<T, size, Term::l1, false>);
        case Term::squares:
            return go(pair_tiles<T, size, Term::squares, false>);
        case Term::masked:
            return go(pair_tiles<T, size, Term::masked, false>);
        case Term::products:
            return go(pair_tiles<T, size, Term::products, false>);
    }
}

}  // namespace

template <class T>
Pairs<T>::Pairs(std::int64_t points, std::int64_t split, Term which, Work& work)
    : at(points, split), term(which), symmetric(split == 0 && which != Term::masked) {
    const std::int64_t rows = points - split, columns = split ? split : points;
    side = sizeof(T) == sizeof(float) && std::min(rows, columns) > 64 ? 128 : 64;
    tile_columns = blocks_for(columns, side);
    const std::int64_t tile_rows = blocks_for(rows, side);
    n_tiles = symmetric ? tile_rows * (tile_rows + 1) / 2 : tile_rows * tile_columns;
    most_splits = std::max<std::int64_t>(most_waves * PYATTNORG_MULTIPROCESSORS / n_tiles, 1);
    sums = work.take<double>(n_tiles * side * side);
    partial = work.take<T>(most_splits * n_tiles * side * side);
}

template <class T>
void start(const Pairs<T>& p, Stream stream) {
    const std::int64_t n = p.n_tiles * p.side * p.side;
    launch(clear_sums, dim3(static_cast<unsigned>(blocks_for(n, threads))), dim3(threads), 0, stream, p.sums, n);
}

template <class T>
void add(const Pairs<T>& p, const T* panel, const T* weights, std::int64_t features, Stream stream) {
    const std::int64_t per_split = features_of_split(p.n_tiles, p.most_splits, features);
    const std::int64_t splits = blocks_for(features, per_split), n = p.n_tiles * p.side * p.side;
    if constexpr (sizeof(T) == sizeof(float)) {
        if (p.side == 128)
            launch_tiles<T, 8>(p, panel, weights, features, per_split, splits, stream);
        else
            launch_tiles<T, 4>(p, panel, weights, features, per_split, splits, stream);
    } else {
        launch_tiles<T, 4>(p, panel, weights, features, per_split, splits, stream);
    }
    launch(add_splits<T>, dim3(static_cast<unsigned>(blocks_for(n, threads))), dim3(threads), 0, stream,
           static_cast<const T*>(p.partial), n, splits, p.sums);
}

template <class T>
void finish(const Pairs<T>& p, T* out, Stream stream) {
    const std::int64_t rows = p.at.n - p.at.split, columns = p.at.split ? p.at.split : p.at.n;
    launch(write_tiles<T>, dim3(static_cast<unsigned>(p.n_tiles)), dim3(threads), 0, stream,
           static_cast<const double*>(p.sums), p.symmetric, p.side, p.tile_columns, rows, columns, out);
}

#define PYATTNORG_INSTANTIATE(T)                                                  \
    template struct Pairs<T>;                                                     \
    template void start(const Pairs<T>&, Stream);                                 \
    template void add(const Pairs<T>&, const T*, const T*, std::int64_t, Stream); \
    template void finish(const Pairs<T>&, T*, Stream);
PYATTNORG_INSTANTIATE(float)
PYATTNORG_INSTANTIATE(double)

}  // namespace pyattnorg::cuda
