// Numbers of given rank without sorting: one pass counts the leading bits, one gathers what shares those of the rank.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

namespace pyattnorg::cpu {

template <class T>
class Selection {
public:
    // `runs(visit)` calls visit(begin, end) for all numbers, stretch by stretch, the same ones every time.
    template <class Runs>
    explicit Selection(const Runs& runs) : counts_(std::size_t{1} << 16, 0) {
        runs([this](const T* begin, const T* end) {
            for (const T* x = begin; x < end; ++x) ++counts_[leading(*x)];
        });
    }

    // The numbers of `rank`, from 0 by size, and of the rank after it, or twice the last.
    template <class Runs>
    std::pair<T, T> ranked(const Runs& runs, std::int64_t rank) const {
        std::size_t first = 0;
        while (rank >= counts_[first]) rank -= counts_[first++];
        std::size_t last = first;
        std::int64_t among = counts_[first];
        while (rank + 1 >= among && last + 1 < counts_.size()) among += counts_[++last];
        std::vector<T> same(static_cast<std::size_t>(among) +
                            1);  // one more, for numbers that are written but not kept
        std::size_t kept = 0;
        runs([&](const T* begin, const T* end) {
            for (const T* x = begin; x < end; ++x) {
                const std::size_t bin = leading(*x);
                same[kept] = *x;
                kept += bin >= first && bin <= last;
            }
        });
        const auto at = same.begin() + rank, end = same.begin() + among;
        std::nth_element(same.begin(), at, end);
        return {*at, at + 1 < end ? *std::min_element(at + 1, end) : *at};
    }

private:
    // The upper 16 bits as an integer that orders like the numbers.
    static std::size_t leading(T x) {
        using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
        constexpr Bits sign = Bits{1} << (8 * sizeof(T) - 1);
        const auto bits = std::bit_cast<Bits>(x + T(0));  // -0 is 0
        return static_cast<std::size_t>((bits & sign ? ~bits : bits | sign) >> (8 * sizeof(T) - 16));
    }

    std::vector<std::int64_t> counts_;
};

}  // namespace pyattnorg::cpu
