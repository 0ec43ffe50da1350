// The tree-Haar transform along one axis: a block takes a few columns of all n rows into shared memory, turns rows
// round by round, all threads at once, and writes them: memory is read once and written once an axis. Where not even
// one column fits, rows stay in the caller's work memory.
#include "../kernels.hpp"
#include "../math/haar.hpp"
#include "device.hpp"
#include "work.hpp"

namespace pyattnorg::cuda {
namespace {

constexpr int threads = 512;
constexpr std::int64_t shared_bytes = 200 * 1024, widest = 32;

// Columns of a block, at most 32; 0 where not one fits.
std::int64_t columns_of(std::int64_t n, std::int64_t size) {
    for (std::int64_t w = widest; w > 0; w /= 2)
        if (n * (w + (w > 1)) * size <= shared_bytes) return w;
    return 0;
}

// Column g of [outer, n, inner] begins at start and goes on by `inner`.
template <class In, class T>
__global__ void __launch_bounds__(threads)
    haar_kernel(const In* x, std::int64_t columns, std::int64_t inner, HaarRounds<T> tree, bool inverse, T* out,
                std::int64_t width, std::int64_t pitch, T* slabs) {
    T* const rows = slabs ? slabs + blockIdx.x * tree.n * pitch : dynamic_shared<T>();
    const std::int64_t first = blockIdx.x * width, n = tree.n;
    const std::int64_t here = columns - first < width ? columns - first : width;
    const auto start = [&](std::int64_t c) { return (first + c) / inner * n * inner + (first + c) % inner; };
    // Memory runs along columns where there are many side by side, and else along rows.
    const bool along_columns = inner >= 8;
    const std::int64_t cells = n * width;
    for (std::int64_t e = threadIdx.x; e < cells; e += threads) {
        const std::int64_t r = along_columns ? e / width : e % n, c = along_columns ? e % width : e / n;
        if (c >= here) continue;
        rows[(inverse ? tree.slot[r] : r) * pitch + c] = math::number(x[start(c) + r * inner]);
    }
    __syncthreads();
    for (std::int64_t k = 0; k < tree.n_rounds; ++k) {
        const std::int64_t round = inverse ? tree.n_rounds - 1 - k : k;
        const std::int64_t begin = tree.first[round], turns = tree.first[round + 1] - begin;
        for (std::int64_t e = threadIdx.x; e < turns * width; e += threads) {
            const std::int64_t c = e % width;
            if (c >= here) continue;
            const Turn<T> turn = tree.turns[begin + e / width];
            const math::Rotation<T> rotation{turn.major, turn.minor};
            T left = rows[turn.left * pitch + c], right = rows[turn.right * pitch + c];
            if (inverse)
                math::unmerge(rotation, left, right);
            else
                math::merge(rotation, left, right);
            rows[turn.left * pitch + c] = left;
            rows[turn.right * pitch + c] = right;
        }
        __syncthreads();
    }
    for (std::int64_t e = threadIdx.x; e < cells; e += threads) {
        const std::int64_t r = along_columns ? e / width : e % n, c = along_columns ? e % width : e / n;
        if (c >= here) continue;
        out[start(c) + r * inner] = rows[(inverse ? r : tree.slot[r]) * pitch + c];
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
    const auto bytes = shape.slabs ? 0 : static_cast<std::size_t>(tree.n * shape.pitch) * sizeof(T);
    launch(haar_kernel<In, T>, dim3(static_cast<unsigned>(shape.blocks)), dim3(threads), bytes, stream, x,
           outer * inner, inner, tree, inverse, out, shape.width, shape.pitch,
           shape.slabs ? static_cast<T*>(work) : nullptr);
}

#define PYATTNORG_INSTANTIATE(In)                                                                                  \
    template void haar(const In*, std::int64_t, std::int64_t, const HaarRounds<Real<In>>&, bool, Real<In>*, void*, \
                       Stream);
PYATTNORG_INSTANTIATE(float)
PYATTNORG_INSTANTIATE(double)
PYATTNORG_INSTANTIATE(math::float16)
PYATTNORG_INSTANTIATE(math::bfloat16)

}  // namespace pyattnorg::cuda
