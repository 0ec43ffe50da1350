// Any strides to a panel in which points stand side by side, by way of a square in shared memory: both the array and
// the panel are read and written along the axis on which their memory runs.
#include "device.hpp"
#include "pairs.hpp"

namespace pyattnorg::cuda {
namespace {

constexpr int square = 32, lines = 8;

template <class In>
__global__ void __launch_bounds__(square* lines)
    gather_kernel(Strided3<In> x, Positions at, const std::int32_t* leaf, std::int64_t b0, std::int64_t n_b,
                  const Real<In>* centre, Real<In>* panel, std::int64_t across, std::int64_t down) {
    using T = Real<In>;
    struct Square {
        T value[square][square + 1];  // the column more keeps threads off one another's memory banks
    };
    auto& shared = block_shared<Square>();
    const int tx = threadIdx.x % square, ty = threadIdx.x / square;
    const std::int64_t block = blockIdx.x, i = block / (across * down);
    const std::int64_t first = block % across * square, line = block / across % down * square;
    const std::int64_t a = leaf ? leaf[i] : i;
    const bool along_points = x.stride[0] <= x.stride[2];
    for (int k = ty; k < square; k += lines) {
        const int p_in = along_points ? tx : k, b_in = along_points ? k : tx;
        const std::int64_t position = first + p_in, b = line + b_in;
        const std::int64_t point = position < at.rows ? position : position - at.rows + at.split;
        const bool real = (position < at.rows ? position < at.split : point < at.n) && b < n_b;
        T value = 0;
        if (real) {
            value = math::number(x.data[point * x.stride[0] + a * x.stride[1] + (b0 + b) * x.stride[2]]);
            if (centre) value -= centre[a * x.shape[2] + b0 + b];
        }
        shared.value[b_in][p_in] = value;
    }
    __syncthreads();
    for (int k = ty; k < square; k += lines)
        if (line + k < n_b) panel[(i * n_b + line + k) * at.pitch + first + tx] = shared.value[k][tx];
}

}  // namespace

template <class In>
void gather(const Strided3<In>& x, const Positions& at, const std::int32_t* leaf, std::int64_t n_a, std::int64_t b0,
            std::int64_t n_b, const Real<In>* centre, Real<In>* panel, Stream stream) {
    const std::int64_t across = at.pitch / square, down = blocks_for(n_b, square);
    launch(gather_kernel<In>, dim3(static_cast<unsigned>(n_a * across * down)), dim3(square * lines), 0, stream, x, at,
           leaf, b0, n_b, centre, panel, across, down);
}

#define PYATTNORG_INSTANTIATE(In)                                                                                \
    template void gather(const Strided3<In>&, const Positions&, const std::int32_t*, std::int64_t, std::int64_t, \
                         std::int64_t, const Real<In>*, Real<In>*, Stream);
PYATTNORG_INSTANTIATE(float)
PYATTNORG_INSTANTIATE(double)
PYATTNORG_INSTANTIATE(math::float16)
PYATTNORG_INSTANTIATE(math::bfloat16)

}  // namespace pyattnorg::cuda
