// Measures around the folders of a tree (interchange.hpp) for its least-entropy cost: a sweep makes the means of all
// folders, a stretch of features at a time, and measures around the folders that the last sweep touched.
#include <algorithm>
#include <vector>

#include "../kernels.hpp"
#include "folder_loops.hpp"
#include "interchange.hpp"
#include "parallel.hpp"

namespace pyattnorg::cpu {
namespace {

constexpr std::int64_t most_groups = 32;
constexpr std::int64_t means_bytes = std::int64_t{256} << 10;
constexpr std::int64_t sums_bytes = std::int64_t{32} << 20;

std::size_t at(std::int64_t i) {
    return static_cast<std::size_t>(i);
}

template <class T>
std::vector<Around> measured(const Interchange& tree, const T* x, std::int64_t features, int threads,
                             const Poll& poll) {
    const FolderLoops<T>& loop = folder_loops<T>();
    const std::int64_t n = tree.points(), folders = n - 1;
    const auto wanted = static_cast<std::int64_t>(tree.dirty().size());
    const std::int64_t width = std::clamp(means_bytes / static_cast<std::int64_t>(sizeof(T)) / n / lanes<T> * lanes<T>,
                                          lanes<T>, panel_features);
    const std::int64_t stretches = (features + width - 1) / width;
    const std::int64_t fits = sums_bytes / (folders * static_cast<std::int64_t>(sizeof(Around)));
    const std::int64_t groups = std::min(stretches, std::clamp(fits, std::int64_t{1}, most_groups));
    std::vector<Around> sums(at(groups * wanted));
    const auto sum = [&](std::int64_t group) {
        std::vector<T> means(at(folders * width));
        for (std::int64_t s = group * stretches / groups; s < (group + 1) * stretches / groups; ++s) {
            const std::int64_t f0 = s * width, w = std::min(width, features - f0);
            const auto mean = [&](std::int32_t v) {
                return v < n ? x + v * features + f0 : means.data() + (v - n) * width;
            };
            for (const std::int32_t v : tree.order()) {
                const auto [a, b] = tree.children(v);
                loop.mean(mean(a), mean(b), static_cast<T>(tree.size(a) / tree.size(v)),
                          static_cast<T>(tree.size(b) / tree.size(v)), w, means.data() + (v - n) * width);
            }
            Around* to = sums.data() + group * wanted;
            for (const std::int32_t v : tree.dirty()) {
                const auto [a, b] = tree.children(v);
                const std::int32_t p = tree.parent(v);
                if (p >= 0)
                    loop.around(mean(a), mean(b), mean(tree.sibling(v)), mean(p),
                                math::around_weights<T>(tree.size(a), tree.size(b), tree.size(tree.sibling(v))), w, to);
                else
                    to->cost += loop.distance(mean(a), mean(b), w);
                ++to;
            }
        }
    };
    parallel_for(groups, threads, sum, poll);
    std::vector<Around> found(at(wanted));
    for (std::int64_t i = 0; i < wanted; ++i)
        for (std::int64_t group = 0; group < groups; ++group) {
            const Around& part = sums[at(group * wanted + i)];
            found[at(i)].cost += part.cost;
            for (int which = 0; which < 2; ++which) found[at(i)].gain[which] += part.gain[which];
        }
    return found;
}

}  // namespace

template <class T>
int improve_tree(const T* x, std::int64_t n, std::int64_t features, std::int32_t* merges, double* costs,
                 int most_sweeps, double least_share, double least_gain, int threads, const Poll& poll) {
    if (n < 2) return 0;
    Interchange tree(merges, n);
    int sweeps = 0;
    for (;; ++sweeps) {
        tree.learn(measured(tree, x, features, threads, poll));
        if (sweeps == most_sweeps || !tree.exchange(least_share, least_gain)) break;
    }
    tree.give(merges, costs);
    return sweeps;
}

template int improve_tree(const float*, std::int64_t, std::int64_t, std::int32_t*, double*, int, double, double, int,
                          const Poll&);
template int improve_tree(const double*, std::int64_t, std::int64_t, std::int32_t*, double*, int, double, double, int,
                          const Poll&);

}  // namespace pyattnorg::cpu
