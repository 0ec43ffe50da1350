// The tree-Haar transform: n - 1 rotations of rows along every axis. Axes whose products fit in a core's cache are done
// together, slab by slab, so that memory is read and written once for all of them, and once for every axis before.
//
// Rotations go through the tree depth first: a folder's sum is used again while it is still in the nearest cache.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "../kernels.hpp"
#include "../math/haar.hpp"
#include "aligned.hpp"
#include "isa.hpp"
#include "parallel.hpp"

namespace pyattnorg::cpu {
namespace {

constexpr std::int64_t slab_bytes = 512 * 1024;  // about half of a core's second-level cache
constexpr std::int64_t row_bytes = 4096;

// Steps in depth-first order: what makes a step's left sum, what makes its right, then the step itself.
std::vector<HaarStep> depth_first(const HaarStep* steps, std::int64_t n) {
    std::vector<std::int64_t> maker(static_cast<std::size_t>(n), -1);
    std::vector<std::pair<std::int64_t, std::int64_t>> before;
    for (std::int64_t s = 0; s < n - 1; ++s) {
        const auto left = static_cast<std::size_t>(steps[s].left), right = static_cast<std::size_t>(steps[s].right);
        before.emplace_back(maker[left], maker[right]);
        maker[right] = s;
    }
    std::vector<HaarStep> order;
    std::vector<std::int64_t> stack(n > 1 ? 1 : 0, n - 2);
    while (!stack.empty()) {  // parents first, left before right: backwards that is the order wanted
        const std::int64_t s = stack.back();
        stack.pop_back();
        order.push_back(steps[s]);
        const auto [left, right] = before[static_cast<std::size_t>(s)];
        if (right >= 0) stack.push_back(right);
        if (left >= 0) stack.push_back(left);
    }
    std::reverse(order.begin(), order.end());
    return order;
}

template <class T>
class Axis {
public:
    Axis(const HaarTree& tree, std::int64_t n, std::int64_t inner, bool inverse)
        : n_(n), inner_(inner), inverse_(inverse), slot_(tree.slot, tree.slot + n) {
        std::vector<std::int32_t> at(static_cast<std::size_t>(n));  // the coefficient that ends in a slot
        for (std::size_t k = 0; k < at.size(); ++k)
            at[static_cast<std::size_t>(slot_[k])] = static_cast<std::int32_t>(k);
        std::vector<HaarStep> steps = depth_first(tree.steps, n);
        if (inverse) std::reverse(steps.begin(), steps.end());
        std::vector<std::uint8_t> seen(at.size(), 0);
        const auto row = [&](std::int32_t s) { return inverse ? s : at[static_cast<std::size_t>(s)]; };
        const auto first = [&](std::int32_t s) {
            const auto i = static_cast<std::size_t>(s);
            return std::exchange(seen[i], std::uint8_t{1}) ? -1 : inverse ? at[i] : s;
        };
        for (const HaarStep& s : steps) {
            const auto r = math::merge_rotation<T>(s.left_size, s.right_size);
            rows_.push_back({row(s.left), row(s.right), first(s.left), first(s.right), r.major, r.minor});
            fibres_.push_back({s.left, s.right, -1, -1, r.major, r.minor});
        }
    }

    std::int64_t size() const { return n_ * inner_; }

    // Parts of one slab [n, inner] that can be done apart, for `wanted` of them or more if there are as many.
    std::int64_t parts(bool in_place, std::int64_t wanted) const {
        return (inner_ + width(in_place, wanted) - 1) / width(in_place, wanted);
    }

    void part(const T* from, T* to, std::int64_t i, std::int64_t wanted) const {
        const std::int64_t w = width(from == to, wanted), begin = i * w;
        rows(from + begin, to + begin, std::min(w, inner_ - begin));
    }

    // Fibres begin ... end - 1 of contiguous numbers, where inner is 1; each is n long.
    void fibres(const T* from, T* to, std::int64_t begin, std::int64_t end) const {
        const auto buffer = aligned<T>(n_ * lanes<T>);
        const std::int32_t *rows_in = inverse_ ? slot_.data() : nullptr, *rows_out = inverse_ ? nullptr : slot_.data();
        for (std::int64_t f = begin; f < end; f += lanes<T>) {
            const T* source[lanes<T>];
            T* target[lanes<T>];
            for (std::int64_t l = 0; l < lanes<T>; ++l) {  // lanes beyond the last fibre repeat it
                const std::int64_t at = std::min(f + l, end - 1) * n_;
                source[l] = from + at;
                target[l] = to + at;
            }
            loops<T>().gather(source, n_, rows_in, buffer.get());
            loops<T>().rotate(fibres_.data(), turns(), nullptr, 0, buffer.get(), lanes<T>, lanes<T>, inverse_);
            loops<T>().scatter(buffer.get(), n_, rows_out, target);
        }
    }

    bool contiguous() const { return inner_ == 1; }

private:
    std::int64_t turns() const { return static_cast<std::int64_t>(rows_.size()); }

    std::int64_t width(bool in_place, std::int64_t wanted) const {
        constexpr auto size = static_cast<std::int64_t>(sizeof(T));
        std::int64_t w = in_place ? std::min(slab_bytes / 2 / size / n_, row_bytes / size) : row_bytes / size;
        w = std::min(w, (inner_ + wanted - 1) / wanted);
        return std::max(w / lanes<T>, std::int64_t{1}) * lanes<T>;
    }

