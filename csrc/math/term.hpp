// One term of a pairwise sum. V is a number or a vector of numbers: the CPU's tiles and a GPU's threads share these.
#pragma once

#include <cmath>

#ifdef __CUDACC__
#define PYATTNORG_HD __host__ __device__
#else
#define PYATTNORG_HD
#endif

namespace pyattnorg::math {

template <class V>
PYATTNORG_HD inline V larger(V a, V b) {
    return a > b ? a : b;
}

// |a - b| = 2 max(a, b) - a - b. Summed over features, the last two are sums of one point each, taken out once:
// one maximum and one fused multiply-add per term instead of three operations.
template <class D>
PYATTNORG_HD inline D l1_from_maxima(D sum_of_maxima, D sum_a, D sum_b) {
    return (sum_of_maxima - sum_a) + (sum_of_maxima - sum_b);
}

// The identity cancels for points that lie close: a pair is summed again directly when its distance is below a share of
// the two points' own l1 norms. Float sums over a panel (isa.hpp) carry an error of about 7e-8 of those norms (root
// mean square; five times that at worst), and errors of several panels average out. So a share of 0.04 / sqrt(panels)
// keeps every pair within 1e-5 of its distance; where panels repeat, errors do not average, and 0.0125 still does.
PYATTNORG_HD inline double close_share(double panels) {
    const double share = 0.04 / sqrt(panels > 1 ? panels : 1.0);
    return share > 0.0125 ? share : 0.0125;
}

}    // namespace pyattnorg::math
