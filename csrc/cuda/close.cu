// A list of close pairs is made on the device, and a fixed number of blocks works it off: nobody has to wait for its
// length. The order of the list is left to chance, what is summed for a pair is not.
#include "close.hpp"

#include "../math/pair.hpp"
#include "device.hpp"
#include "reduce.hpp"

namespace pyattnorg::cuda {
namespace {

constexpr int threads = 128;

__global__ void clear_count(unsigned* count) {
    *count = 0;
}

template <class T>
__global__ void mark_kernel(const T* out, std::int64_t n, const double* mass, double doubt, unsigned* count,
                            std::int32_t* pairs) {
    const std::int64_t e = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    if (e >= n * n) return;
    const std::int64_t i = e / n, j = e % n;
    if (i >= j || static_cast<double>(out[e]) >= doubt * (mass[i] + mass[j])) return;
    const std::int64_t at = atomicAdd(count, 1u);
    pairs[2 * at] = static_cast<std::int32_t>(i);
    pairs[2 * at + 1] = static_cast<std::int32_t>(j);
}

// sums[q] = row[leaf[0]] + ... + row[leaf[q - 1]]: stretches by thread, then what came before each.
__device__ inline void running_sums(const double* row, const std::int32_t* leaf, std::int64_t n, double* sums) {
    struct Stretches {
        double sum[threads];
    };
    auto& before = block_shared<Stretches>();
    const std::int64_t per_thread = (n + threads - 1) / threads, begin = threadIdx.x * per_thread;
    const std::int64_t end = begin + per_thread < n ? begin + per_thread : n;
    double sum = 0;
    for (std::int64_t q = begin; q < end; ++q) sum += row[leaf[q]];
    before.sum[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        double all = 0;
        for (int t = 0; t < threads; ++t) {
            const double own = before.sum[t];
            before.sum[t] = all;
            all += own;
        }
        sums[0] = 0;
    }
    __syncthreads();
    sum = before.sum[threadIdx.x];
    for (std::int64_t q = begin; q < end; ++q) sums[q + 1] = sum += row[leaf[q]];
    __syncthreads();
}

template <class In>
__global__ void __launch_bounds__(threads)
    close_kernel(Strided3<In> x, const WalkStep* steps_a, std::int64_t n_steps_a, std::int64_t n_slots,
                 const WalkStep* steps_b, std::int64_t n_steps_b, const std::int32_t* leaf_b, const unsigned* count,
                 const std::int32_t* pairs, double* all_slots, double* rows, double* runs, Real<In>* out) {
    const std::int64_t n_b = x.shape[2];
    double* const slots = all_slots + blockIdx.x * n_slots * n_b;
    double* const row = rows + blockIdx.x * n_b;
    double* const run = runs + blockIdx.x * (n_b + 1);
    const std::int64_t end = *count;
    for (std::int64_t k = blockIdx.x; k < end; k += gridDim.x) {
        const std::int64_t i = pairs[2 * k], j = pairs[2 * k + 1];
        double sum = 0;
        for (std::int64_t s = 0; s < n_steps_a; ++s) {
            const WalkStep step = steps_a[s];
            for (std::int64_t b = threadIdx.x; b < n_b; b += threads) {  // slots of b are this thread's alone
                double value;
                if (step.leaf >= 0) {
                    const In* at = x.data + step.leaf * x.stride[1] + b * x.stride[2];
                    value = static_cast<double>(math::number(at[i * x.stride[0]])) -
                            static_cast<double>(math::number(at[j * x.stride[0]]));
                    if (!step.add) slots[step.slot * n_b + b] = value;
                } else {
                    value = slots[step.slot * n_b + b];
                }
                if (step.add) slots[(step.slot - 1) * n_b + b] += value;
                row[b] = value * step.scale;
            }
            if (step.scale == 0) continue;
            __syncthreads();
            running_sums(row, leaf_b, n_b, run);
            for (std::int64_t u = threadIdx.x; u < n_steps_b; u += threads) {
                const WalkStep inner = steps_b[u];
                const double folder =
                    inner.leaf >= 0 ? row[inner.leaf] : run[inner.first + inner.size] - run[inner.first];
                sum += math::magnitude(folder) * inner.scale;
            }
            __syncthreads();
        }
        sum = block_sum<double, threads>(sum);
        if (threadIdx.x == 0) out[i * x.shape[0] + j] = out[j * x.shape[0] + i] = static_cast<Real<In>>(sum);
    }
}

}  // namespace

template <class In>
void sum_close_pairs(const Strided3<In>& x, const Walk& a, const Walk& b, const Close& close, Real<In>* out,
                     Stream stream) {
    const std::int64_t n = x.shape[0];
    const double doubt = math::doubt_per_mass<Real<In>>(a.concentration * b.concentration);
    launch(clear_count, dim3(1), dim3(1), 0, stream, close.count);
    launch(mark_kernel<Real<In>>, dim3(static_cast<unsigned>(blocks_for(n * n, threads))), dim3(threads), 0, stream,
           static_cast<const Real<In>*>(out), n, static_cast<const double*>(close.mass), doubt, close.count,
           close.pairs);
    launch(close_kernel<In>,
           dim3(static_cast<unsigned>(std::min(Close::blocks, std::max<std::int64_t>(n * (n - 1) / 2, 1)))),
           dim3(threads), 0, stream, x, a.steps, a.n_steps, a.n_slots, b.steps, b.n_steps, b.leaf,
           static_cast<const unsigned*>(close.count), static_cast<const std::int32_t*>(close.pairs), close.slots,
           close.row, close.run, out);
}

#define PYATTNORG_INSTANTIATE(In) \
    template void sum_close_pairs(const Strided3<In>&, const Walk&, const Walk&, const Close&, Real<In>*, Stream);
PYATTNORG_INSTANTIATE(float)
PYATTNORG_INSTANTIATE(double)
PYATTNORG_INSTANTIATE(math::float16)
PYATTNORG_INSTANTIATE(math::bfloat16)

}  // namespace pyattnorg::cuda
