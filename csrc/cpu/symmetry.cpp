// How far a matrix is from its transpose, and its range: square by square, so that both sides stay in cache.
#include <algorithm>
#include <vector>

#include "../kernels.hpp"
#include "parallel.hpp"

namespace pyattnorg::cpu {

template <class T>
Symmetry symmetry(const T* x, std::int64_t n, int threads) {
    constexpr std::int64_t side = 64;
    const std::int64_t squares = (n + side - 1) / side;
    std::vector<Symmetry> found(static_cast<std::size_t>(squares), Symmetry{0, x[0], x[0]});
    parallel_for(squares, threads, [&](std::int64_t square) {
        T apart = 0, least = x[0], largest = x[0];
        const std::int64_t i0 = square * side, i1 = std::min(n, i0 + side);
        for (std::int64_t j0 = i0; j0 < n; j0 += side)
            for (std::int64_t i = i0; i < i1; ++i)
                for (std::int64_t j = j0; j < std::min(n, j0 + side); ++j) {
                    const T a = x[i * n + j], b = x[j * n + i];
                    apart = std::max(apart, a > b ? a - b : b - a);
                    least = std::min(least, std::min(a, b));
                    largest = std::max(largest, std::max(a, b));
                }
        found[static_cast<std::size_t>(square)] = {apart, least, largest};
    });
    Symmetry all = found[0];
    for (const Symmetry& one : found) {
        all.apart = std::max(all.apart, one.apart);
        all.least = std::min(all.least, one.least);
        all.largest = std::max(all.largest, one.largest);
    }
    return all;
}

template Symmetry symmetry(const float*, std::int64_t, int);
template Symmetry symmetry(const double*, std::int64_t, int);

}  // namespace pyattnorg::cpu
