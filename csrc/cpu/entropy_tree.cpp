// Least-entropy agglomeration: merging folders of s and M points with means a, b makes the Haar coefficients
// sqrt(s M / (s + M)) (a - b), so it costs sqrt(s M / (s + M)) |a - b|_1 of the sum of magnitudes.
//
//     one pass over all pairs of rows: distances
//     until one folder is left:
//         pairs    every two folders that are each other's cheapest partner (ties: the lowest index)
//         merge    their means, in the row of the folder that comes first
//         measure  the new rows, a block of them at a time, against all living ones: by the maxima identity of
//                  term.hpp, or by differences where rows are few or lie close
//         look     for the nearest partners of what is new, and of those whose nearest was merged
//
// A folder goes by its first point. The cheapest pair of all is always mutual, so every pass makes progress. Distances
// between folders that were not merged stay valid: no pass looks at the matrix as a whole.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "../kernels.hpp"
#include "../math/merging.hpp"
#include "folder_loops.hpp"
#include "parallel.hpp"

namespace pyattnorg::cpu {
namespace {

constexpr std::int64_t least_groups = 4;
constexpr std::int64_t most_groups = 32;
constexpr std::int64_t most_blocks = 8;
constexpr std::int64_t sums_bytes = std::int64_t{32} << 20;
constexpr std::int64_t few_rows = 4;  // so few new folders are quicker one by one
constexpr std::int64_t sampled_rows = 16;
constexpr double far_from_zero = 0.5;  // of the magnitude of columns, in their mean; by chance it is a quarter

std::size_t at(std::int64_t i) {
    return static_cast<std::size_t>(i);
}

template <class T>
class Agglomeration {
public:
    Agglomeration(T* x, std::int64_t n, std::int64_t features, std::int64_t stride, int threads, const Poll& poll)
        : x_(x),
          n_(n),
          features_(features),
          stride_(stride),
          panels_((features + packed_columns - 1) / packed_columns),
          distances_(at(n * n)),
          size_(at(n), 1),
          row_(at(n)),
          state_(at(n), State::old),
          nearest_(at(n), -1),
          cost_(at(n), 0),
          threads_(threads),
          poll_(poll) {
        for (std::int64_t i = 0; i < n; ++i) old_.push_back(static_cast<std::int32_t>(i));
    }

    // Merges as (first point, first point) of the two folders, the lower one first, and what each costs.
    void run(T* distances, std::int32_t* merges, double* costs) {
        const Strided2<T> rows{x_, {n_, features_}, {stride_, 1}};
        pairwise(rows, static_cast<const T*>(nullptr), Term::l1, 0, distances, threads_, poll_);
        std::copy_n(distances, n_ * n_, distances_.begin());
        centre();
        look(old_, old_);
        while (old_.size() > 1) {
            const std::vector<Pair> pairs = mutual();
            for (const Pair& pair : pairs) {
                *merges++ = pair.first;
                *merges++ = pair.second;
                *costs++ = cost_[at(pair.first)];
            }
            merge(pairs);
            measure();
            look_after_merge();
        }
    }

private:
    enum class State : std::uint8_t { old, fresh, gone };

    struct Pair {
        std::int32_t first, second;
    };

    // What the maxima identity and its check need to know of a row: sums of x, of |x|, and of squares of panels' |x|.
    struct RowSums {
        double sum = 0, norm = 0, square = 0;

        void add(double of_panel, double norm_of_panel) {
            sum += of_panel;
            norm += norm_of_panel;
            square += norm_of_panel * norm_of_panel;
        }
    };
    struct PanelSums {
        double sum, norm;
    };

    T* row(std::int32_t i) const { return x_ + i * stride_; }

    // Takes a constant from every column where columns have one, the mean of some rows: it changes no distance, and
    // maxima cancel less.
    void centre() {
        std::vector<PanelSums> sums(at(n_ * panels_));
        const std::int64_t sampled = std::min(n_, sampled_rows);
        const auto move = [&](std::int64_t panel) {
            const FolderLoops<T>& loop = folder_loops<T>();
            const std::int64_t f0 = panel * packed_columns, w = std::min(packed_columns, features_ - f0);
            T mean[packed_columns] = {};
            double norms = 0;
            PanelSums of{};
            for (std::int64_t s = 0; s < sampled; ++s) {
                const T* x = row(static_cast<std::int32_t>(s * n_ / sampled)) + f0;
                loop.mean(mean, x, T(1), T(1) / static_cast<T>(sampled), w, mean);
                loop.sum(x, w, &of.sum, &of.norm);
                norms += of.norm;
            }
            loop.sum(mean, w, &of.sum, &of.norm);
            const bool far = of.norm * static_cast<double>(sampled) > far_from_zero * norms;
            for (std::int64_t i = 0; i < n_; ++i) {
                T* const x = row(static_cast<std::int32_t>(i)) + f0;
                if (far) loop.mean(x, mean, T(1), T(-1), w, x);
                PanelSums& to = sums[at(i * panels_ + panel)];
                loop.sum(x, w, &to.sum, &to.norm);
            }
        };
        parallel_for(panels_, threads_, move, poll_);
        for (std::int64_t i = 0; i < n_; ++i)
            for (std::int64_t panel = 0; panel < panels_; ++panel) {
                const PanelSums& of = sums[at(i * panels_ + panel)];
                row_[at(i)].add(of.sum, of.norm);
            }
    }

