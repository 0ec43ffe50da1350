// Sums of magnitudes and of squares, in double, over chunks of fixed size that are added up in order.
#include <algorithm>
#include <cmath>
#include <vector>

#include "../kernels.hpp"
#include "parallel.hpp"

namespace pyattnorg::cpu {

template <class T>
void norms(const T* x, std::int64_t n, double* magnitudes, double* squares, int threads) {
    constexpr std::int64_t chunk = 1 << 14, ways = 16;  // independent sums, so that they vectorise
    const std::int64_t chunks = (n + chunk - 1) / chunk;
    std::vector<double> l1(static_cast<std::size_t>(chunks)), l2(static_cast<std::size_t>(chunks));
    parallel_for(chunks, threads, [&](std::int64_t c) {
        double absolute[ways] = {}, square[ways] = {};
        const std::int64_t end = std::min(n, (c + 1) * chunk);
        std::int64_t i = c * chunk;
        for (; i + ways <= end; i += ways)
            for (std::int64_t w = 0; w < ways; ++w) {
                const double value = static_cast<double>(x[i + w]);
                absolute[w] += std::fabs(value);
                square[w] += value * value;
            }
        for (; i < end; ++i) {
            const double value = static_cast<double>(x[i]);
            absolute[0] += std::fabs(value);
            square[0] += value * value;
        }
        for (std::int64_t w = 0; w < ways; ++w) {
            l1[static_cast<std::size_t>(c)] += absolute[w];
            l2[static_cast<std::size_t>(c)] += square[w];
        }
    });
    *magnitudes = *squares = 0;
    for (std::int64_t c = 0; c < chunks; ++c) {
        *magnitudes += l1[static_cast<std::size_t>(c)];
        *squares += l2[static_cast<std::size_t>(c)];
    }
}

template void norms(const float*, std::int64_t, double*, double*, int);
template void norms(const double*, std::int64_t, double*, double*, int);

}  // namespace pyattnorg::cpu
