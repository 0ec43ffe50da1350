#include <map>
#include <optional>

#include <pybind11/stl.h>

#include "arrays.hpp"
#include "program.hpp"

namespace pyattnorg::bind {
namespace {

template <class T>
void pairwise(const py::array_t<T>& x, const std::optional<Dense<T>>& weights, const std::string& term,
              std::int64_t split, Dense<T> out, int threads) {
    const auto points = strided<T, 2>(x);
    const std::int64_t n = points.shape[0];
    require(n > 0 && split >= 0 && split < n, "split must lie within the points");
    require(!weights || weights->size() == points.shape[1], "weights must have one entry a feature");
    require(out.size() == (split ? split * (n - split) : n * n), "out has the wrong size");
    static const std::map<std::string, Term> terms{
        {"l1", Term::l1}, {"squares", Term::squares}, {"masked", Term::masked}, {"products", Term::products}};
    require(terms.count(term) == 1, "unknown term");
    const Term which = terms.at(term);
    const T* w = weights ? weights->data() : nullptr;
    T* to = out.mutable_data();
    const Unlocked unlocked;  // no Python object is touched below, but for signals, which take it back
    cpu::pairwise(points, w, which, split, to, threads, unlocked.signals());
}

template <class T>
void tree_emd(const py::array_t<T>& x, const Program& a, const Program& b, Dense<T> out, int threads) {
    const auto points = strided<T, 3>(x);
    const std::int64_t n = points.shape[0];
    require(n > 0 && out.size() == n * n, "out has the wrong size");
    require(a.n_leaves == points.shape[1] && b.n_leaves == points.shape[2], "trees do not fit x");
    T* to = out.mutable_data();
    const TreeProgram pa = a.view(), pb = b.view();
    const Unlocked unlocked;
    cpu::tree_emd(points, pa, pb, to, threads, unlocked.signals());
}

template <class T>
void define(py::module_& m) {
    using namespace py::literals;
    m.def("pairwise", &pairwise<T>, "x"_a.noconvert(), "weights"_a.none(true), "term"_a, "split"_a, "out"_a.noconvert(),
          "threads"_a);
    m.def("tree_emd", &tree_emd<T>, "x"_a.noconvert(), "a"_a, "b"_a, "out"_a.noconvert(), "threads"_a);
}

}  // namespace

void register_pairwise(py::module_& m) {
    using namespace py::literals;
    py::class_<Program>(m, "Program", "How the folder sums of a tree are formed (kernels.hpp, TreeProgram).")
        .def(py::init<const Dense<std::int32_t>&, const Dense<std::int32_t>&, const Dense<std::uint8_t>&,
                      const Dense<double>&, std::int64_t>(),
             "leaf"_a, "slot"_a, "add"_a, "scale"_a, "n_leaves"_a);
    define<float>(m);
    define<double>(m);
}

}  // namespace pyattnorg::bind