    void consider(std::int32_t i, std::int32_t j) {
        const double c = math::merge_cost(size_[at(i)], size_[at(j)], static_cast<double>(distances_[at(i * n_ + j)]));
        if (!math::cheaper(c, j, cost_[at(i)], nearest_[at(i)])) return;
        cost_[at(i)] = c;
        nearest_[at(i)] = j;
    }

    // Finds the cheapest partner of each of `ids` among `living` anew.
    void look(const std::vector<std::int32_t>& ids, const std::vector<std::int32_t>& living) {
        const auto look_at = [&](std::int64_t task) {
            const std::int32_t i = ids[at(task)];
            nearest_[at(i)] = -1;
            for (const std::int32_t j : living)
                if (j != i) consider(i, j);
        };
        parallel_for(static_cast<std::int64_t>(ids.size()), threads_, look_at, poll_);
    }

    std::vector<Pair> mutual() const {
        std::vector<Pair> pairs;
        for (const std::int32_t i : old_)
            if (const std::int32_t j = nearest_[at(i)]; i < j && nearest_[at(j)] == i) pairs.push_back({i, j});
        return pairs;
    }

    void merge(const std::vector<Pair>& pairs) {
        std::vector<PanelSums> sums(pairs.size() * at(panels_));
        const auto mean = [&](std::int64_t task) {
            const FolderLoops<T>& loop = folder_loops<T>();
            const Pair& pair = pairs[at(task / panels_)];
            const std::int64_t f0 = task % panels_ * packed_columns, w = std::min(packed_columns, features_ - f0);
            const double s = size_[at(pair.first)], M = size_[at(pair.second)];
            loop.mean(row(pair.first) + f0, row(pair.second) + f0, static_cast<T>(s / (s + M)),
                      static_cast<T>(M / (s + M)), w, row(pair.first) + f0);
            loop.sum(row(pair.first) + f0, w, &sums[at(task)].sum, &sums[at(task)].norm);
        };
        parallel_for(static_cast<std::int64_t>(sums.size()), threads_, mean, poll_);
        fresh_.clear();
        std::size_t panel = 0;
        for (const Pair& pair : pairs) {
            row_[at(pair.first)] = {};
            for (const std::size_t end = panel + at(panels_); panel < end; ++panel)
                row_[at(pair.first)].add(sums[panel].sum, sums[panel].norm);
            size_[at(pair.first)] += size_[at(pair.second)];
            state_[at(pair.first)] = State::fresh;
            state_[at(pair.second)] = State::gone;
            fresh_.push_back(pair.first);
        }
        std::erase_if(old_, [this](std::int32_t i) { return state_[at(i)] != State::old; });
    }

    // Distances of fresh folders to all others. Features are summed in groups, so that threads have work of their own.
    void measure() {
        std::vector<std::int32_t> others = old_;  // a block meets the old ones, and the fresh ones up to itself
        others.insert(others.end(), fresh_.begin(), fresh_.end());
        const auto old = static_cast<std::int64_t>(old_.size()), fresh = static_cast<std::int64_t>(fresh_.size());
        const auto all = static_cast<std::int64_t>(others.size());
        const std::int64_t width = (all + packed_rows - 1) / packed_rows * packed_rows;
        const std::int64_t block_bytes = width * lanes<T> * static_cast<std::int64_t>(sizeof(double));
        const std::int64_t groups = std::min(panels_, std::clamp(sums_bytes / block_bytes, least_groups, most_groups));
        const std::int64_t fits = sums_bytes / (block_bytes * std::max(groups, std::int64_t{1}));
        const std::int64_t blocks = std::clamp(fits, std::int64_t{1}, most_blocks);
        for (std::int64_t first = 0; first < fresh; first += blocks * lanes<T>) {
            const std::int64_t last = std::min(fresh, first + blocks * lanes<T>);
            const std::int64_t n_blocks = (last - first + lanes<T> - 1) / lanes<T>;
            sums_.assign(at(groups * n_blocks * width * lanes<T>), 0.0);
            const auto sum = [&](std::int64_t group) {
                std::vector<T> room(at(n_blocks * packed_columns * lanes<T> + packed_rows * packed_stride<T>));
                for (std::int64_t panel = group * panels_ / groups; panel < (group + 1) * panels_ / groups; ++panel)
                    add(panel * packed_columns, first, last, others, old, width, room.data(),
                        sums_.data() + group * n_blocks * width * lanes<T>);
            };
            parallel_for(groups, threads_, sum, poll_);
            const auto keep = [&](std::int64_t other) {
                const std::int32_t j = others[at(other)];
                for (std::int64_t p = first; p < last; ++p) {
                    if (other >= old + p) continue;
                    const std::int64_t b = (p - first) / lanes<T>, lane = (p - first) % lanes<T>;
                    double total = 0;
                    for (std::int64_t group = 0; group < groups; ++group)
                        total += sums_[at(((group * n_blocks + b) * width + other) * lanes<T> + lane)];
                    const std::int32_t i = fresh_[at(p)];
                    if (last - first > few_rows) total = from_maxima(total, i, j);
                    distances_[at(i * n_ + j)] = distances_[at(j * n_ + i)] = static_cast<T>(total);
                }
            };
            parallel_for(std::min(all, old + last), threads_, keep, poll_);
        }
    }

