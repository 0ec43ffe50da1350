// Pairwise sums over features: runs of features are made for all blocks of points, then tiles of pairs add them up.
//
//     for every run of features (a few MB):
//         make   blocks in parallel: features [features][lanes], their sums and norms
//         add    units in parallel: one block against a stretch of points, tile by tile, panel by panel
//     pairs that lie too close for the identity of Tile::maxima are summed again from their differences
//
// A pair's sum runs over features in order, in T over a panel, in double over a run, in T over runs; how pairs are
// split into units and tiles changes no bit.
#include <algorithm>
#include <atomic>
#include <vector>

#include "../math/term.hpp"
#include "aligned.hpp"
#include "features.hpp"
#include "mirror.hpp"
#include "parallel.hpp"

namespace pyattnorg::cpu {
namespace {

constexpr std::int64_t run_bytes = std::int64_t{4} << 20;
constexpr std::int64_t most_room = 8192;
constexpr std::int64_t most_columns = 256;

// Which pairs are wanted: rows of `out` are columns first_column..n (broadcast by tiles), its columns are points
// 0..width (lanes of blocks), up to the diagonal where symmetric.
struct Pairs {
    std::int64_t width, first_column, n;
    bool symmetric;

    bool wanted(std::int64_t i, std::int64_t j) const { return i < width && (!symmetric || i <= j); }
    std::int64_t at(std::int64_t i, std::int64_t j) const { return (j - first_column) * width + i; }
};

// A block against columns[0..count), or begin, begin + 1, ... where there is no list. Only lanes in `mask` count.
struct Unit {
    std::int64_t block, begin, count;
    const std::int32_t* columns = nullptr;
    const std::uint16_t* mask = nullptr;

    std::int64_t column(std::int64_t c) const { return columns ? columns[c] : begin + c; }
};

// Sums in T, into an array of Out.
template <class T, class Out>
class Summation {
public:
    Summation(Features<T>& features, const Pairs& pairs, Out* out, int threads, const Poll& poll)
        : features_(features),
          pairs_(pairs),
          out_(out),
          threads_(threads),
          poll_(poll),
          n_(features.points()),
          blocks_((n_ + lanes<T> - 1) / lanes<T>) {
        const std::int64_t fits = run_bytes / static_cast<std::int64_t>(sizeof(T)) / (blocks_ * lanes<T>);
        room_ = std::clamp(fits / panel_features * panel_features, panel_features, most_room);
        room_ = std::max(room_, features.least_room());
        panels_ = (room_ + panel_features - 1) / panel_features;
        block_stride_ = (room_ + 1) * lanes<T>;  // never a power of two: blocks must not share cache sets
        values_ = aligned<T>(blocks_ * block_stride_);
        sums_ = aligned<double>(blocks_ * panels_ * lanes<T>);
        norms_.assign(static_cast<std::size_t>(2 * blocks_ * lanes<T>), 0.0);
    }

    void all(Tile kind, bool masked = false) {
        if (masked) masks_ = aligned<T>(blocks_ * block_stride_);
        pass(kind, units());
    }

    // After all(Tile::maxima): marks pairs whose distance is small against their norms with -1; whether there are any.
    bool mark_close_pairs() const {
        std::atomic<bool> any{false};
        std::vector<double> norms, squares, doubts;
        for (std::int64_t p = 0; p < n_; ++p) {
            const double* of_block = norms_.data() + p / lanes<T> * 2 * lanes<T> + p % lanes<T>;
            norms.push_back(of_block[0]);
            squares.push_back(of_block[lanes<T>]);
            doubts.push_back(features_.doubt(p));
        }
        const auto mark = [&](std::int64_t row) {
            const std::int64_t j = pairs_.first_column + row, end = pairs_.symmetric ? j : pairs_.width;
            const auto other = static_cast<std::size_t>(j);
            const double norm = norms[other], square = squares[other], doubt = doubts[other];
            Out* distances = out_ + pairs_.at(0, j);
            const auto close = [&](std::int64_t i) {
                const auto one = static_cast<std::size_t>(i);
                const auto distance = static_cast<double>(distances[i]);
                return !(math::sure<T>(distance, norms[one] + norm, squares[one] + square) &
                         (distance >= doubts[one] + doubt));
            };
            bool found = false;
            for (std::int64_t i = 0; i < end; ++i) found |= close(i);
            if (!found) return;
            for (std::int64_t i = 0; i < end; ++i)
                if (close(i)) distances[i] = Out(-1);
            any = true;
        };
        parallel_for(n_ - pairs_.first_column, threads_, mark, poll_);
        return any;
    }

