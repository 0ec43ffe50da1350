// Weights for features that noise has a part in. Where points differ in a feature by no more than noise would make
// them, it says nothing about who belongs together, but adds its fluctuations to every distance.
#include <algorithm>
#include <cmath>
#include <vector>

#include "../kernels.hpp"
#include "folder_loops.hpp"
#include "parallel.hpp"

namespace pyattnorg::cpu {
namespace {

constexpr std::int64_t columns_per_task = 1024;

std::size_t at(std::int64_t i) {
    return static_cast<std::size_t>(i);
}

// sqrt(1 - noise / variance) of every column, 0 where noise explains the variance.
template <class T>
std::vector<T> weights(const T* x, std::int64_t n, std::int64_t features, double noise, int threads, const Poll& poll) {
    std::vector<T> weight(at(features));
    const auto weigh = [&](std::int64_t task) {
        const std::int64_t f0 = task * columns_per_task, w = std::min(columns_per_task, features - f0);
        double sum[columns_per_task] = {}, square[columns_per_task] = {};
        const T* first = x + f0;  // what is far from 0 must not cancel
        for (std::int64_t i = 1; i < n; ++i) folder_loops<T>().deviations(x + i * features + f0, first, w, sum, square);
        const auto points = static_cast<double>(n);
        for (std::int64_t f = 0; f < w; ++f) {
            const double variance = std::max(0.0, square[f] - sum[f] * sum[f] / points) / std::max(1.0, points - 1);
            weight[at(f0 + f)] = variance > noise ? static_cast<T>(std::sqrt(1 - noise / variance)) : T(0);
        }
    };
    parallel_for((features + columns_per_task - 1) / columns_per_task, threads, weigh, poll);
    return weight;
}

}  // namespace

template <class T>
std::int64_t shrink_features(T* x, std::int64_t n, std::int64_t features, double noise, int threads, const Poll& poll) {
    const std::vector<T> weight = weights(x, n, features, noise, threads, poll);
    std::vector<std::int32_t> kept;
    for (std::int64_t f = 0; f < features; ++f)
        if (weight[at(f)] > 0) kept.push_back(static_cast<std::int32_t>(f));
    if (kept.empty()) return features;
    std::vector<T> factor;
    for (const std::int32_t f : kept) factor.push_back(weight[at(f)]);
    const auto shrink = [&](std::int64_t i) {
        T* row = x + i * features;
        for (std::size_t k = 0; k < kept.size(); ++k) row[k] = factor[k] * row[kept[k]];
    };
    parallel_for(n, threads, shrink, poll);
    return static_cast<std::int64_t>(kept.size());
}

template std::int64_t shrink_features(float*, std::int64_t, std::int64_t, double, int, const Poll&);
template std::int64_t shrink_features(double*, std::int64_t, std::int64_t, double, int, const Poll&);

}  // namespace pyattnorg::cpu
