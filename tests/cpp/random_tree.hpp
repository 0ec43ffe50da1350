// A random tree as every kernel wants it: programs for sums, on the CPU and on a device, and Haar rotations.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "../../csrc/kernels.hpp"
#include "../../csrc/math/haar.hpp"

namespace pyattnorg::test {

struct RandomTree {
    std::int32_t n;
    std::vector<std::int32_t> parent, size, leaf_of;  // folders, parents first; leaf_of -1 where there are several
    std::vector<std::vector<std::int32_t>> children;
    std::vector<double> scale;  // by folder
    std::vector<std::int32_t> leaf, slot, order, haar_slot, first_turn;
    std::vector<std::uint8_t> add;
    std::vector<double> step_scale, leaf_scale;
    std::vector<cuda::WalkStep> walk;
    std::vector<HaarStep> merges;
    std::int32_t n_slots = 0, emitted = 0;

    RandomTree(std::int32_t leaves, unsigned seed) : n(leaves), leaf_scale(static_cast<std::size_t>(leaves)) {
        std::vector<std::int32_t> all(static_cast<std::size_t>(n));
        std::iota(all.begin(), all.end(), 0);
        std::mt19937 random(seed);
        std::shuffle(all.begin(), all.end(), random);
        grow(-1, all, random);
        play(0, 0, false);
        haar();
    }

    TreeProgram program() const {
        return {static_cast<std::int64_t>(leaf.size()),
                n,
                n_slots,
                leaf.data(),
                slot.data(),
                add.data(),
                step_scale.data()};
    }
    cuda::Walk device() const {  // of memory that both sides see
        return {static_cast<std::int64_t>(walk.size()),
                n,
                n_slots,
                emitted,
                walk.data(),
                walk.data(),
                order.data(),
                leaf_scale.data(),
                1.0};
    }
    HaarTree haar_tree() const { return {merges.data(), haar_slot.data()}; }

    // Merges in rounds, those of a round on rows of their own.
    template <class T>
    std::vector<cuda::Turn<T>> turns(std::vector<std::int32_t>& first) const {
        std::vector<int> level(static_cast<std::size_t>(n), 0), of;
        for (const HaarStep& m : merges) {
            int& left = level[static_cast<std::size_t>(m.left)];
            int& right = level[static_cast<std::size_t>(m.right)];
            of.push_back(std::max(left, right));
            left = right = of.back() + 1;
        }
        std::vector<cuda::Turn<T>> out;
        first.assign(1, 0);
        for (int round = 0; out.size() < merges.size(); ++round) {
            for (std::size_t i = 0; i < merges.size(); ++i) {
                if (of[i] != round) continue;
                const auto r = math::merge_rotation<T>(merges[i].left_size, merges[i].right_size);
                out.push_back({merges[i].left, merges[i].right, r.major, r.minor});
            }
            first.push_back(static_cast<std::int32_t>(out.size()));
        }
        return out;
    }

private:
    void grow(std::int32_t above, const std::vector<std::int32_t>& leaves, std::mt19937& random) {
        const auto self = static_cast<std::int32_t>(parent.size());
        const bool single = leaves.size() == 1;
        parent.push_back(above);
        size.push_back(static_cast<std::int32_t>(leaves.size()));
        leaf_of.push_back(single ? leaves[0] : -1);
        children.emplace_back();
        const double weight = random() % 6 == 0 ? 0 : static_cast<double>(random() % 8 + 1);
        scale.push_back(weight / static_cast<double>(leaves.size()));
        if (above >= 0) children[static_cast<std::size_t>(above)].push_back(self);
        if (single) return;
        const std::size_t parts = std::min<std::size_t>(leaves.size(), 2 + random() % 3);
        std::vector<std::vector<std::int32_t>> split(parts);
        for (std::size_t i = 0; i < leaves.size(); ++i) split[i < parts ? i : random() % parts].push_back(leaves[i]);
        for (const auto& part : split) grow(self, part, random);
        auto& below = children[static_cast<std::size_t>(self)];
        std::stable_sort(below.begin(), below.end(), [this](std::int32_t a, std::int32_t b) {
            return size[static_cast<std::size_t>(a)] > size[static_cast<std::size_t>(b)];
        });
    }

    void play(std::int32_t folder, std::int32_t in, bool added) {
        const auto f = static_cast<std::size_t>(folder);
        for (std::size_t c = 0; c < children[f].size(); ++c) play(children[f][c], c ? in + 1 : in, c > 0);
        if (leaf_of[f] >= 0) {
            order.push_back(leaf_of[f]);
            double above = 0;
            for (std::int32_t at = folder; at >= 0; at = parent[static_cast<std::size_t>(at)])
                above += scale[static_cast<std::size_t>(at)];
            leaf_scale[static_cast<std::size_t>(leaf_of[f])] = above;
        }
        n_slots = std::max(n_slots, in + 1);
        leaf.push_back(leaf_of[f]);
        slot.push_back(in);
        add.push_back(added);
        step_scale.push_back(scale[f]);
        const auto first = static_cast<std::int32_t>(order.size()) - size[f];
        walk.push_back({leaf_of[f], in, added, first, size[f], emitted, folder, 0, scale[f]});
        emitted += scale[f] != 0;
    }

    void haar() {
        std::vector<std::int32_t> at(leaf_of);
        haar_slot.resize(static_cast<std::size_t>(n));
        std::size_t next = 1;
        for (std::size_t f = parent.size(); f-- > 0;) {
            const auto& below = children[f];
            if (below.empty()) continue;
            std::int32_t right = at[static_cast<std::size_t>(below.back())];
            std::int32_t rest = size[static_cast<std::size_t>(below.back())];
            for (std::size_t k = below.size() - 1; k-- > 0;) {
                const auto c = static_cast<std::size_t>(below[k]);
                merges.push_back({at[c], right, size[c], rest});
                haar_slot[next++] = at[c];
                rest += size[c];
            }
            at[f] = right;
        }
        haar_slot[0] = at[0];
    }
};

}  // namespace pyattnorg::test