    // Points of marked pairs, ascending.
    std::vector<std::int64_t> marked_points() const {
        std::vector<std::uint8_t> marked(static_cast<std::size_t>(n_), 0);
        for (std::int64_t j = pairs_.first_column; j < n_; ++j)
            for (std::int64_t i = 0; i < (pairs_.symmetric ? j : pairs_.width); ++i)
                if (out_[pairs_.at(i, j)] < Out(0))
                    marked[static_cast<std::size_t>(i)] = marked[static_cast<std::size_t>(j)] = 1;
        std::vector<std::int64_t> points;
        for (std::int64_t p = 0; p < n_; ++p)
            if (marked[static_cast<std::size_t>(p)]) points.push_back(p);
        return points;
    }

    // Sums the marked pairs of the features' points anew, from differences.
    void again() {
        std::vector<std::int32_t> columns;
        std::vector<std::uint16_t> masks;
        std::vector<Unit> todo;
        for (std::int64_t block = 0; block < blocks_; ++block) {
            const auto first = static_cast<std::int64_t>(columns.size());
            for (std::int64_t c = pairs_.symmetric ? block * lanes<T> : 0; c < n_; ++c) {
                const std::int64_t j = features_.point(c);
                unsigned mask = 0;
                for (std::int64_t l = 0; l < std::min(lanes<T>, n_ - block * lanes<T>); ++l) {
                    const std::int64_t i = features_.point(block * lanes<T> + l);
                    if (j < pairs_.first_column || !pairs_.wanted(i, j) || out_[pairs_.at(i, j)] >= Out(0)) continue;
                    out_[pairs_.at(i, j)] = Out(0);
                    mask |= 1u << l;
                }
                if (!mask) continue;
                columns.push_back(static_cast<std::int32_t>(c));
                masks.push_back(static_cast<std::uint16_t>(mask));
            }
            const auto last = static_cast<std::int64_t>(columns.size());
            constexpr std::int64_t together = 64;
            for (std::int64_t c = first; c < last; c += together)
                todo.push_back({block, c, std::min(together, last - c)});
        }
        for (Unit& unit : todo) {
            unit.columns = columns.data() + unit.begin;
            unit.mask = masks.data() + unit.begin;
        }
        pass(Tile::differences, todo);
    }

private:
    std::int64_t first_column(std::int64_t block) const {
        return pairs_.symmetric ? block * lanes<T> : pairs_.first_column;
    }

    // Long stretches reuse a block best; short ones keep all threads busy to the end.
    std::vector<Unit> units() {
        std::int64_t total = 0;
        for (std::int64_t block = 0; block * lanes<T> < pairs_.width; ++block) total += n_ - first_column(block);
        const std::int64_t rows = loops<T>().rows;
        unit_columns_ = std::clamp(total / (8 * threads_) / rows * rows, 2 * rows, most_columns / rows * rows);
        std::vector<Unit> all;
        for (std::int64_t block = 0; block * lanes<T> < pairs_.width; ++block)
            for (std::int64_t j = first_column(block); j < n_; j += unit_columns_)
                all.push_back({block, j, std::min(unit_columns_, n_ - j)});
        return all;
    }

    void pass(Tile kind, const std::vector<Unit>& todo) {
        features_.restart(kind == Tile::maxima, threads_);
        while (const std::int64_t n_features = features_.advance(room_)) {
            const auto make = [&](std::int64_t block) {
                T* values = values_.get() + block * block_stride_;
                features_.make(block, values);
                if (masks_) loops<T>().square_and_mask(values, n_features, masks_.get() + block * block_stride_);
                if (kind == Tile::maxima)
                    loops<T>().row_sums(values, n_features, sums_.get() + block * panels_ * lanes<T>,
                                        norms_.data() + 2 * block * lanes<T>);
            };
            const auto sum = [&](std::int64_t u) { add(kind, todo[static_cast<std::size_t>(u)], n_features); };
            parallel_for(blocks_, threads_, make, poll_);
            parallel_for(static_cast<std::int64_t>(todo.size()), threads_, sum, poll_);
        }
    }

