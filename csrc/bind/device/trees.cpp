#include "../../math/haar.hpp"
#include "addresses.hpp"
#include "walk.hpp"

namespace pyattnorg::bind {
namespace {

void folder_averages(const std::string& number, Address x, std::int64_t outer, std::int64_t inner,
                     const DeviceWalk& tree, Address out, const Place& place) {
    const cuda::Walk walk = tree.view();
    require(outer > 0 && inner > 0, "x must not be empty");
    with_number(number, place, [&](auto pointer) {
        using In = Pointed<decltype(pointer)>;
        cuda::folder_averages<In>(at<const In>(x), outer, inner, walk, at<cuda::Real<In>>(out), at<void>(place.stream));
    });
}

// tree: addresses of turns, first and slot, and the number of rounds.
void haar(const std::string& number, Address x, std::array<std::int64_t, 3> shape, std::array<Address, 3> tree,
          std::int64_t n_rounds, bool inverse, Address out, Address work, const Place& place) {
    require(shape[0] > 0 && shape[1] > 0 && shape[2] > 0, "x must not be empty");
    with_number(number, place, [&](auto pointer) {
        using In = Pointed<decltype(pointer)>;
        using T = cuda::Real<In>;
        const cuda::HaarRounds<T> rounds{shape[1], n_rounds, at<const cuda::Turn<T>>(tree[0]),
                                         at<const std::int32_t>(tree[1]), at<const std::int32_t>(tree[2])};
        cuda::haar<In>(at<const In>(x), shape[0], shape[2], rounds, inverse, at<T>(out), at<void>(work),
                       at<void>(place.stream));
    });
}

// Rotations of merges [n, 2]: leaves of the left, leaves of the right.
py::array_t<double> rotations(const py::array_t<std::int32_t, py::array::c_style>& sizes) {
    require(sizes.ndim() == 2 && sizes.shape(1) == 2, "sizes must be (n, 2)");
    py::array_t<double> out({sizes.shape(0), py::ssize_t{2}});
    double* to = out.mutable_data();
    for (py::ssize_t i = 0; i < sizes.shape(0); ++i) {
        const auto r = math::merge_rotation<double>(sizes.data()[2 * i], sizes.data()[2 * i + 1]);
        to[2 * i] = r.major;
        to[2 * i + 1] = r.minor;
    }
    return out;
}

}  // namespace

void register_device_trees(py::module_& m) {
    using namespace py::literals;
    py::class_<DeviceWalk>(m, "Walk", py::module_local(), "A tree's program on a device (kernels.hpp, cuda::Walk).")
        .def(py::init<const py::array_t<std::uint8_t, py::array::c_style>&, Address, Address, Address, std::int64_t,
                      double>(),
             "steps"_a, "there"_a, "leaf"_a, "leaf_scale"_a, "n_leaves"_a, "concentration"_a);
    m.def("folder_averages", &folder_averages, "number"_a, "x"_a, "outer"_a, "inner"_a, "tree"_a, "out"_a, "place"_a);
    m.def("haar_work", &cuda::haar_work, "outer"_a, "n"_a, "inner"_a, "wide"_a);
    m.def("haar", &haar, "number"_a, "x"_a, "shape"_a, "tree"_a, "n_rounds"_a, "inverse"_a, "out"_a, "work"_a,
          "place"_a);
    m.def("rotations", &rotations, "sizes"_a);
}

}  // namespace pyattnorg::bind
