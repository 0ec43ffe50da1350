// Nearest-neighbour interchange on a binary tree, for its least-entropy cost (entropy_tree.cpp).
//
// A folder x = (a, b) beside y below p may become (a, y) beside b, or (b, y) beside a; the points below p stay the
// same, so nothing else changes. Since mean(a, y) - b = |p| / (|p| - |b|) (mean(p) - b), five distances tell what every
// exchange of a folder gains, feature by feature. A sweep makes the means of all folders, a stretch of features at a
// time, and measures around the folders that the last sweep touched; then it makes the exchanges that gain, the best
// first, as long as they do not share a folder: gains add up exactly, so the cost falls with every sweep.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "../kernels.hpp"
#include "folder_loops.hpp"
#include "parallel.hpp"

namespace pyattnorg::cpu {
namespace {

constexpr std::int64_t most_groups = 32;
constexpr std::int64_t means_bytes = std::int64_t{256} << 10;
constexpr std::int64_t sums_bytes = std::int64_t{32} << 20;

std::size_t at(std::int64_t i) {
    return static_cast<std::size_t>(i);
}

double weight(double s, double M) {
    return std::sqrt(s * M / (s + M));
}

// Nodes 0..n are leaves, n..2n - 1 folders of two.
template <class T>
class Interchange {
public:
    Interchange(const T* x, std::int64_t n, std::int64_t features, const std::int32_t* merges, int threads,
                const Poll& poll)
        : x_(x),
          n_(n),
          features_(features),
          size_(at(n), 1),
          child_(at(n - 1)),
          parent_(at(2 * n - 1), -1),
          around_(at(n - 1)),
          dirty_(at(n - 1), 1),
          threads_(threads),
          poll_(poll) {
        std::vector<std::int32_t> node(at(n));
        std::iota(node.begin(), node.end(), 0);
        for (std::int64_t i = 0; i < n - 1; ++i) {
            const std::int32_t a = merges[2 * i], b = merges[2 * i + 1];
            child_[at(i)] = {node[at(a)], node[at(b)]};
            size_.push_back(size_[at(node[at(a)])] + size_[at(node[at(b)])]);
            node[at(a)] = node[at(b)] = static_cast<std::int32_t>(n + i);
            for (const std::int32_t c : {child_[at(i)].a, child_[at(i)].b}) parent_[at(c)] = node[at(a)];
        }
    }

    int run(int most_sweeps, double least_share, double least_gain) {
        int sweeps = 0;
        for (;;) {
            find_order();
            measure();
            if (sweeps == most_sweeps || !exchange(least_share, least_gain)) return sweeps;
            ++sweeps;
        }
    }

    void give(std::int32_t* merges, double* costs) const {
        std::vector<std::int32_t> first(at(2 * n_ - 1));
        std::iota(first.begin(), first.begin() + n_, 0);
        for (const std::int32_t v : order_) {
            const auto [low, high] = std::minmax(first[at(child(v).a)], first[at(child(v).b)]);
            *merges++ = low;
            *merges++ = high;
            *costs++ = own_cost(v);
            first[at(v)] = low;
        }
    }

private:
    struct Children {
        std::int32_t a, b;
    };
    struct Exchange {
        double gain;
        std::int32_t x;
        bool keeps_a;
    };

    const Children& child(std::int32_t v) const { return child_[at(v - n_)]; }
    Children& child(std::int32_t v) { return child_[at(v - n_)]; }
    const Around& around(std::int32_t v) const { return around_[at(v - n_)]; }
    double size(std::int32_t v) const { return size_[at(v)]; }
    std::int32_t parent(std::int32_t v) const { return parent_[at(v)]; }
    std::int32_t sibling(std::int32_t v) const {
        const Children& two = child(parent(v));
        return two.a == v ? two.b : two.a;
    }
    double own_cost(std::int32_t v) const { return weight(size(child(v).a), size(child(v).b)) * around(v).cost; }

    // Folders, children first.
    void find_order() {
        order_.clear();
        std::vector<std::int32_t> stack;
        for (std::int64_t v = n_; v < 2 * n_ - 1; ++v)
            if (parent_[at(v)] < 0) stack.push_back(static_cast<std::int32_t>(v));
        while (!stack.empty()) {
            const std::int32_t v = stack.back();
            stack.pop_back();
            if (v < n_) continue;
            order_.push_back(v);
            stack.push_back(child(v).a);
            stack.push_back(child(v).b);
        }
        std::reverse(order_.begin(), order_.end());
    }

