#include "interchange.hpp"

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "../math/merging.hpp"

namespace pyattnorg::cpu {

Interchange::Interchange(const std::int32_t* merges, std::int64_t n)
    : n_(n), size_(at(n), 1), child_(at(n - 1)), parent_(at(2 * n - 1), -1), around_(at(n - 1)) {
    std::vector<std::int32_t> node(at(n));
    std::iota(node.begin(), node.end(), 0);
    for (std::int64_t i = 0; i < n - 1; ++i) {
        const std::int32_t a = merges[2 * i], b = merges[2 * i + 1];
        if (a < 0 || a >= b || b >= n || node[at(a)] < 0 || node[at(b)] < 0)
            throw std::invalid_argument("merges must name the first points of two living folders, the lower one first");
        child_[at(i)] = {node[at(a)], node[at(b)]};
        size_.push_back(size_[at(node[at(a)])] + size_[at(node[at(b)])]);
        node[at(a)] = static_cast<std::int32_t>(n + i);
        node[at(b)] = -1;
        for (const std::int32_t c : {child_[at(i)].a, child_[at(i)].b}) parent_[at(c)] = node[at(a)];
    }
    find_order();
    dirty_ = order_;
}

std::int32_t Interchange::sibling(std::int32_t v) const {
    const Children& two = children(parent(v));
    return two.a == v ? two.b : two.a;
}

double Interchange::own_cost(std::int32_t v) const {
    return math::merge_weight(size(children(v).a), size(children(v).b)) * around_[at(v - n_)].cost;
}

void Interchange::find_order() {
    order_.clear();
    std::vector<std::int32_t> stack;
    for (std::int64_t v = n_; v < 2 * n_ - 1; ++v)
        if (parent_[at(v)] < 0) stack.push_back(static_cast<std::int32_t>(v));
    while (!stack.empty()) {
        const std::int32_t v = stack.back();
        stack.pop_back();
        if (v < n_) continue;
        order_.push_back(v);
        stack.push_back(children(v).a);
        stack.push_back(children(v).b);
    }
    std::reverse(order_.begin(), order_.end());
}

void Interchange::learn(const std::vector<Around>& found) {
    for (std::size_t i = 0; i < dirty_.size(); ++i) around_[at(dirty_[i] - n_)] = found[i];
    dirty_.clear();
}

bool Interchange::exchange(double least_share, double least_gain) {
    double total = 0;
    for (const std::int32_t v : order_) total += own_cost(v);
    const double enough = std::max(least_gain, least_share * total);
    std::vector<Exchange> better;
    for (const std::int32_t x : order_) {
        if (parent(x) < 0) continue;
        const Around& found = around_[at(x - n_)];
        const bool keeps_a = found.gain[0] >= found.gain[1];
        const double gain = keeps_a ? found.gain[0] : found.gain[1];
        if (gain > enough) better.push_back({gain, x, keeps_a});
    }
    std::sort(better.begin(), better.end(), [](const Exchange& one, const Exchange& other) {
        return one.gain != other.gain ? one.gain > other.gain : one.x < other.x;
    });
    std::vector<std::uint8_t> taken(at(n_ - 1), 0), touched(at(n_ - 1), 0);
    for (const Exchange& e : better) {
        const std::int32_t x = e.x, p = parent(x), y = sibling(x);
        if (taken[at(x - n_)] || taken[at(p - n_)]) continue;
        taken[at(x - n_)] = taken[at(p - n_)] = 1;
        const std::int32_t stays = e.keeps_a ? children(x).a : children(x).b,
                           leaves = e.keeps_a ? children(x).b : children(x).a;
        children(x) = {stays, y};
        children(p) = {x, leaves};
        parent_[at(y)] = x;
        parent_[at(leaves)] = p;
        size_[at(x)] = size(stays) + size(y);
    }
    const auto touch = [&](std::int32_t v) {
        if (v >= n_) touched[at(v - n_)] = 1;
    };
    for (const Exchange& e : better) {
        const std::int32_t x = e.x;
        if (!taken[at(x - n_)]) continue;
        for (const std::int32_t v : {x, parent(x)}) {
            if (v < 0) continue;
            touch(v);
            touch(children(v).a);
            touch(children(v).b);
        }
    }
    find_order();
    for (const std::int32_t v : order_)
        if (touched[at(v - n_)]) dirty_.push_back(v);
    return !better.empty();
}

void Interchange::give(std::int32_t* merges, double* costs) const {
    std::vector<std::int32_t> first(at(2 * n_ - 1));
    std::iota(first.begin(), first.begin() + n_, 0);
    for (const std::int32_t v : order_) {
        const auto [low, high] = std::minmax(first[at(children(v).a)], first[at(children(v).b)]);
        *merges++ = low;
        *merges++ = high;
        *costs++ = own_cost(v);
        first[at(v)] = low;
    }
}

}  // namespace pyattnorg::cpu
