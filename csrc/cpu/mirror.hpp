// One triangle of a matrix onto the other, square by square, so that both stay in cache.
#pragma once

#include <algorithm>

#include "parallel.hpp"

namespace pyattnorg::cpu {

enum class Triangle { below, above };

template <class T>
void mirror(T* x, std::int64_t n, Triangle from, int threads, const Poll& poll) {
    constexpr std::int64_t side = 64;
    const auto copy = [=](std::int64_t square) {
        const std::int64_t i0 = square * side, i1 = std::min(n, i0 + side);
        for (std::int64_t j0 = i0; j0 < n; j0 += side)
            for (std::int64_t i = i0; i < i1; ++i)
                for (std::int64_t j = std::max(j0, i + 1); j < std::min(n, j0 + side); ++j)
                    if (from == Triangle::below)
                        x[i * n + j] = x[j * n + i];
                    else
                        x[j * n + i] = x[i * n + j];
    };
    parallel_for((n + side - 1) / side, threads, copy, poll);
}

}  // namespace pyattnorg::cpu
