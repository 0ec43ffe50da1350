// Nearest-neighbour interchange on a binary tree: which folders there are, what is to be measured around them, and
// which exchanges are made. Who measures, the processor (improve_tree.cpp) or a GPU, is not asked here.
//
// A folder x = (a, b) beside y below p may become (a, y) beside b, or (b, y) beside a; the points below p stay the
// same, so nothing else changes. Since mean(a, y) - b = |p| / (|p| - |b|) (mean(p) - b), five distances tell what every
// exchange of a folder gains, feature by feature. Exchanges that gain are made, the best first, as long as they do not
// share a folder: gains add up exactly, so the cost falls with every sweep.
#pragma once

#include <cstdint>
#include <vector>

namespace pyattnorg::cpu {

// Around a folder x = (a, b): what is measured.
struct Around {
    double cost;     // sum of |a - b|
    double gain[2];  // sums of the gains of both exchanges (math/merging.hpp)
};

// Nodes 0..n are leaves, n..2n - 1 folders of two.
class Interchange {
public:
    struct Children {
        std::int32_t a, b;
    };

    // Merges [n - 1, 2] name folders by their first points, children first; std::invalid_argument for what is no tree.
    Interchange(const std::int32_t* merges, std::int64_t n);

    std::int64_t points() const { return n_; }
    const std::vector<std::int32_t>& order() const { return order_; }  // folders, children first
    const std::vector<std::int32_t>& dirty() const { return dirty_; }  // those of them that are to be measured
    const Children& children(std::int32_t v) const { return child_[at(v - n_)]; }
    std::int32_t parent(std::int32_t v) const { return parent_[at(v)]; }  // -1: none
    std::int32_t sibling(std::int32_t v) const;
    double size(std::int32_t v) const { return size_[at(v)]; }

    void learn(const std::vector<Around>& found);  // of dirty()

    // Whether any exchange gains more than `least_share` of the cost and more than `least_gain`; makes those that do.
    bool exchange(double least_share, double least_gain);

    void give(std::int32_t* merges, double* costs) const;

private:
    struct Exchange {
        double gain;
        std::int32_t x;
        bool keeps_a;
    };

    static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
    Children& children(std::int32_t v) { return child_[at(v - n_)]; }
    double own_cost(std::int32_t v) const;
    void find_order();

    std::int64_t n_;
    std::vector<double> size_;          // [2n - 1]
    std::vector<Children> child_;       // [n - 1]
    std::vector<std::int32_t> parent_;  // [2n - 1]
    std::vector<std::int32_t> order_, dirty_;
    std::vector<Around> around_;  // [n - 1]
};

}  // namespace pyattnorg::cpu
