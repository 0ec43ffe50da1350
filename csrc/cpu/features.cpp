#include "features.hpp"

#include <algorithm>

#include "parallel.hpp"

namespace pyattnorg::cpu {
namespace {

// Any constant would do as the centre; the mean of a few points spread over the axis is good enough.
constexpr std::int64_t sampled_points = 16;
constexpr std::int64_t cells_per_task = 4096;

// centre[a * n_b + b] = mean of x[p, a, b] over the sampled points p.
template <class T>
void sample_mean(const Strided3<T>& x, std::vector<T>& centre, int threads) {
    const std::int64_t n = x.shape[0], n_b = x.shape[2], cells = x.shape[1] * n_b;
    const std::int64_t sampled = std::min(n, sampled_points);
    centre.resize(static_cast<std::size_t>(cells));
    parallel_for((cells + cells_per_task - 1) / cells_per_task, threads, [&](std::int64_t task) {
        const std::int64_t end = std::min(cells, (task + 1) * cells_per_task);
        for (std::int64_t cell = task * cells_per_task; cell < end; ++cell) {
            const T* at = x.data + cell / n_b * x.stride[1] + cell % n_b * x.stride[2];
            double sum = 0;
            for (std::int64_t s = 0; s < sampled; ++s) sum += static_cast<double>(at[s * n / sampled * x.stride[0]]);
            centre[static_cast<std::size_t>(cell)] = static_cast<T>(sum / static_cast<double>(sampled));
        }
    });
}

// Lanes beyond the last point repeat it; what is computed for them is never read.
template <class T>
BlockSource<T> block_source(const T* data, std::int64_t points, std::int64_t point_stride, std::int64_t stride_a,
                            std::int64_t stride_b, std::int64_t block) {
    BlockSource<T> source{{}, stride_a, stride_b};
    for (std::int64_t l = 0; l < lanes<T>; ++l)
        source.row[l] = data + std::min(block * lanes<T> + l, points - 1) * point_stride;
    return source;
}

template <class T>
Program<T> with_scales(const TreeProgram& p, std::vector<T>& scales) {
    scales.resize(static_cast<std::size_t>(p.n_steps));
    std::transform(p.scale, p.scale + p.n_steps, scales.begin(), [](double s) { return static_cast<T>(s); });
    return {p.n_steps, p.n_leaves, p.n_slots, p.leaf, p.slot, p.add, scales.data()};
}

}    // namespace

template <class T>
void DenseFeatures<T>::restart(bool centred, int threads) {
    centred_ = centred;
    begin_ = end_ = 0;
    if (centred)
        sample_mean<T>({x_.data, {x_.shape[0], 1, x_.shape[1]}, {x_.stride[0], 0, x_.stride[1]}}, centre_, threads);
}

template <class T>
std::int64_t DenseFeatures<T>::advance(std::int64_t room) {
    begin_ = end_;
    end_ = std::min(x_.shape[1], begin_ + room);
    return end_ - begin_;
}

template <class T>
void DenseFeatures<T>::make(std::int64_t block, T* out) {
    const auto source = block_source(x_.data, x_.shape[0], x_.stride[0], std::int64_t{0}, x_.stride[1], block);
    loops<T>().dense_features(source, begin_, end_, centred_ ? centre_.data() : nullptr, centred_ ? weights_ : nullptr,
                              out);
}

template <class T>
TreeFeatures<T>::TreeFeatures(const Strided3<T>& x, const TreeProgram& a, const TreeProgram& b)
    : x_(x), a_(with_scales(a, scale_a_)), b_(with_scales(b, scale_b_)) {
    for (const T s : scale_b_) emitted_by_b_ += s != T(0);
}

template <class T>
void TreeFeatures<T>::restart(bool centred, int threads) {
    centred_ = centred;
    begin_ = end_ = 0;
    const std::int64_t blocks = (x_.shape[0] + lanes<T> - 1) / lanes<T>;
    slots_.resize(static_cast<std::size_t>(blocks * a_.n_slots * b_.n_leaves * lanes<T>));
    if (centred) sample_mean(x_, centre_, threads);
}

template <class T>
std::int64_t TreeFeatures<T>::advance(std::int64_t room) {
    begin_ = end_;
    std::int64_t features = 0;
    for (; end_ < a_.n_steps; ++end_) {
        const std::int64_t more = a_.scale[end_] != T(0) ? emitted_by_b_ : 0;
        if (features + more > room) break;
        features += more;
    }
    return features;
}

template <class T>
void TreeFeatures<T>::make(std::int64_t block, T* out) {
    const auto source = block_source(x_.data, x_.shape[0], x_.stride[0], x_.stride[1], x_.stride[2], block);
    std::vector<T> inner(static_cast<std::size_t>(b_.n_slots * lanes<T>));
    T* slots = slots_.data() + block * a_.n_slots * b_.n_leaves * lanes<T>;
    loops<T>().tree_features(source, a_, b_, begin_, end_, centred_ ? centre_.data() : nullptr, slots, inner.data(),
                             out);
}

template class DenseFeatures<float>;
template class DenseFeatures<double>;
template class TreeFeatures<float>;
template class TreeFeatures<double>;

}    // namespace pyattnorg::cpu