    void measure() {
        const FolderLoops<T>& loop = folder_loops<T>();
        const std::int64_t folders = n_ - 1;
        const std::int64_t width = std::clamp(
            means_bytes / static_cast<std::int64_t>(sizeof(T)) / n_ / lanes<T> * lanes<T>, lanes<T>, panel_features);
        const std::int64_t stretches = (features_ + width - 1) / width;
        const std::int64_t fits = sums_bytes / (folders * static_cast<std::int64_t>(sizeof(Around)));
        const std::int64_t groups = std::min(stretches, std::clamp(fits, std::int64_t{1}, most_groups));
        std::vector<Around> sums(at(groups * folders));
        const auto sum = [&](std::int64_t group) {
            std::vector<T> means(at(folders * width));
            Around* to = sums.data() + group * folders;
            for (std::int64_t s = group * stretches / groups; s < (group + 1) * stretches / groups; ++s) {
                const std::int64_t f0 = s * width, w = std::min(width, features_ - f0);
                const auto mean = [&](std::int32_t v) {
                    return v < n_ ? x_ + v * features_ + f0 : means.data() + (v - n_) * width;
                };
                for (const std::int32_t v : order_) {
                    const auto [a, b] = child(v);
                    loop.mean(mean(a), mean(b), static_cast<T>(size(a) / size(v)), static_cast<T>(size(b) / size(v)), w,
                              means.data() + (v - n_) * width);
                }
                for (const std::int32_t v : order_) {
                    if (!dirty_[at(v - n_)]) continue;
                    const auto [a, b] = child(v);
                    if (parent(v) >= 0)
                        loop.around(mean(a), mean(b), mean(sibling(v)), mean(parent(v)), weights(v), w, to + v - n_);
                    else
                        to[v - n_].cost += loop.distance(mean(a), mean(b), w);
                }
            }
        };
        parallel_for(groups, threads_, sum, poll_);
        for (std::int64_t i = 0; i < folders; ++i) {
            if (!dirty_[at(i)]) continue;
            Around& total = around_[at(i)] = {};
            for (std::int64_t group = 0; group < groups; ++group) {
                const Around& part = sums[at(group * folders + i)];
                total.cost += part.cost;
                for (int which = 0; which < 2; ++which) total.gain[which] += part.gain[which];
            }
            dirty_[at(i)] = 0;
        }
    }

    AroundWeights<T> weights(std::int32_t v) const {
        const double a = size(child(v).a), b = size(child(v).b), y = size(sibling(v)), p = a + b + y;
        // mean(one, other) - rest = |p| / (|p| - |rest|) (mean(p) - rest)
        const auto beside = [p](double rest) { return static_cast<T>(weight(p - rest, rest) * (p / (p - rest))); };
        return {static_cast<T>(weight(a, b)),
                beside(y),
                {static_cast<T>(weight(a, y)), static_cast<T>(weight(b, y))},
                {beside(b), beside(a)}};
    }

    // Whether any exchange gains enough; makes those that do.
    bool exchange(double least_share, double least_gain) {
        double total = 0;
        for (const std::int32_t v : order_) total += own_cost(v);
        const double enough = std::max(least_gain, least_share * total);
        std::vector<Exchange> better;
        for (const std::int32_t x : order_) {
            if (parent(x) < 0) continue;
            const Around& found = around(x);
            const bool keeps_a = found.gain[0] >= found.gain[1];
            const double gain = keeps_a ? found.gain[0] : found.gain[1];
            if (gain > enough) better.push_back({gain, x, keeps_a});
        }
        std::sort(better.begin(), better.end(), [](const Exchange& one, const Exchange& other) {
            return one.gain != other.gain ? one.gain > other.gain : one.x < other.x;
        });
        std::vector<std::uint8_t> taken(at(n_ - 1), 0);
        for (const Exchange& e : better) {
            const std::int32_t x = e.x, p = parent(x), y = sibling(x);
            if (taken[at(x - n_)] || taken[at(p - n_)]) continue;
            taken[at(x - n_)] = taken[at(p - n_)] = 1;
            const std::int32_t stays = e.keeps_a ? child(x).a : child(x).b,
                               leaves = e.keeps_a ? child(x).b : child(x).a;
            child(x) = {stays, y};
            child(p) = {x, leaves};
            parent_[at(y)] = x;
            parent_[at(leaves)] = p;
            size_[at(x)] = size(stays) + size(y);
        }
        const auto touch = [&](std::int32_t v) {
            if (v >= n_) dirty_[at(v - n_)] = 1;
        };
        for (const Exchange& e : better) {
            const std::int32_t x = e.x;
            if (!taken[at(x - n_)]) continue;
            touch(x);
            touch(child(x).a);
            touch(child(x).b);
            if (const std::int32_t p = parent(x); p >= 0) {
                touch(p);
                touch(child(p).a);
                touch(child(p).b);
            }
        }
        return !better.empty();
    }

    const T* x_;
    std::int64_t n_, features_;
    std::vector<double> size_;          // [2n - 1]
    std::vector<Children> child_;       // [n - 1]
    std::vector<std::int32_t> parent_;  // [2n - 1]
    std::vector<std::int32_t> order_;   // [n - 1]
    std::vector<Around> around_;        // [n - 1]
    std::vector<std::uint8_t> dirty_;   // [n - 1]
    int threads_;
    const Poll& poll_;
};

}  // namespace

template <class T>
int improve_tree(const T* x, std::int64_t n, std::int64_t features, std::int32_t* merges, double* costs,
                 int most_sweeps, double least_share, double least_gain, int threads, const Poll& poll) {
    if (n < 2) return 0;
    Interchange<T> tree(x, n, features, merges, threads, poll);
    const int sweeps = tree.run(most_sweeps, least_share, least_gain);
    tree.give(merges, costs);
    return sweeps;
}

template int improve_tree(const float*, std::int64_t, std::int64_t, std::int32_t*, double*, int, double, double, int,
                          const Poll&);
template int improve_tree(const double*, std::int64_t, std::int64_t, std::int32_t*, double*, int, double, double, int,
                          const Poll&);

}  // namespace pyattnorg::cpu
