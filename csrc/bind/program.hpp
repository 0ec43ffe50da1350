// A tree's program with memory of its own, checked once when it is made.
#pragma once

#include <algorithm>
#include <vector>

#include "arrays.hpp"

namespace pyattnorg::bind {

struct Program {
    std::vector<std::int32_t> leaf, slot;
    std::vector<std::uint8_t> add;
    std::vector<double> scale;
    std::int64_t n_leaves, n_slots = 0;

    Program(const Dense<std::int32_t>& leaves, const Dense<std::int32_t>& slots, const Dense<std::uint8_t>& adds,
            const Dense<double>& scales, std::int64_t n)
        : leaf(leaves.data(), leaves.data() + leaves.size()),
          slot(slots.data(), slots.data() + slots.size()),
          add(adds.data(), adds.data() + adds.size()),
          scale(scales.data(), scales.data() + scales.size()),
          n_leaves(n) {
        const std::size_t steps = leaf.size();
        require(steps > 0 && slot.size() == steps && add.size() == steps && scale.size() == steps, "unequal lengths");
        for (std::size_t s = 0; s < steps; ++s) {
            require(leaf[s] >= -1 && leaf[s] < n_leaves, "leaf out of range");
            require(slot[s] >= (add[s] ? 1 : 0) && static_cast<std::size_t>(slot[s]) < steps, "slot out of range");
            n_slots = std::max<std::int64_t>(n_slots, slot[s] + 1);
        }
    }

    TreeProgram view() const {
        return {static_cast<std::int64_t>(leaf.size()),
                n_leaves,
                n_slots,
                leaf.data(),
                slot.data(),
                add.data(),
                scale.data()};
    }
};

}  // namespace pyattnorg::bind
