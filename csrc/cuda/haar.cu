// The tree-Haar transform along one axis: a block takes a few columns of all n rows into shared memory, turns rows
// round by round, all threads at once, and writes them: memory is read once and written once an axis. Where not even
// one column fits, rows stay in the caller's work memory.
//
// What makes it as quick as memory: a thread stays in one column, so nothing is divided on the way; `batch` numbers are
// on their way at once; and blocks are small enough for two or more to share a multiprocessor, so that one turns rows
// while another reads.
#include <type_traits>

#include "../kernels.hpp"
#include "../math/haar.hpp"
#include "device.hpp"
#include "work.hpp"

namespace pyattnorg::cuda {
namespace {

constexpr int threads = 512, warps = threads / 32, batch = 8;
constexpr std::int64_t shared_bytes = 96 * 1024, widest = 32;  // cards of capability 8.6, 8.9 and 12.0 have 99 KiB

// Columns of a block, at most 32; 0 where not one fits.
std::int64_t columns_of(std::int64_t n, std::int64_t size) {
    for (std::int64_t w = widest; w > 0; w /= 2)
        if (n * (w + (w > 1)) * size <= shared_bytes) return w;
    return 0;
}

// What a thread takes of its block's columns: rows first, first + step, ... of columns column, column + next, ...
struct Share {
    int column, next, first, step;
};

// Column g of [outer, n, inner] begins at start and goes on by `inner`; width is a power of two.
template <class In, class T, bool in_shared>
__global__ void __launch_bounds__(threads, 2)
    haar_kernel(const In* x, std::int64_t columns, std::int64_t inner, HaarRounds<T> tree, bool inverse, T* out,
                int width, int pitch, T* slabs) {
    using Place = std::conditional_t<in_shared, int, std::int64_t>;  // in `rows`
    T* const rows = in_shared ? dynamic_shared<T>() : slabs + blockIdx.x * tree.n * pitch;
    const std::int64_t begin_column = blockIdx.x * static_cast<std::int64_t>(width);
    const int here = static_cast<int>(columns - begin_column < width ? columns - begin_column : width);
    const int n = static_cast<int>(tree.n);
    const auto start = [&](int c) { return (begin_column + c) / inner * tree.n * inner + (begin_column + c) % inner; };
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const Share across{thread % width, width, thread / width, threads / width};
    // Memory runs along columns where there are many side by side, and else along rows: then a warp, or several, has a
    // column.
    const int of_column = width < warps ? warps / width : 1;
    const Share share =
        inner >= 8 ? across : Share{warp / of_column, warps / of_column, warp % of_column * 32 + lane, of_column * 32};
    for (int c = share.column; c < here; c += share.next) {
        const In* const from = x + start(c);
        for (int r = share.first; r < n; r += batch * share.step) {
            T value[batch];
#pragma unroll
            for (int b = 0; b < batch; ++b) {
                const int row = r + b * share.step;
                value[b] = row < n ? static_cast<T>(math::number(from[row * inner])) : T(0);
            }
#pragma unroll
            for (int b = 0; b < batch; ++b) {
                const int row = r + b * share.step;
                if (row < n) rows[static_cast<Place>(inverse ? tree.slot[row] : row) * pitch + c] = value[b];
            }
        }
    }
    __syncthreads();
    for (std::int64_t k = 0; k < tree.n_rounds; ++k) {
        const std::int64_t round = inverse ? tree.n_rounds - 1 - k : k;
        const int end = across.column < here ? tree.first[round + 1] : 0;
        for (int e = tree.first[round] + across.first; e < end; e += across.step) {
            const Turn<T> turn = tree.turns[e];
            const math::Rotation<T> rotation{turn.major, turn.minor};
            T* const at_left = rows + static_cast<Place>(turn.left) * pitch + across.column;
            T* const at_right = rows + static_cast<Place>(turn.right) * pitch + across.column;
            T left = *at_left, right = *at_right;
            if (inverse)
                math::unmerge(rotation, left, right);
            else
                math::merge(rotation, left, right);
            *at_left = left;
            *at_right = right;
        }
        __syncthreads();
    }
    for (int c = share.column; c < here; c += share.next) {
        T* const to = out + start(c);
        for (int r = share.first; r < n; r += batch * share.step) {
            T value[batch];
#pragma unroll
            for (int b = 0; b < batch; ++b) {
                const int row = r + b * share.step;
                value[b] = row < n ? rows[static_cast<Place>(inverse ? row : tree.slot[row]) * pitch + c] : T(0);
            }
#pragma unroll
            for (int b = 0; b < batch; ++b) {
                const int row = r + b * share.step;
                if (row < n) to[row * inner] = value[b];
            }
        }
    }
}

struct Shape {
    std::int64_t width, pitch, blocks, slabs;  // slabs: numbers of work memory

    Shape(std::int64_t columns, std::int64_t n, std::int64_t size) {
        width = columns_of(n, size);
        slabs = width ? 0 : widest;
        width = width ? width : widest;
        pitch = slabs ? width : width + (width > 1);
        blocks = blocks_for(columns, width);
        slabs *= blocks * n;
    }
};

}  // namespace

std::int64_t haar_work(std::int64_t outer, std::int64_t n, std::int64_t inner, bool wide) {
    const std::int64_t size = wide ? sizeof(double) : sizeof(float);
    return std::max<std::int64_t>(Shape(outer * inner, n, size).slabs * size, 1);
}

template <class In>
void haar(const In* x, std::int64_t outer, std::int64_t inner, const HaarRounds<Real<In>>& tree, bool inverse,
          Real<In>* out, void* work, Stream stream) {
    using T = Real<In>;
    const Shape shape(outer * inner, tree.n, sizeof(T));
    const dim3 grid(static_cast<unsigned>(shape.blocks));
    const int width = static_cast<int>(shape.width), pitch = static_cast<int>(shape.pitch);
    const auto go = [&](auto kernel, std::size_t bytes, T* slabs) {
        launch(kernel, grid, dim3(threads), bytes, stream, x, outer * inner, inner, tree, inverse, out, width, pitch,
               slabs);
    };
    if (shape.slabs)
        go(haar_kernel<In, T, false>, 0, static_cast<T*>(work));
    else
        go(haar_kernel<In, T, true>, static_cast<std::size_t>(tree.n * shape.pitch) * sizeof(T), nullptr);
}

#define PYATTNORG_INSTANTIATE(In)                                                                                  \
    template void haar(const In*, std::int64_t, std::int64_t, const HaarRounds<Real<In>>&, bool, Real<In>*, void*, \
                       Stream);
PYATTNORG_INSTANTIATE(float)
PYATTNORG_INSTANTIATE(double)
PYATTNORG_INSTANTIATE(math::float16)
PYATTNORG_INSTANTIATE(math::bfloat16)

}  // namespace pyattnorg::cuda
