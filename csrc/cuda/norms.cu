// Sums of magnitudes and squares, in double: a stretch a block, then one block adds up the stretches in order. The
// smallest complete example of a kernel.
#include "../kernels.hpp"
#include "../math/pair.hpp"
#include "device.hpp"
#include "reduce.hpp"
#include "work.hpp"

namespace pyattnorg::cuda {
namespace {

constexpr int threads = 256;
constexpr std::int64_t stretch = std::int64_t{1} << 16;

template <class In>
__global__ void __launch_bounds__(threads) norms_kernel(const In* x, std::int64_t n, double* parts) {
    const std::int64_t begin = blockIdx.x * stretch, end = begin + stretch < n ? begin + stretch : n;
    double magnitudes = 0, squares = 0;
    for (std::int64_t i = begin + threadIdx.x; i < end; i += threads) {
        const auto value = static_cast<double>(math::number(x[i]));
        magnitudes += math::magnitude(value);
        squares += value * value;
    }
    magnitudes = block_sum<double, threads>(magnitudes);
    squares = block_sum<double, threads>(squares);
    if (threadIdx.x == 0) {
        parts[2 * blockIdx.x] = magnitudes;
        parts[2 * blockIdx.x + 1] = squares;
    }
}

__global__ void __launch_bounds__(threads) add_stretches(const double* parts, std::int64_t n, double* out) {
    double sums[2] = {0, 0};
    for (std::int64_t i = threadIdx.x; i < n; i += threads) {
        sums[0] += parts[2 * i];
        sums[1] += parts[2 * i + 1];
    }
    const double magnitudes = block_sum<double, threads>(sums[0]), squares = block_sum<double, threads>(sums[1]);
    if (threadIdx.x == 0) {
        out[0] = magnitudes;
        out[1] = squares;
    }
}

}  // namespace

std::int64_t norms_work(std::int64_t n) {
    return std::max<std::int64_t>(blocks_for(n, stretch), 1) * 2 * sizeof(double);
}

template <class In>
void norms(const In* x, std::int64_t n, double* out, void* work, Stream stream) {
    auto* parts = static_cast<double*>(work);
    const std::int64_t blocks = blocks_for(n, stretch);
    if (blocks) launch(norms_kernel<In>, dim3(static_cast<unsigned>(blocks)), dim3(threads), 0, stream, x, n, parts);
    launch(add_stretches, dim3(1), dim3(threads), 0, stream, static_cast<const double*>(parts), blocks, out);
}

#define PYATTNORG_INSTANTIATE(In) template void norms(const In*, std::int64_t, double*, void*, Stream);
PYATTNORG_INSTANTIATE(float)
PYATTNORG_INSTANTIATE(double)
PYATTNORG_INSTANTIATE(math::float16)
PYATTNORG_INSTANTIATE(math::bfloat16)

}  // namespace pyattnorg::cuda
