// Floating-point numbers as integers that have the same order.
#pragma once

#include <cstdint>
#include <cstring>

#include "term.hpp"

namespace pyattnorg::math {

PYATTNORG_HD inline std::uint64_t ordered_bits(float x) {
    std::uint32_t bits;
    x += 0.0f;  // -0 is 0
    memcpy(&bits, &x, sizeof(bits));
    return bits >> 31 ? static_cast<std::uint32_t>(~bits) : bits | 0x80000000u;
}
PYATTNORG_HD inline std::uint64_t ordered_bits(double x) {
    std::uint64_t bits;
    x += 0.0;
    memcpy(&bits, &x, sizeof(bits));
    return bits >> 63 ? ~bits : bits | std::uint64_t{1} << 63;
}

template <class T>
PYATTNORG_HD inline T of_ordered_bits(std::uint64_t ordered) {
    T x;
    if constexpr (sizeof(T) == sizeof(float)) {
        const auto narrow = static_cast<std::uint32_t>(ordered);
        const std::uint32_t bits = narrow >> 31 ? narrow & 0x7fffffffu : ~narrow;
        memcpy(&x, &bits, sizeof(bits));
    } else {
        const std::uint64_t bits = ordered >> 63 ? ordered & ~(std::uint64_t{1} << 63) : ~ordered;
        memcpy(&x, &bits, sizeof(bits));
    }
    return x;
}

}  // namespace pyattnorg::math
