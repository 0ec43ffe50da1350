// One source for two modules: _cuda, and for tests _emulated, whose device is this machine's own memory.
#include "addresses.hpp"

PYBIND11_MODULE(PYATTNORG_MODULE, m, pybind11::mod_gil_not_used()) {
    using namespace pyattnorg;
    using namespace pybind11::literals;
    m.doc() = "The kernels on a GPU. Import pyattnorg.kernels instead: arguments are checked there.";
    // Local to the module: _cuda and _emulated may both be loaded.
    pybind11::class_<bind::Place>(m, "Place", pybind11::module_local(), "A device and a stream of it.")
        .def(pybind11::init<int, bind::Address>(), "device"_a, "stream"_a);
    bind::register_device_pairwise(m);
    bind::register_device_trees(m);
    bind::register_device_affinity(m);
    bind::register_device_entropy_tree(m);
    m.def("device_count", &cuda::device_count);
    m.attr("__version__") = PYATTNORG_VERSION;
}
