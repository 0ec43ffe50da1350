// NumPy arrays as the kernels want them. Python has already checked shapes and said so in words; what is checked here
// again is only what memory safety needs.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>

#include "../kernels.hpp"

namespace pyattnorg::bind {

namespace py = pybind11;

template <class T>
using Dense = py::array_t<T, py::array::c_style>;

inline void require(bool condition, const char* what) {
    if (!condition) throw std::invalid_argument(what);
}

// Strides in elements; NumPy's may be anything for axes of length 1.
template <class T>
std::int64_t element_stride(const py::array_t<T>& x, py::ssize_t axis) {
    if (x.shape(axis) <= 1) return 0;
    require(x.strides(axis) % static_cast<py::ssize_t>(sizeof(T)) == 0, "strides must be whole elements");
    return x.strides(axis) / static_cast<py::ssize_t>(sizeof(T));
}

template <class T, std::int64_t ndim>
auto strided(const py::array_t<T>& x) {
    require(x.ndim() == ndim, "wrong number of dimensions");
    std::conditional_t<ndim == 2, Strided2<T>, Strided3<T>> out{x.data(), {}, {}};
    for (py::ssize_t axis = 0; axis < ndim; ++axis) {
        out.shape[axis] = x.shape(axis);
        out.stride[axis] = element_stride(x, axis);
    }
    return out;
}

// Lets other Python threads run while it lives. Python ends a daemon thread that wants the interpreter back after it
// has shut down, before 3.14 by unwinding its stack, which other threads of a kernel still use: it sleeps instead, as
// from 3.14 on. pybind11's own guards abort, or make a thread state for an interpreter that is gone.
class Unlocked {
public:
    Unlocked() : state_(PyEval_SaveThread()) {}
    Unlocked(const Unlocked&) = delete;
    Unlocked& operator=(const Unlocked&) = delete;
    ~Unlocked() { take_back(); }

    // Ctrl-C: asks Python for pending signals; what a handler raises goes on as the kernel's exception.
    Poll signals() const {
        return [this] {
            take_back();
            struct GiveAway {
                ~GiveAway() { PyEval_SaveThread(); }
            } const afterwards;
            if (PyErr_CheckSignals() != 0) throw py::error_already_set();
        };
    }

private:
    void take_back() const noexcept {
        try {
            PyEval_RestoreThread(state_);
        } catch (...) {
            for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
        }
    }

    PyThreadState* state_;
};

void register_pairwise(py::module_& m);
void register_trees(py::module_& m);
void register_haar(py::module_& m);
void register_entropy_tree(py::module_& m);

}  // namespace pyattnorg::bind
