#include <map>

#include "addresses.hpp"
#include "walk.hpp"

namespace pyattnorg::bind {
namespace {

Term term_of(const std::string& name) {
    static const std::map<std::string, Term> terms{
        {"l1", Term::l1}, {"squares", Term::squares}, {"masked", Term::masked}, {"products", Term::products}};
    require(terms.count(name) == 1, "unknown term");
    return terms.at(name);
}

void pairwise(const std::string& number, Address x, std::array<std::int64_t, 2> shape,
              std::array<std::int64_t, 2> stride, Address weights, const std::string& term, std::int64_t split,
              Address out, Address work, const Place& place) {
    require(shape[0] > 0 && shape[1] >= 0 && split >= 0 && split < shape[0], "split must lie within the points");
    const Term which = term_of(term);
    require(!weights || which == Term::l1, "weights are for l1 alone");
    with_number(number, place, [&](auto pointer) {
        using In = Pointed<decltype(pointer)>;
        const Strided2<In> points{at<const In>(x), {shape[0], shape[1]}, {stride[0], stride[1]}};
        cuda::pairwise<In>(points, at<const cuda::Real<In>>(weights), which, split, at<cuda::Real<In>>(out),
                           at<void>(work), at<void>(place.stream));
    });
}

void tree_emd(const std::string& number, Address x, std::array<std::int64_t, 3> shape,
              std::array<std::int64_t, 3> stride, const DeviceWalk& a, const DeviceWalk& b, Address out, Address work,
              const Place& place) {
    const cuda::Walk wa = a.view(), wb = b.view();
    require(shape[0] > 0 && shape[1] == wa.n_leaves && shape[2] == wb.n_leaves, "trees do not fit x");
    with_number(number, place, [&](auto pointer) {
        using In = Pointed<decltype(pointer)>;
        const Strided3<In> points{at<const In>(x), {shape[0], shape[1], shape[2]}, {stride[0], stride[1], stride[2]}};
        cuda::tree_emd<In>(points, wa, wb, at<cuda::Real<In>>(out), at<void>(work), at<void>(place.stream));
    });
}

}  // namespace

void register_device_pairwise(py::module_& m) {
    using namespace py::literals;
    m.def(
        "pairwise_work",
        [](std::int64_t points, std::int64_t features, const std::string& term, std::int64_t split, bool wide) {
            return cuda::pairwise_work(points, features, term_of(term), split, wide);
        },
        "points"_a, "features"_a, "term"_a, "split"_a, "wide"_a);
    m.def("pairwise", &pairwise, "number"_a, "x"_a, "shape"_a, "stride"_a, "weights"_a, "term"_a, "split"_a, "out"_a,
          "work"_a, "place"_a);
    m.def(
        "tree_emd_work",
        [](std::int64_t points, const DeviceWalk& a, const DeviceWalk& b, bool wide) {
            return cuda::tree_emd_work(points, a.view(), b.view(), wide);
        },
        "points"_a, "a"_a, "b"_a, "wide"_a);
    m.def("tree_emd", &tree_emd, "number"_a, "x"_a, "shape"_a, "stride"_a, "a"_a, "b"_a, "out"_a, "work"_a, "place"_a);
}

}  // namespace pyattnorg::bind
