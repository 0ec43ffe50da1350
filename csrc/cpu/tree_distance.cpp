// How far two trees on the same leaves are apart: per leaf, its smallest common folders with all others, by both trees.
#include <algorithm>
#include <cstdlib>
#include <vector>

#include "../kernels.hpp"
#include "parallel.hpp"

namespace pyattnorg::cpu {
namespace {

// sizes[leaf]: leaves of the smallest folder that it shares with the leaf at `position`. Going away from there along
// the order, the folder can only grow.
void common_sizes(const OrderedTree& tree, std::int64_t n, std::int64_t position, std::int32_t* sizes) {
    std::int32_t size = 0;
    for (std::int64_t p = position; p < n - 1; ++p) sizes[tree.order[p + 1]] = size = std::max(size, tree.common[p]);
    size = 0;
    for (std::int64_t p = position; p > 0; --p) sizes[tree.order[p - 1]] = size = std::max(size, tree.common[p - 1]);
    sizes[tree.order[position]] = 0;
}

}  // namespace

std::int64_t tree_distance(const OrderedTree& a, const OrderedTree& b, std::int64_t n, int threads, const Poll& poll) {
    std::vector<std::int64_t> place(static_cast<std::size_t>(n)), sums(static_cast<std::size_t>(n));
    for (std::int64_t p = 0; p < n; ++p) place[static_cast<std::size_t>(b.order[p])] = p;
    constexpr std::int64_t leaves_per_task = 16;
    const auto some = [&](std::int64_t task) {
        std::vector<std::int32_t> by_a(static_cast<std::size_t>(n)), by_b(static_cast<std::size_t>(n));
        for (std::int64_t p = task * leaves_per_task; p < std::min(n, (task + 1) * leaves_per_task); ++p) {
            common_sizes(a, n, p, by_a.data());
            common_sizes(b, n, place[static_cast<std::size_t>(a.order[p])], by_b.data());
            std::int64_t sum = 0;
            for (std::size_t i = 0; i < by_a.size(); ++i) sum += std::abs(by_a[i] - by_b[i]);
            sums[static_cast<std::size_t>(p)] = sum;
        }
    };
    parallel_for((n + leaves_per_task - 1) / leaves_per_task, threads, some, poll);
    std::int64_t total = 0;
    for (const std::int64_t sum : sums) total += sum;
    return total;
}

}  // namespace pyattnorg::cpu
