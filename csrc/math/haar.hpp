// One merge of the tree-Haar transform (method 2.10) as a rotation.
//
// With u = (sum over a folder) / sqrt(size), merging a child of s leaves with the rest of M leaves gives
//     coefficient = sqrt(M / (s + M)) u_left - sqrt(s / (s + M)) u_right
//     u           = sqrt(s / (s + M)) u_left + sqrt(M / (s + M)) u_right,
// so the whole transform is n - 1 plane rotations and its inverse is their transposes in reverse order.
#pragma once

#include <cmath>

#include "term.hpp"

namespace pyattnorg::math {

// V is a number or a vector of numbers.
template <class V>
struct Rotation {
    V major, minor;  // sqrt(M / (s + M)), sqrt(s / (s + M))
};

template <class T>
PYATTNORG_HD inline Rotation<T> merge_rotation(double s, double M) {
    return {static_cast<T>(sqrt(M / (s + M))), static_cast<T>(sqrt(s / (s + M)))};
}

template <class V>
PYATTNORG_HD inline void merge(const Rotation<V>& r, V& left, V& right) {
    const V coefficient = r.major * left - r.minor * right;
    right = r.minor * left + r.major * right;
    left = coefficient;
}

template <class V>
PYATTNORG_HD inline void unmerge(const Rotation<V>& r, V& left, V& right) {
    const V value = r.major * left + r.minor * right;
    right = r.major * right - r.minor * left;
    left = value;
}

}  // namespace pyattnorg::math
