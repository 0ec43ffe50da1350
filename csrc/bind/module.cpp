#include "arrays.hpp"

PYBIND11_MODULE(_core, m, pybind11::mod_gil_not_used()) {
    using namespace pyattnorg;
    m.doc() = "The kernels on the CPU. Import pyattnorg.kernels instead: arguments are checked there.";
    bind::register_pairwise(m);
    bind::register_trees(m);
    bind::register_haar(m);
    bind::register_entropy_tree(m);
    m.def("instruction_set", &cpu::instruction_set);
    m.def("instruction_sets", [] {
        pybind11::list names;
        for (const auto& name : cpu::instruction_sets()) names.append(name);
        return names;
    });
    m.def("use_instruction_set", &cpu::use_instruction_set, pybind11::arg("name"));
    m.attr("__version__") = PYATTNORG_VERSION;
}