    // A stretch of `w` numbers of every row. Coefficients stand elsewhere than leaves, so nothing is done in place.
    void rows(const T* from, T* to, std::int64_t w) const {
        std::int64_t stride = inner_;
        Aligned<T> copy;
        if (from == to) {
            copy = aligned<T>(n_ * w);
            for (std::int64_t i = 0; i < n_; ++i)
                std::memcpy(copy.get() + i * w, from + i * inner_, static_cast<std::size_t>(w) * sizeof(T));
            from = copy.get();
            stride = w;
        }
        loops<T>().rotate(rows_.data(), turns(), from, stride, to, inner_, w, inverse_);
    }

    std::int64_t n_, inner_;
    bool inverse_;
    std::vector<std::int32_t> slot_;
    std::vector<Turn<T>> rows_, fibres_;
};

// One axis of the whole array [outer, n, inner].
template <class T>
void whole(const Axis<T>& axis, const T* from, T* to, std::int64_t outer, int threads, const Poll& poll) {
    const std::int64_t wanted = 8 * threads;
    if (axis.contiguous()) {
        const std::int64_t groups = (outer + lanes<T> - 1) / lanes<T>;
        const std::int64_t some = std::max(groups / wanted, std::int64_t{1}) * lanes<T>;
        const auto transform = [&](std::int64_t task) {
            axis.fibres(from, to, task * some, std::min(outer, (task + 1) * some));
        };
        return parallel_for((outer + some - 1) / some, threads, transform, poll);
    }
    const std::int64_t apart = (wanted + outer - 1) / outer, parts = axis.parts(from == to, apart);
    const auto transform = [&](std::int64_t task) {
        const std::int64_t at = task / parts * axis.size();
        axis.part(from + at, to + at, task % parts, apart);
    };
    parallel_for(outer * parts, threads, transform, poll);
}

// Whether the sum of all is finite: any NaN or infinity would reach it.
template <class T>
bool finite(const T* x, std::int64_t n) {
    constexpr std::int64_t ways = 16;  // independent sums, so that they vectorise
    T sums[ways] = {};
    std::int64_t i = 0;
    for (; i + ways <= n; i += ways)
        for (std::int64_t w = 0; w < ways; ++w) sums[w] += x[i + w];
    for (; i < n; ++i) sums[0] += x[i];
    return std::isfinite(std::accumulate(sums, sums + ways, T(0)));
}

}  // namespace

template <class T>
bool haar(const T* x, const std::vector<std::int64_t>& shape, const std::vector<HaarTree>& trees, bool inverse, T* out,
          int threads, const Poll& poll) {
    std::int64_t total = 1;
    for (const std::int64_t n : shape) total *= n;
    std::vector<Axis<T>> axes;
    for (std::int64_t a = 0, inner = total; a < static_cast<std::int64_t>(shape.size()); ++a) {
        const auto i = static_cast<std::size_t>(a);
        inner /= shape[i];
        if (trees[i].steps && shape[i] > 1) axes.emplace_back(trees[i], shape[i], inner, inverse);
    }
    if (axes.empty()) std::memcpy(out, x, static_cast<std::size_t>(total) * sizeof(T));
    const auto enough = [&](const Axis<T>& axis) {
        return axis.size() * static_cast<std::int64_t>(sizeof(T)) <= slab_bytes && total / axis.size() >= 4 * threads;
    };
    const auto together = std::find_if(axes.begin(), axes.end(), enough);
    for (auto axis = axes.begin(); axis != together; ++axis) {
        whole(*axis, x, out, total / axis->size(), threads, poll);
        x = out;
    }
    // What is left to be done slab by slab: the other axes, if any, and a look at the numbers.
    const std::int64_t unit = together == axes.end() ? 1 : together->size(), units = total / unit;
    const std::int64_t fit = slab_bytes / static_cast<std::int64_t>(sizeof(T)) / unit;
    const std::int64_t some = std::clamp(units / (8 * threads), std::int64_t{1}, fit);
    std::atomic<bool> all_finite{true};
    const auto transform = [&](std::int64_t task) {
        const std::int64_t begin = task * some * unit, size = std::min(total - begin, some * unit);
        const T* from = x + begin;
        T* const to = out + begin;
        for (auto axis = together; axis != axes.end(); ++axis, from = to) {
            if (axis->contiguous()) {
                axis->fibres(from, to, 0, size / axis->size());
                continue;
            }
            for (std::int64_t at = 0; at < size; at += axis->size())
                for (std::int64_t i = 0; i < axis->parts(from == to, 1); ++i) axis->part(from + at, to + at, i, 1);
        }
        if (!finite(to, size)) all_finite = false;
    };
    parallel_for((units + some - 1) / some, threads, transform, poll);
    return all_finite;
}

template bool haar(const float*, const std::vector<std::int64_t>&, const std::vector<HaarTree>&, bool, float*, int,
                   const Poll&);
template bool haar(const double*, const std::vector<std::int64_t>&, const std::vector<HaarTree>&, bool, double*, int,
                   const Poll&);

}  // namespace pyattnorg::cpu
