// One term of a pairwise sum. V is a number or a vector of numbers: the CPU's tiles and a GPU's threads share these.
#pragma once

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

// The identity cancels for points that lie close: a pair is summed again directly when its distance is below this
// share of the two points' own l1 norms. Rounding of float sums over a panel is about 4e-7 of the norms, so what
// stays has a relative error below 1e-5; for double the same share leaves 1e-14.
template <class D>
PYATTNORG_HD inline bool too_close(D distance, D norm_a, D norm_b) {
    return distance < (norm_a + norm_b) * D(0.0625);
}

}  // namespace pyattnorg::math
