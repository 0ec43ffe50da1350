#include <utility>
#include <vector>

#include <pybind11/stl.h>

#include "arrays.hpp"

namespace pyattnorg::bind {
namespace {

// The rotations of one tree and where each coefficient is found, checked once when they are made.
struct HaarPlan {
    std::vector<HaarStep> steps;
    std::vector<std::int32_t> slot;

    // columns of `steps`: left slot, right slot, leaves of the left, leaves of the right
    HaarPlan(const Dense<std::int32_t>& rows, const Dense<std::int32_t>& slots)
        : slot(slots.data(), slots.data() + slots.size()) {
        const auto n = static_cast<std::int64_t>(slot.size());
        require(n > 0 && rows.ndim() == 2 && rows.shape(0) == n - 1 && rows.shape(1) == 4, "steps must be (n - 1, 4)");
        std::vector<bool> taken(slot.size());
        for (const std::int32_t s : slot) {
            require(s >= 0 && s < n && !taken[static_cast<std::size_t>(s)], "slots must be those of all coefficients");
            taken[static_cast<std::size_t>(s)] = true;
        }
        std::vector<bool> merged(slot.size());
        for (std::int64_t i = 0; i < n - 1; ++i) {
            const std::int32_t* row = rows.data() + 4 * i;
            require(row[0] >= 0 && row[0] < n && row[1] >= 0 && row[1] < n && row[0] != row[1], "slot out of range");
            require(!merged[static_cast<std::size_t>(row[0])] && !merged[static_cast<std::size_t>(row[1])],
                    "a slot is merged once");
            merged[static_cast<std::size_t>(row[0])] = true;
            require(row[2] > 0 && row[3] > 0, "sizes must be positive");
            steps.push_back({row[0], row[1], row[2], row[3]});
        }
    }
};

template <class T>
bool haar(const Dense<T>& x, const std::vector<const HaarPlan*>& plans, bool inverse, Dense<T> out, int threads) {
    const std::vector<std::int64_t> shape(x.shape(), x.shape() + x.ndim());
    require(plans.size() == shape.size(), "one plan or None an axis");
    require(out.size() == x.size(), "out must be as large as x");
    std::vector<HaarTree> trees;
    for (std::size_t a = 0; a < shape.size(); ++a) {
        const HaarPlan* plan = plans[a];
        require(!plan || shape[a] == static_cast<std::int64_t>(plan->slot.size()), "the tree does not fit x");
        trees.push_back(plan ? HaarTree{plan->steps.data(), plan->slot.data()} : HaarTree{nullptr, nullptr});
    }
    if (x.size() == 0) return true;
    const T* from = x.data();
    T* to = out.mutable_data();
    const Unlocked unlocked;
    return cpu::haar(from, shape, trees, inverse, to, threads, unlocked.signals());
}

template <class T>
std::pair<double, double> norms(const Dense<T>& x, int threads) {
    const T* values = x.data();
    const std::int64_t n = x.size();
    double magnitudes, squares;
    const Unlocked unlocked;
    cpu::norms(values, n, &magnitudes, &squares, threads);
    return {magnitudes, squares};
}

template <class T>
void define(py::module_& m) {
    using namespace py::literals;
    m.def("haar", &haar<T>, "x"_a.noconvert(), "plans"_a, "inverse"_a, "out"_a.noconvert(), "threads"_a);
    m.def("norms", &norms<T>, "x"_a.noconvert(), "threads"_a);
}

}  // namespace

void register_haar(py::module_& m) {
    using namespace py::literals;
    py::class_<HaarPlan>(m, "HaarPlan", "The rotations of a tree's Haar transform (kernels.hpp, HaarStep).")
        .def(py::init<const Dense<std::int32_t>&, const Dense<std::int32_t>&>(), "steps"_a, "slot"_a);
    define<float>(m);
    define<double>(m);
}

}  // namespace pyattnorg::bind
