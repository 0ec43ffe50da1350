// What merging two folders costs and what exchanges of neighbouring folders gain, for least-entropy trees
// (method 2.14).
#pragma once

#include <cstdint>

#include "term.hpp"

namespace pyattnorg::math {

// Of folders of s and M points: times the l1 distance of their means it is the sum of magnitudes of the coefficients
// that merging them makes.
PYATTNORG_HD inline double merge_weight(double s, double M) {
    return square_root(s * M / (s + M));
}

// What is no number is as dear as can be: some pair is always the cheapest.
PYATTNORG_HD inline double merge_cost(double s, double M, double distance) {
    const double cost = merge_weight(s, M) * distance;
    return cost == cost ? cost : HUGE_VAL;
}

// Whether a partner is cheaper than the best one known, -1 for none; of equals that with the lower index.
PYATTNORG_HD inline bool cheaper(double cost, std::int32_t partner, double best, std::int32_t known) {
    return known < 0 || cost < best || (cost == best && partner < known);
}

// Around a folder x = (a, b) whose parent is p = (x, y). Feature by feature
//     gain = x |a - b| + p |p - y| - other |c - y| - rest |p - d|
// where (c, y) takes the place of x and d stands beside it: c = a for the first exchange, c = b for the second.
template <class V>
struct AroundWeights {
    V x, p, other[2], rest[2];
};

// Of one exchange: what x and its parent cost now, less what they would cost.
template <class V>
PYATTNORG_HD inline V gain(V now, V other, V apart_other, V rest, V apart_rest) {
    return now - other * apart_other - rest * apart_rest;
}

template <class V>
inline AroundWeights<V> around_weights(double a, double b, double y) {
    const double p = a + b + y;
    // mean(one, other) - rest = |p| / (|p| - |rest|) (mean(p) - rest)
    const auto beside = [p](double rest) { return static_cast<V>(merge_weight(p - rest, rest) * (p / (p - rest))); };
    return {static_cast<V>(merge_weight(a, b)),
            beside(y),
            {static_cast<V>(merge_weight(a, y)), static_cast<V>(merge_weight(b, y))},
            {beside(b), beside(a)}};
}

}  // namespace pyattnorg::math
