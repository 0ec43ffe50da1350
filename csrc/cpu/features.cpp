#include "features.hpp"

#include <algorithm>
#include <cmath>

#include "../math/term.hpp"
#include "parallel.hpp"

namespace pyattnorg::cpu {
namespace {

// Any constant would do as the centre; the mean of a few points spread over the axis is good enough.
constexpr std::int64_t sampled_points = 16;
constexpr std::int64_t cells_per_task = 4096;

// centre[a * n_b + b] = mean of x[p, a, b] over the sampled points p.
template <class T, class Value>
void sample_mean(const Strided3<Value>& x, std::vector<T>& centre, int threads) {
    const std::int64_t n = x.shape[0], n_b = x.shape[2], cells = x.shape[1] * n_b;
    const std::int64_t sampled = std::min(n, sampled_points);
    centre.resize(static_cast<std::size_t>(cells));
    parallel_for((cells + cells_per_task - 1) / cells_per_task, threads, [&](std::int64_t task) {
        const std::int64_t end = std::min(cells, (task + 1) * cells_per_task);
        for (std::int64_t cell = task * cells_per_task; cell < end; ++cell) {
            const Value* at = x.data + cell / n_b * x.stride[1] + cell % n_b * x.stride[2];
            double sum = 0;
            for (std::int64_t s = 0; s < sampled; ++s) sum += static_cast<double>(at[s * n / sampled * x.stride[0]]);
            centre[static_cast<std::size_t>(cell)] = static_cast<T>(sum / static_cast<double>(sampled));
        }
    });
}

// Lanes beyond the last point repeat it; what is computed for them is never read.
template <class T, class Value>
BlockSource<T, Value> block_source(const Features<T>& of, const Value* data, std::int64_t point_stride,
                                   std::int64_t stride_a, std::int64_t stride_b, std::int64_t block) {
    const std::int64_t points = of.points(), first = block * lanes<T>, last = first + lanes<T> - 1;
    const bool together = last < points && of.point(last) - of.point(first) == last - first;
    BlockSource<T, Value> source{{}, stride_a, stride_b, together && point_stride == 1};
    for (std::int64_t l = 0; l < lanes<T>; ++l)
        source.row[l] = data + of.point(std::min(first + l, points - 1)) * point_stride;
    return source;
}

// [n_leaves], sum of the scales of the folders that hold a leaf.
template <class T>
std::vector<T> leaf_scales(const TreeProgram& p) {
    std::vector<T> scales(static_cast<std::size_t>(p.n_leaves));
    std::vector<double> above(static_cast<std::size_t>(p.n_slots));  // backwards, parents come before their children
    for (std::int64_t s = p.n_steps - 1; s >= 0; --s) {
        const auto slot = static_cast<std::size_t>(p.slot[s]);
        above[slot] = p.scale[s] + (p.add[s] ? above[slot - 1] : s == p.n_steps - 1 ? 0 : above[slot]);
        if (p.leaf[s] >= 0) scales[static_cast<std::size_t>(p.leaf[s])] = static_cast<T>(above[slot]);
    }
    return scales;
}

template <class T>
Program<T> with_scales(const TreeProgram& p, std::vector<T>& scales, std::vector<T>& leaf_scale) {
    scales.resize(static_cast<std::size_t>(p.n_steps));
    std::transform(p.scale, p.scale + p.n_steps, scales.begin(), [](double s) { return static_cast<T>(s); });
    leaf_scale = leaf_scales<T>(p);
    return {p.n_steps, p.n_leaves, p.n_slots, p.leaf, p.slot, p.add, scales.data(), leaf_scale.data()};
}

// How unevenly weight lies on folders, on all or on those that hold one leaf, whichever is worse: 1 if one folder has
// all of it, 1 / sqrt(folders) if all have the same.
double concentration(const TreeProgram& p) {
    struct Sums {
        double weights = 0, squares = 0;
        double share() const { return weights > 0 ? std::sqrt(squares) / weights : 0; }
    };
    const auto slots = static_cast<std::size_t>(p.n_slots);
    std::vector<double> size(slots);
    Sums all;
    for (std::int64_t s = 0; s < p.n_steps; ++s) {
        const auto slot = static_cast<std::size_t>(p.slot[s]);
        if (p.leaf[s] >= 0) size[slot] = 1;
        const double weight = p.scale[s] * size[slot];
        all.weights += weight;
        all.squares += weight * weight;
        if (p.add[s]) size[slot - 1] += size[slot];
    }
    double worst = all.share();
    std::vector<Sums> above(slots);
    for (std::int64_t s = p.n_steps - 1; s >= 0; --s) {
        const auto slot = static_cast<std::size_t>(p.slot[s]);
        if (p.add[s]) above[slot] = above[slot - 1];
        above[slot].weights += p.scale[s];
        above[slot].squares += p.scale[s] * p.scale[s];
        if (p.leaf[s] >= 0) worst = std::max(worst, above[slot].share());
    }
    return worst;
}

}  // namespace

template <class T>
Folders<T>::Folders(const TreeProgram& p) : leaf_scale(leaf_scales<T>(p)) {
    const auto steps = static_cast<std::size_t>(p.n_steps);
    std::vector<std::vector<std::int32_t>> waiting(static_cast<std::size_t>(p.n_slots)), children(steps);
    for (std::size_t s = 0; s < steps; ++s) {
        const auto slot = static_cast<std::size_t>(p.slot[s]);
        if (p.leaf[s] < 0) children[s].swap(waiting[slot]);
        const auto step = static_cast<std::int32_t>(s);
        if (p.add[s])
            waiting[slot - 1].push_back(step);
        else
            waiting[slot].assign(1, step);
    }
    std::vector<std::int32_t> order(1, static_cast<std::int32_t>(steps - 1));  // the root's step is the last
    for (std::size_t f = 0; f < order.size(); ++f) {
        const auto s = static_cast<std::size_t>(order[f]);
        first.push_back(static_cast<std::int32_t>(order.size()));
        leaf.push_back(p.leaf[s]);
        scale.push_back(static_cast<T>(p.scale[s]));
        if (p.leaf[s] < 0) inner.push_back(static_cast<std::int32_t>(f));
        order.insert(order.end(), children[s].begin(), children[s].end());
    }
    first.push_back(static_cast<std::int32_t>(order.size()));
    std::reverse(inner.begin(), inner.end());
    table = {static_cast<std::int64_t>(order.size()),
             p.n_leaves,
             static_cast<std::int64_t>(inner.size()),
             inner.data(),
             first.data(),
             leaf.data(),
             scale.data(),
             leaf_scale.data()};
}

template <class T>
void DenseFeatures<T>::restart(bool centred, int threads) {
    centred_ = centred;
    begin_ = end_ = 0;
    if (centred)
        sample_mean<T, T>({x_.data, {x_.shape[0], 1, x_.shape[1]}, {x_.stride[0], 0, x_.stride[1]}}, centre_, threads);
}

template <class T>
std::int64_t DenseFeatures<T>::advance(std::int64_t room) {
    begin_ = end_;
    end_ = std::min(x_.shape[1], begin_ + room);
    return end_ - begin_;
}

template <class T>
void DenseFeatures<T>::make(std::int64_t block, T* out) {
    const auto source = block_source<T>(*this, x_.data, x_.stride[0], std::int64_t{0}, x_.stride[1], block);
    loops<T>().dense_features(source, begin_, end_, centred_ ? centre_.data() : nullptr, centred_ ? weights_ : nullptr,
                              out);
}

template <class T, class Value>
TreeFeatures<T, Value>::TreeFeatures(const Strided3<Value>& x, const TreeProgram& a, const TreeProgram& b)
    : x_(x), a_(with_scales(a, scale_a_, leaf_scale_a_)), b_(b) {
    doubt_ = math::doubt_per_mass<T>(concentration(a) * concentration(b));
}

template <class T, class Value>
void TreeFeatures<T, Value>::restart(bool centred, int threads) {
    centred_ = centred;
    begin_ = end_ = 0;
    const std::int64_t blocks = (this->points() + lanes<T> - 1) / lanes<T>;
    slots_.resize(static_cast<std::size_t>(blocks * a_.n_slots * b_.table.n_leaves * lanes<T>));
    masses_.assign(static_cast<std::size_t>(blocks * lanes<T>), 0.0);
    if (centred) sample_mean(x_, centre_, threads);
}

template <class T, class Value>
std::int64_t TreeFeatures<T, Value>::advance(std::int64_t room) {
    begin_ = end_;
    std::int64_t features = 0;
    for (; end_ < a_.n_steps; ++end_) {
        const std::int64_t more = a_.scale[end_] != T(0) ? b_.table.n_folders : 0;
        if (features + more > room) break;
        features += more;
    }
    return features;
}

template <class T, class Value>
void TreeFeatures<T, Value>::make(std::int64_t block, T* out) {
    const auto source = block_source<T>(*this, x_.data, x_.stride[0], x_.stride[1], x_.stride[2], block);
    T* slots = slots_.data() + block * a_.n_slots * b_.table.n_leaves * lanes<T>;
    const T* centre = centred_ ? centre_.data() : nullptr;
    if constexpr (sizeof(Value) == sizeof(T))
        loops<T>().tree_features(source, a_, b_.table, begin_, end_, centre, slots, masses_.data() + block * lanes<T>,
                                 out);
    else
        loops<T>().tree_features_of_float(source, a_, b_.table, begin_, end_, centre, slots,
                                          masses_.data() + block * lanes<T>, out);
}

template <class T, class Value>
double TreeFeatures<T, Value>::doubt(std::int64_t p) const {
    return doubt_ * masses_[static_cast<std::size_t>(p)];
}

template class DenseFeatures<float>;
template class DenseFeatures<double>;
template class TreeFeatures<float>;
template class TreeFeatures<double>;
template class TreeFeatures<double, float>;

}  // namespace pyattnorg::cpu