    void add(Tile kind, const Unit& unit, std::int64_t n_features) {
        const Loops<T>& loop = loops<T>();
        alignas(64) double sums[most_columns * lanes<T>];
        std::fill_n(sums, unit.count * lanes<T>, 0.0);
        if (!unit.mask)  // what the sums are added to in the end lies a line here and a line there
            for (std::int64_t c = 0; c < unit.count; ++c)
                __builtin_prefetch(out_ + pairs_.at(unit.block * lanes<T>, unit.column(c)), 1, 2);
        for (std::int64_t f0 = 0, panel = 0; f0 < n_features; f0 += panel_features, ++panel) {
            const std::int64_t n = std::min(panel_features, n_features - f0);
            const T* left = values_.get() + unit.block * block_stride_ + f0 * lanes<T>;
            const double* left_sums = sums_.get() + (unit.block * panels_ + panel) * lanes<T>;
            const T* weights = features_.weights() ? features_.weights() + f0 : nullptr;
            for (std::int64_t c = 0; c < unit.count; c += loop.rows) {
                const int rows = static_cast<int>(std::min<std::int64_t>(loop.rows, unit.count - c));
                const T* right[most_rows];
                double right_sums[most_rows];
                for (int r = 0; r < rows; ++r) {
                    const std::int64_t j = unit.column(c + r), block = j / lanes<T>, lane = j % lanes<T>;
                    right[r] = (masks_ ? masks_ : values_).get() + block * block_stride_ + f0 * lanes<T> + lane;
                    right_sums[r] = kind == Tile::maxima ? sums_.get()[(block * panels_ + panel) * lanes<T> + lane] : 0;
                }
                loop.tile(kind, left, right, rows, n, weights, left_sums, right_sums, sums + c * lanes<T>);
            }
        }
        const std::int64_t first = unit.block * lanes<T>, last = first + lanes<T> - 1;
        for (std::int64_t c = 0; c < unit.count; ++c) {
            const std::int64_t j = unit.column(c);
            const double* sum = sums + c * lanes<T>;
            Out* out = unit.mask ? nullptr : out_ + pairs_.at(first, j);  // marked pairs find their own place
            if (!unit.mask && pairs_.wanted(last, j)) {
                for (std::int64_t l = 0; l < lanes<T>; ++l) out[l] += static_cast<Out>(sum[l]);
                continue;
            }
            for (std::int64_t l = 0; l < lanes<T>; ++l) {
                if (unit.mask && (unit.mask[c] >> l & 1))
                    out_[pairs_.at(features_.point(first + l), features_.point(j))] += static_cast<Out>(sum[l]);
                if (!unit.mask && pairs_.wanted(first + l, j)) out[l] += static_cast<Out>(sum[l]);
            }
        }
    }

    Features<T>& features_;
    Pairs pairs_;
    Out* out_;
    int threads_;
    const Poll& poll_;
    std::int64_t n_, blocks_, room_ = 0, panels_ = 0, block_stride_ = 0, unit_columns_ = most_columns;
    Aligned<T> masks_;           // [blocks][room + 1][lanes], what the tiles broadcast where it is not the values
    Aligned<T> values_;          // [blocks][room + 1][lanes]
    Aligned<double> sums_;       // [blocks][panels][lanes]
    std::vector<double> norms_;  // [blocks][2][lanes]
};

// `exact` makes the features that close pairs are summed from.
template <class T, class Exact>
void sum_l1(Features<T>& features, Features<Exact>& exact, const Pairs& pairs, T* out, int threads, const Poll& poll) {
    Summation<T, T> sum(features, pairs, out, threads, poll);
    sum.all(Tile::maxima);
    if (pairs.symmetric)
        for (std::int64_t i = 0; i < pairs.n; ++i) out[pairs.at(i, i)] = T(0);
    if (sum.mark_close_pairs()) {
        exact.choose(sum.marked_points());
        Summation<Exact, T>(exact, pairs, out, threads, poll).again();
    }
    if (pairs.symmetric) mirror(out, pairs.n, Triangle::below, threads, poll);
}

}  // namespace

template <class T>
void pairwise(const Strided2<T>& x, const T* weights, Term term, std::int64_t split, T* out, int threads,
              const Poll& poll) {
    DenseFeatures<T> features(x, weights);
    const std::int64_t n = x.shape[0];
    const Pairs pairs{split ? split : n, split, n, split == 0 && term != Term::masked};
    std::fill_n(out, pairs.width * (n - split), T(0));
    if (term == Term::l1) return sum_l1(features, features, pairs, out, threads, poll);
    Summation<T, T> sum(features, pairs, out, threads, poll);
    sum.all(term == Term::squares ? Tile::squares : Tile::products, term == Term::masked);
    if (pairs.symmetric) mirror(out, pairs.n, Triangle::below, threads, poll);
}

// Folder averages of points that lie close differ by less than floats resolve, so close pairs are summed in double.
template <class T>
void tree_emd(const Strided3<T>& x, const TreeProgram& a, const TreeProgram& b, T* out, int threads, const Poll& poll) {
    TreeFeatures<T> features(x, a, b);
    TreeFeatures<double, T> exact(x, a, b);
    const std::int64_t n = x.shape[0];
    std::fill_n(out, n * n, T(0));
    sum_l1(features, exact, Pairs{n, 0, n, true}, out, threads, poll);
}

template void pairwise(const Strided2<float>&, const float*, Term, std::int64_t, float*, int, const Poll&);
template void pairwise(const Strided2<double>&, const double*, Term, std::int64_t, double*, int, const Poll&);
template void tree_emd(const Strided3<float>&, const TreeProgram&, const TreeProgram&, float*, int, const Poll&);
template void tree_emd(const Strided3<double>&, const TreeProgram&, const TreeProgram&, double*, int, const Poll&);

}  // namespace pyattnorg::cpu