    // The distance of rows i and j from the sum of their maxima; from differences where that cancels.
    double from_maxima(double sum_of_maxima, std::int32_t i, std::int32_t j) const {
        const RowSums &a = row_[at(i)], &b = row_[at(j)];
        const double distance = math::l1_from_maxima(sum_of_maxima, a.sum, b.sum);
        if (math::sure<T>(distance, a.norm + b.norm, a.square + b.square)) return distance;
        return folder_loops<T>().distance(row(i), row(j), features_);
    }

    // Adds the features from f0 on of fresh folders first..last against the others, each block up to itself: maxima, or
    // differences where the folders are few.
    void add(std::int64_t f0, std::int64_t first, std::int64_t last, const std::vector<std::int32_t>& others,
             std::int64_t old, std::int64_t width, T* room, double* sums) const {
        const FolderLoops<T>& loop = folder_loops<T>();
        const std::int64_t w = std::min(packed_columns, features_ - f0);
        if (last - first <= few_rows) {
            for (std::int64_t o = 0; o < old + last; ++o)
                for (std::int64_t p = first; p < last; ++p)
                    sums[o * lanes<T> + p - first] +=
                        loop.distance(row(fresh_[at(p)]) + f0, row(others[at(o)]) + f0, w);
            return;
        }
        const std::int64_t n_blocks = (last - first + lanes<T> - 1) / lanes<T>;
        for (std::int64_t b = 0; b < n_blocks; ++b) {
            const T* rows[lanes<T>];
            for (std::int64_t l = 0; l < lanes<T>; ++l)
                rows[l] = row(fresh_[at(std::min(first + b * lanes<T> + l, last - 1))]) + f0;
            loops<T>().gather(rows, w, nullptr, room + b * packed_columns * lanes<T>);
        }
        T* packed = room + n_blocks * packed_columns * lanes<T>;
        for (std::int64_t o = 0; o < old + last; o += packed_rows) {
            const std::int64_t count = std::min(packed_rows, old + last - o);
            for (std::int64_t r = 0; r < count; ++r)
                std::copy_n(row(others[at(o + r)]) + f0, w, packed + r * packed_stride<T>);
            for (std::int64_t b = 0; b < n_blocks; ++b) {
                const std::int64_t end = std::min(count, old + std::min(last, first + (b + 1) * lanes<T>) - o);
                for (std::int64_t r = 0; r < end; r += loop.rows)  // the last few may be rows that nobody reads
                    loop.against(room + b * packed_columns * lanes<T>, packed + r * packed_stride<T>, w,
                                 sums + (b * width + o + r) * lanes<T>);
            }
        }
    }

    void look_after_merge() {
        std::vector<std::int32_t> anew = fresh_, known;
        for (const std::int32_t i : old_) (state_[at(nearest_[at(i)])] == State::old ? known : anew).push_back(i);
        const auto meet = [&](std::int64_t task) {
            for (const std::int32_t j : fresh_) consider(known[at(task)], j);
        };
        parallel_for(static_cast<std::int64_t>(known.size()), threads_, meet, poll_);
        for (const std::int32_t i : fresh_) state_[at(i)] = State::old;
        std::vector<std::int32_t> living(old_.size() + fresh_.size());
        std::merge(old_.begin(), old_.end(), fresh_.begin(), fresh_.end(), living.begin());
        old_ = std::move(living);
        look(anew, old_);
    }

    T* x_;
    std::int64_t n_, features_, stride_, panels_;
    std::vector<T> distances_;               // [n][n], by first points
    std::vector<std::int32_t> old_, fresh_;  // living folders, ascending
    std::vector<double> size_;               // [n] by first point, as all below
    std::vector<RowSums> row_;
    std::vector<State> state_;
    std::vector<std::int32_t> nearest_;
    std::vector<double> cost_;
    std::vector<double> sums_;  // [groups][blocks][others][lanes]
    int threads_;
    const Poll& poll_;
};

}  // namespace

template <class T>
void entropy_tree(T* x, std::int64_t n, std::int64_t features, std::int64_t stride, T* distances, std::int32_t* merges,
                  double* costs, int threads, const Poll& poll) {
    Agglomeration<T>(x, n, features, stride, threads, poll).run(distances, merges, costs);
}

template void entropy_tree(float*, std::int64_t, std::int64_t, std::int64_t, float*, std::int32_t*, double*, int,
                           const Poll&);
template void entropy_tree(double*, std::int64_t, std::int64_t, std::int64_t, double*, std::int32_t*, double*, int,
                           const Poll&);

}  // namespace pyattnorg::cpu
