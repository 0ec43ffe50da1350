// One term of a pairwise sum. V is a number or a vector of numbers: the CPU's tiles and a GPU's threads share these.
#pragma once

#include <cmath>

#ifdef __CUDACC__
#define PYATTNORG_HD __host__ __device__
#else
#define PYATTNORG_HD __attribute__((always_inline))  // no copy compiled for AVX is left for the linker to pick
#endif

namespace pyattnorg::math {

template <class V>
PYATTNORG_HD inline V larger(V a, V b) {
    return a > b ? a : b;
}

PYATTNORG_HD inline float square_root(float x) {
    return __builtin_sqrtf(x);
}
PYATTNORG_HD inline double square_root(double x) {
    return __builtin_sqrt(x);
}

// |a - b| = 2 max(a, b) - a - b. Summed over features, the last two are sums of one point each, taken out once:
// one maximum and one fused multiply-add per term instead of three operations.
template <class D>
PYATTNORG_HD inline D l1_from_maxima(D sum_of_maxima, D sum_a, D sum_b) {
    return (sum_of_maxima - sum_a) + (sum_of_maxima - sum_b);
}

// The identity cancels for points that lie close: such pairs are summed again directly. Rounding leaves an error of
// about 3e-7 (floats; root mean square, if one large feature dominates a panel) of the two points' l1 norms over a
// panel, and errors of different panels add up like independent ones. With q the sum of squares of a point's panel
// norms, asking for distance >= 0.1 sqrt(2 (q_a + q_b)) keeps every pair within 1e-5; where panels repeat and their
// errors do not average, distance >= 0.0125 (norm_a + norm_b) still does. Doubles have room to spare.
//
// Here `norms` is norm_a + norm_b and `squares` q_a + q_b.
template <class T>
PYATTNORG_HD inline bool sure(double distance, double norms, double squares) {
    constexpr double room = sizeof(T) == sizeof(float) ? 1.0 : 0.1;
    const double d = distance / room;
    return (d >= 0.0125 * norms) & (d * d >= 0.02 * squares);
}

// Folder sums cancel too. Rounding leaves an error of about 1e-7 of the mass of a feature (what it would be for |x|),
// of either sign in each; so a distance carries about 1e-7 sqrt(sum of squared shares) of its points' masses, the
// shares being those of the folders in all weight. Three times that is kept below 1e-5 of the distance.
template <class T>
PYATTNORG_HD inline double doubt_per_mass(double root_of_squared_shares) {
    constexpr double room = sizeof(T) == sizeof(float) ? 1.0 : 0.1;
    return room * 0.03 * root_of_squared_shares;
}

}  // namespace pyattnorg::math
