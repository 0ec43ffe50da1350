#include "../../cuda/around.hpp"
#include "addresses.hpp"

namespace pyattnorg::bind {
namespace {

void merge_start(const std::string& number, Address distances, std::int64_t n, Address work, const Place& place) {
    require(n > 0, "there must be points");
    with_real(number, place, [&](auto pointer) {
        using T = Pointed<decltype(pointer)>;
        cuda::merge_start(at<const T>(distances), n, at<void>(work), at<void>(place.stream));
    });
}

// shape: points, features that count, and how far apart rows are.
void merge_passes(const std::string& number, Address x, std::array<std::int64_t, 3> shape, std::int64_t passes,
                  Address merges, Address costs, Address left, Address work, const Place& place) {
    require(shape[0] > 0 && 0 <= shape[1] && shape[1] <= shape[2], "features must be columns of x");
    with_real(number, place, [&](auto pointer) {
        using T = Pointed<decltype(pointer)>;
        cuda::merge_passes(at<T>(x), shape[0], shape[1], shape[2], passes, at<std::int32_t>(merges), at<double>(costs),
                           at<std::int64_t>(left), at<void>(work), at<void>(place.stream));
    });
}

void weigh_features(const std::string& number, Address x, std::array<std::int64_t, 2> shape, double noise,
                    Address columns, Address factors, Address kept, Address work, const Place& place) {
    require(shape[0] > 0 && shape[1] > 0, "x must not be empty");
    with_real(number, place, [&](auto pointer) {
        using T = Pointed<decltype(pointer)>;
        cuda::weigh_features(at<const T>(x), shape[0], shape[1], noise, at<std::int32_t>(columns), at<T>(factors),
                             at<std::int64_t>(kept), at<void>(work), at<void>(place.stream));
    });
}

void close_gaps(const std::string& number, Address x, std::array<std::int64_t, 2> shape, Address columns,
                Address factors, std::int64_t kept, const Place& place) {
    require(shape[0] > 0 && 0 < kept && kept <= shape[1], "kept columns must be columns of x");
    with_real(number, place, [&](auto pointer) {
        using T = Pointed<decltype(pointer)>;
        cuda::close_gaps(at<T>(x), shape[0], shape[1], at<const std::int32_t>(columns), at<const T>(factors), kept,
                         at<void>(place.stream));
    });
}

// counts: rounds of steps, folders to measure around.
void around(const std::string& number, Address x, std::array<std::int64_t, 2> shape, Address steps, Address first,
            Address near, std::array<std::int64_t, 2> counts, Address out, Address work, const Place& place) {
    require(shape[0] > 1 && shape[1] >= 0 && counts[0] > 0 && counts[1] > 0, "there must be folders");
    with_real(number, place, [&](auto pointer) {
        using T = Pointed<decltype(pointer)>;
        cuda::around(at<const T>(x), shape[0], shape[1], at<const cuda::MeanStep>(steps), at<const std::int32_t>(first),
                     counts[0], at<const cuda::Near>(near), counts[1], at<double>(out), at<void>(work),
                     at<void>(place.stream));
    });
}

template <class S>
py::array_t<std::uint8_t> bytes_of(const std::vector<S>& all) {
    py::array_t<std::uint8_t> out(static_cast<py::ssize_t>(all.size() * sizeof(S)));
    std::memcpy(out.mutable_data(), all.data(), all.size() * sizeof(S));
    return out;
}

// The host's part of cpu::improve_tree: a GPU measures.
class Interchange {
public:
    explicit Interchange(const py::array_t<std::int32_t, py::array::c_style>& merges) : tree_(checked(merges)) {}

    // Bytes of cuda::MeanStep in rounds, where rounds begin, and bytes of cuda::Near for all that is to be measured.
    py::tuple plan() const {
        const cuda::AroundPlan plan(tree_);
        const auto rounds = static_cast<py::ssize_t>(plan.first.size());
        return py::make_tuple(bytes_of(plan.steps), py::array_t<std::int32_t>(rounds, plan.first.data()),
                              bytes_of(plan.near));
    }

    void learn(const py::array_t<double, py::array::c_style>& found) {
        require(static_cast<std::size_t>(found.size()) == 3 * tree_.dirty().size(), "found must be (folders, 3)");
        std::vector<cpu::Around> all(tree_.dirty().size());
        std::memcpy(all.data(), found.data(), all.size() * sizeof(cpu::Around));
        tree_.learn(all);
    }

    bool exchange(double least_share, double least_gain) { return tree_.exchange(least_share, least_gain); }

    py::tuple give() const {
        const py::ssize_t folders = tree_.points() - 1;
        py::array_t<std::int32_t> merges({folders, py::ssize_t{2}});
        py::array_t<double> costs(folders);
        tree_.give(merges.mutable_data(), costs.mutable_data());
        return py::make_tuple(merges, costs);
    }

private:
    static cpu::Interchange checked(const py::array_t<std::int32_t, py::array::c_style>& merges) {
        require(merges.ndim() == 2 && merges.shape(1) == 2 && merges.shape(0) > 0, "merges must be (n - 1, 2), n > 1");
        return {merges.data(), merges.shape(0) + 1};
    }

    static_assert(sizeof(cpu::Around) == 3 * sizeof(double));
    cpu::Interchange tree_;
};

}  // namespace

void register_device_entropy_tree(py::module_& m) {
    using namespace py::literals;
    m.def("merge_work", &cuda::merge_work, "n"_a, "wide"_a);
    m.def("merge_start", &merge_start, "number"_a, "distances"_a, "n"_a, "work"_a, "place"_a);
    m.def("merge_passes", &merge_passes, "number"_a, "x"_a, "shape"_a, "passes"_a, "merges"_a, "costs"_a, "left"_a,
          "work"_a, "place"_a);
    m.def("weigh_features_work", &cuda::weigh_features_work, "features"_a, "wide"_a);
    m.def("weigh_features", &weigh_features, "number"_a, "x"_a, "shape"_a, "noise"_a, "columns"_a, "factors"_a,
          "kept"_a, "work"_a, "place"_a);
    m.def("close_gaps", &close_gaps, "number"_a, "x"_a, "shape"_a, "columns"_a, "factors"_a, "kept"_a, "place"_a);
    m.def("around_work", &cuda::around_work, "n"_a, "features"_a, "wide"_a);
    m.def("around", &around, "number"_a, "x"_a, "shape"_a, "steps"_a, "first"_a, "near"_a, "counts"_a, "out"_a,
          "work"_a, "place"_a);
    py::class_<Interchange>(m, "Interchange", py::module_local(), "Exchanges of folders (cpu/interchange.hpp).")
        .def(py::init<const py::array_t<std::int32_t, py::array::c_style>&>(), "merges"_a)
        .def("plan", &Interchange::plan)
        .def("learn", &Interchange::learn, "found"_a)
        .def("exchange", &Interchange::exchange, "least_share"_a, "least_gain"_a)
        .def("give", &Interchange::give);
}

}  // namespace pyattnorg::bind
