// What one feature adds to the sum of a pair of points, and which pairs a triangle of tiles holds.
#pragma once

#include <cstdint>

#include "../kernels.hpp"
#include "term.hpp"

namespace pyattnorg::math {

PYATTNORG_HD inline float magnitude(float x) {
    return __builtin_fabsf(x);
}
PYATTNORG_HD inline double magnitude(double x) {
    return __builtin_fabs(x);
}

template <Term term, bool weighted, class T>
PYATTNORG_HD inline T add_term(T sum, T a, T b, T weight) {
    if constexpr (term == Term::l1) return weighted ? sum + weight * magnitude(a - b) : sum + magnitude(a - b);
    if constexpr (term == Term::squares) return sum + (a - b) * (a - b);
    if constexpr (term == Term::masked) return a != T(0) ? sum + b * b : sum;
    if constexpr (term == Term::products) return sum + a * b;
}

struct TilePlace {
    std::int64_t row, column;
};

// Place of tile t of a triangle of tiles, row <= column, column after column.
PYATTNORG_HD inline TilePlace triangle_place(std::int64_t t) {
    auto column = static_cast<std::int64_t>((sqrt(8.0 * static_cast<double>(t) + 1.0) - 1.0) / 2.0);
    while (column * (column + 1) / 2 > t) --column;  // the root may be rounded either way
    while ((column + 1) * (column + 2) / 2 <= t) ++column;
    return {t - column * (column + 1) / 2, column};
}

}  // namespace pyattnorg::math
