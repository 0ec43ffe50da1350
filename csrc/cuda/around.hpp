// What a device is told of a tree before it measures around folders (cuda::around); no CUDA compiler is needed for it.
#pragma once

#include <algorithm>
#include <vector>

#include "../cpu/interchange.hpp"
#include "../kernels.hpp"

namespace pyattnorg::cuda {

struct AroundPlan {
    std::vector<MeanStep> steps;
    std::vector<std::int32_t> first;
    std::vector<Near> near;

    explicit AroundPlan(const cpu::Interchange& tree) {
        const auto n = static_cast<std::int32_t>(tree.points());
        std::vector<std::int32_t> height(static_cast<std::size_t>(2 * n - 1), -1), order = tree.order();
        const auto of = [&](std::int32_t v) -> std::int32_t& { return height[static_cast<std::size_t>(v)]; };
        for (const std::int32_t v : order) of(v) = 1 + std::max(of(tree.children(v).a), of(tree.children(v).b));
        std::stable_sort(order.begin(), order.end(), [&](std::int32_t v, std::int32_t w) { return of(v) < of(w); });
        for (const std::int32_t v : order) {
            const auto [a, b] = tree.children(v);
            const auto step = static_cast<std::int32_t>(steps.size());
            if (of(v) == static_cast<std::int32_t>(first.size())) first.push_back(step);
            steps.push_back({v - n, a, b, 0, tree.size(a) / tree.size(v), tree.size(b) / tree.size(v)});
        }
        first.push_back(static_cast<std::int32_t>(steps.size()));
        for (const std::int32_t v : tree.dirty()) {
            const auto [a, b] = tree.children(v);
            const std::int32_t p = tree.parent(v), y = p < 0 ? b : tree.sibling(v);
            const auto weights = math::around_weights<double>(tree.size(a), tree.size(b), tree.size(y));
            near.push_back({a, b, y, p < 0 ? a : p, p < 0 ? math::AroundWeights<double>{} : weights});
        }
    }
};

}  // namespace pyattnorg::cuda
