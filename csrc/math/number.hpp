// Numbers that arrays on a device hold, and what they are computed in: double for double, float for all others.
#pragma once

#include <cstdint>
#include <cstring>
#ifdef __CUDACC__
#include <cuda_fp16.h>
#endif

#include "term.hpp"

namespace pyattnorg::math {

struct float16 {
    std::uint16_t bits;
};
struct bfloat16 {
    std::uint16_t bits;
};

template <class In>
struct Computing {
    using type = float;
};
template <>
struct Computing<double> {
    using type = double;
};

PYATTNORG_HD inline float float_of_bits(std::uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

PYATTNORG_HD inline float number(float x) {
    return x;
}
PYATTNORG_HD inline double number(double x) {
    return x;
}
PYATTNORG_HD inline float number(bfloat16 x) {
    return float_of_bits(std::uint32_t{x.bits} << 16);
}
PYATTNORG_HD inline float number(float16 x) {
#ifdef __CUDA_ARCH__
    return __half2float(__ushort_as_half(x.bits));
#else
    const std::uint32_t sign = std::uint32_t{x.bits & 0x8000u} << 16, exponent = x.bits >> 10 & 31u,
                        rest = x.bits & 1023u;
    if (exponent == 31) return float_of_bits(sign | 0x7f800000u | rest << 13);
    if (exponent == 0) {  // subnormal: rest / 2^24, exact
        const float value = static_cast<float>(rest) * 5.9604644775390625e-8f;
        return sign ? -value : value;
    }
    return float_of_bits(sign | (exponent + 112) << 23 | rest << 13);
#endif
}

}  // namespace pyattnorg::math
