// Averages over every folder of a tree: a thread takes one column through the tree's program, in double.
#include "../kernels.hpp"
#include "device.hpp"
#include "work.hpp"

namespace pyattnorg::cuda {
namespace {

constexpr int threads = 128;

template <class In>
__global__ void __launch_bounds__(threads)
    averages_kernel(const In* x, std::int64_t columns, std::int64_t inner, const WalkStep* steps, std::int64_t n_steps,
                    std::int64_t n_leaves, Real<In>* out) {
    double* const sums = dynamic_shared<double>() + threadIdx.x;
    const std::int64_t column = std::int64_t{blockIdx.x} * threads + threadIdx.x;
    if (column >= columns) return;
    const std::int64_t o = column / inner, k = column % inner;
    x += o * n_leaves * inner + k;
    out += o * n_steps * inner + k;
    for (std::int64_t s = 0; s < n_steps; ++s) {
        const WalkStep step = steps[s];
        double value;
        if (step.leaf >= 0) {
            value = static_cast<double>(math::number(x[step.leaf * inner]));
            if (!step.add) sums[step.slot * threads] = value;
        } else {
            value = sums[step.slot * threads];
        }
        if (step.add) sums[(step.slot - 1) * threads] += value;
        out[step.folder * inner] = static_cast<Real<In>>(value / step.size);
    }
}

}  // namespace

template <class In>
void folder_averages(const In* x, std::int64_t outer, std::int64_t inner, const Walk& tree, Real<In>* out,
                     Stream stream) {
    launch(averages_kernel<In>, dim3(static_cast<unsigned>(blocks_for(outer * inner, threads))), dim3(threads),
           static_cast<std::size_t>(tree.n_slots) * threads * sizeof(double), stream, x, outer * inner, inner,
           tree.steps, tree.n_steps, tree.n_leaves, out);
}

#define PYATTNORG_INSTANTIATE(In) \
    template void folder_averages(const In*, std::int64_t, std::int64_t, const Walk&, Real<In>*, Stream);
PYATTNORG_INSTANTIATE(float)
PYATTNORG_INSTANTIATE(double)
PYATTNORG_INSTANTIATE(math::float16)
PYATTNORG_INSTANTIATE(math::bfloat16)

}  // namespace pyattnorg::cuda
