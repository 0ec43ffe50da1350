// What tiles of pairs read from shared memory at once.
#pragma once

#include "device.hpp"

namespace pyattnorg::cuda {

template <class T>
struct Vector;
template <>
struct Vector<float> {
    using type = float4;
};
template <>
struct Vector<double> {
    using type = double2;
};

}  // namespace pyattnorg::cuda
