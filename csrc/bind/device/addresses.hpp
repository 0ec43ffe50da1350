// Device arrays as Python hands them over: addresses, shapes in elements, the name of what they hold, and a stream.
// Nothing of them can be read here, so Python checks shapes; what is checked again is what it could not know.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>
#include <stdexcept>
#include <string>
#include <vector>

#include "../../cuda/device_scope.hpp"
#include "../../kernels.hpp"

namespace pyattnorg::bind {

namespace py = pybind11;
using Address = std::uintptr_t;

template <class T>
T* at(Address address) {
    return reinterpret_cast<T*>(address);  // NOLINT
}

inline void require(bool condition, const char* what) {
    if (!condition) throw std::invalid_argument(what);
}

// Where work goes: a device and a stream of it.
struct Place {
    int device;
    Address stream;
};

// Calls f with a null pointer of the type that `number` names, on the device, without the GIL: nothing below touches
// a Python object.
template <class F>
void with_number(const std::string& number, const Place& place, const F& f) {
    const py::gil_scoped_release release;
    const cuda::OnDevice scope(place.device);
    if (number == "float32") return f(static_cast<const float*>(nullptr));
    if (number == "float64") return f(static_cast<const double*>(nullptr));
    if (number == "float16") return f(static_cast<const math::float16*>(nullptr));
    if (number == "bfloat16") return f(static_cast<const math::bfloat16*>(nullptr));
    throw std::invalid_argument("unknown number format");
}

template <class Pointer>
using Pointed = std::remove_cv_t<std::remove_pointer_t<Pointer>>;

// Calls f with a null pointer of float or double.
template <class F>
void with_real(const std::string& number, const Place& place, const F& f) {
    require(number == "float32" || number == "float64", "float32 or float64 expected");
    with_number(number, place, [&](auto pointer) {
        if constexpr (sizeof(Pointed<decltype(pointer)>) >= sizeof(float)) f(pointer);
    });
}

void register_device_pairwise(py::module_& m);
void register_device_trees(py::module_& m);
void register_device_affinity(py::module_& m);
void register_device_entropy_tree(py::module_& m);

}  // namespace pyattnorg::bind
