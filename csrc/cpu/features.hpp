// Where the features of points come from, a run at a time; they are never stored whole.
#pragma once

#include <utility>
#include <vector>

#include "../kernels.hpp"
#include "isa.hpp"

namespace pyattnorg::cpu {

template <class T>
class Features {
public:
    virtual ~Features() = default;

    // Only some of the points, ascending; from the next restart on.
    void choose(std::vector<std::int64_t> points) { chosen_ = std::move(points); }
    std::int64_t points() const { return chosen_.empty() ? all_points() : static_cast<std::int64_t>(chosen_.size()); }
    std::int64_t point(std::int64_t p) const { return chosen_.empty() ? p : chosen_[static_cast<std::size_t>(p)]; }

    // The longest run that may have to be made at once.
    virtual std::int64_t least_room() const = 0;
    // To the start again. Centring takes a constant from every feature: it changes no distance, and keeps the sums of
    // Tile::maxima from cancelling.
    virtual void restart(bool centred, int threads) = 0;
    // Goes on to the next run of at most `room` features; their number, 0 at the end.
    virtual std::int64_t advance(std::int64_t room) = 0;
    // Features of the run for one block, [features][lanes]. Every block is made once a run, by any thread.
    virtual void make(std::int64_t block, T* out) = 0;
    // After a centred pass: distances below doubt(p) + doubt(q) may have lost digits while features were made.
    virtual double doubt(std::int64_t) const { return 0; }
    // Weights of the run's features where `make` leaves them out (uncentred dense features), else null.
    virtual const T* weights() const { return nullptr; }

private:
    virtual std::int64_t all_points() const = 0;

    std::vector<std::int64_t> chosen_;
};

// The features are the entries of x, times `weights` [features] or 1.
template <class T>
class DenseFeatures final : public Features<T> {
public:
    DenseFeatures(const Strided2<T>& x, const T* weights) : x_(x), weights_(weights) {}
    std::int64_t least_room() const override { return 1; }
    void restart(bool centred, int threads) override;
    std::int64_t advance(std::int64_t room) override;
    void make(std::int64_t block, T* out) override;
    const T* weights() const override { return centred_ || !weights_ ? nullptr : weights_ + begin_; }

private:
    std::int64_t all_points() const override { return x_.shape[0]; }

    Strided2<T> x_;
    const T* weights_;
    std::vector<T> centre_;
    bool centred_ = false;
    std::int64_t begin_ = 0, end_ = 0;
};

// The folders of a tree's program, children side by side.
template <class T>
struct Folders {
    explicit Folders(const TreeProgram& program);

    std::vector<std::int32_t> inner, first, leaf;
    std::vector<T> scale, leaf_scale;
    FolderTable<T> table;
};

// The features are the weighted averages of x over the folders of a times the folders of b (method 2.6).
template <class T, class Value = T>
class TreeFeatures final : public Features<T> {
public:
    TreeFeatures(const Strided3<Value>& x, const TreeProgram& a, const TreeProgram& b);
    std::int64_t least_room() const override { return b_.table.n_folders; }
    void restart(bool centred, int threads) override;
    std::int64_t advance(std::int64_t room) override;
    void make(std::int64_t block, T* out) override;
    double doubt(std::int64_t p) const override;

private:
    std::int64_t all_points() const override { return x_.shape[0]; }

    Strided3<Value> x_;
    std::vector<T> scale_a_, leaf_scale_a_;
    Program<T> a_;
    Folders<T> b_;
    std::vector<T> centre_;
    std::vector<double> masses_;  // [blocks][lanes]
    double doubt_ = 0;            // per mass
    std::vector<T> slots_;        // [blocks][a.n_slots][b.n_leaves][lanes]
    bool centred_ = false;
    std::int64_t begin_ = 0, end_ = 0;
};

}  // namespace pyattnorg::cpu
