// A thread takes one column through all steps; its few open sums stand in shared memory, a column a thread.
#include "walk.hpp"

#include "device.hpp"
#include "work.hpp"

namespace pyattnorg::cuda {
namespace {

constexpr int threads = 128;
constexpr int ahead = 8;  // steps whose leaves are on their way at once: one after another would wait for memory

template <class T>
__global__ void __launch_bounds__(threads, 8)
    walk_kernel(const WalkStep* steps, std::int64_t begin, std::int64_t end, std::int64_t n_slots, std::int64_t from,
                const T* in, std::int64_t in_stride, std::int64_t columns, std::int64_t per_outer, T* slots, T* out,
                std::int64_t out_stride) {
    T* const sums = dynamic_shared<T>() + threadIdx.x;  // sums[slot * threads]; no thread reads another's
    const std::int64_t o = blockIdx.x / per_outer, c = blockIdx.x % per_outer * threads + threadIdx.x;
    if (c >= columns) return;
    in += o * in_stride + c;
    out += o * out_stride + c;
    const bool begun = slots && begin > 0;
    for (std::int64_t k = 0; k < n_slots; ++k) sums[k * threads] = begun ? slots[k * columns + c] : T(0);
    const std::int64_t first_emitted = steps[begin].emitted;
    for (std::int64_t s = begin; s < end; s += ahead) {
        const int here = static_cast<int>(end - s < ahead ? end - s : ahead);
        T leaves[ahead];
#pragma unroll
        for (int k = 0; k < ahead; ++k) {
            leaves[k] = 0;
            if (k >= here) continue;
            const std::int32_t leaf = steps[s + k].leaf;
            if (leaf >= 0) leaves[k] = in[(from < 0 ? leaf : steps[s + k].first - from) * columns];
        }
#pragma unroll
        for (int k = 0; k < ahead; ++k) {
            if (k >= here) continue;
            const WalkStep step = steps[s + k];
            T value = leaves[k];
            if (step.leaf < 0)
                value = sums[step.slot * threads];
            else if (!step.add)
                sums[step.slot * threads] = value;
            if (step.add) sums[(step.slot - 1) * threads] += value;
            if (step.scale != 0) out[(step.emitted - first_emitted) * columns] = value * static_cast<T>(step.scale);
        }
    }
    if (slots)
        for (std::int64_t k = 0; k < n_slots; ++k) slots[k * columns + c] = sums[k * threads];
}

}  // namespace

template <class T>
void walk(const Walk& tree, std::int64_t begin, std::int64_t end, std::int64_t from, const T* in, std::int64_t outer,
          std::int64_t in_stride, std::int64_t columns, T* slots, T* out, std::int64_t out_stride, Stream stream) {
    const std::int64_t per_outer = blocks_for(columns, threads);
    launch(walk_kernel<T>, dim3(static_cast<unsigned>(outer * per_outer)), dim3(threads),
           static_cast<std::size_t>(tree.n_slots) * threads * sizeof(T), stream, tree.steps, begin, end, tree.n_slots,
           from, in, in_stride, columns, per_outer, slots, out, out_stride);
}

template void walk(const Walk&, std::int64_t, std::int64_t, std::int64_t, const float*, std::int64_t, std::int64_t,
                   std::int64_t, float*, float*, std::int64_t, Stream);
template void walk(const Walk&, std::int64_t, std::int64_t, std::int64_t, const double*, std::int64_t, std::int64_t,
                   std::int64_t, double*, double*, std::int64_t, Stream);

}  // namespace pyattnorg::cuda
