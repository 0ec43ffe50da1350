// Averages over every folder of a tree: the leaves are the data, a folder's sum is that of its children.
#include <algorithm>
#include <vector>

#include "../kernels.hpp"
#include "parallel.hpp"

namespace pyattnorg::cpu {

template <class T>
void folder_averages(const T* x, std::int64_t outer, std::int64_t n, std::int64_t inner, const std::int32_t* parent,
                     const std::int32_t* size, const std::int32_t* leaf, std::int64_t n_folders, T* out, int threads,
                     const Poll& poll) {
    constexpr std::int64_t width = 64;  // cells side by side that one task sums, in double
    const std::int64_t per_outer = (inner + width - 1) / width;
    const auto average_folders = [&](std::int64_t task) {
        const std::int64_t o = task / per_outer, k0 = task % per_outer * width, w = std::min(width, inner - k0);
        std::vector<double> sums(static_cast<std::size_t>(n_folders * w), 0.0);
        for (std::int64_t f = n_folders - 1; f >= 0; --f) {  // children come after their parents
            double* sum = sums.data() + f * w;
            if (leaf[f] >= 0) std::copy_n(x + (o * n + leaf[f]) * inner + k0, w, sum);
            T* average = out + (o * n_folders + f) * inner + k0;
            for (std::int64_t k = 0; k < w; ++k) average[k] = static_cast<T>(sum[k] / size[f]);
            if (parent[f] >= 0)
                for (std::int64_t k = 0; k < w; ++k) sums[static_cast<std::size_t>(parent[f] * w + k)] += sum[k];
        }
    };
    parallel_for(outer * per_outer, threads, average_folders, poll);
}

template void folder_averages(const float*, std::int64_t, std::int64_t, std::int64_t, const std::int32_t*,
                              const std::int32_t*, const std::int32_t*, std::int64_t, float*, int, const Poll&);
template void folder_averages(const double*, std::int64_t, std::int64_t, std::int64_t, const std::int32_t*,
                              const std::int32_t*, const std::int32_t*, std::int64_t, double*, int, const Poll&);

}  // namespace pyattnorg::cpu
