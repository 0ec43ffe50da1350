#include "arrays.hpp"

namespace pyattnorg::bind {
namespace {

// x is (n, stride), of whose columns the first `features` count.
template <class T>
void entropy_tree(Dense<T> x, std::int64_t features, Dense<T> distances, Dense<std::int32_t> merges,
                  Dense<double> costs, int threads) {
    require(x.ndim() == 2 && x.shape(0) > 0, "x must be (n, features)");
    const std::int64_t n = x.shape(0), stride = x.shape(1);
    require(0 <= features && features <= stride, "features must be columns of x");
    require(distances.size() == n * n, "distances must be (n, n)");
    require(merges.size() == 2 * (n - 1) && costs.size() == n - 1, "merges must be (n - 1, 2), costs (n - 1,)");
    T *points = x.mutable_data(), *apart = distances.mutable_data();
    std::int32_t* pairs = merges.mutable_data();
    double* spent = costs.mutable_data();
    const Unlocked unlocked;
    cpu::entropy_tree(points, n, features, stride, apart, pairs, spent, threads, unlocked.signals());
}

template <class T>
int improve_tree(const Dense<T>& x, Dense<std::int32_t> merges, Dense<double> costs, int most_sweeps,
                 double least_share, double least_gain, int threads) {
    require(x.ndim() == 2 && x.shape(0) > 0, "x must be (n, features)");
    const std::int64_t n = x.shape(0), features = x.shape(1);
    require(merges.size() == 2 * (n - 1) && costs.size() == n - 1, "merges must be (n - 1, 2), costs (n - 1,)");
    std::int32_t* pairs = merges.mutable_data();
    const T* points = x.data();
    double* spent = costs.mutable_data();
    const Unlocked unlocked;
    return cpu::improve_tree(points, n, features, pairs, spent, most_sweeps, least_share, least_gain, threads,
                             unlocked.signals());
}

template <class T>
std::int64_t shrink_features(Dense<T> x, double noise, int threads) {
    require(x.ndim() == 2 && x.shape(0) > 0, "x must be (n, features)");
    const std::int64_t n = x.shape(0), features = x.shape(1);
    T* points = x.mutable_data();
    const Unlocked unlocked;
    return cpu::shrink_features(points, n, features, noise, threads, unlocked.signals());
}

template <class T>
void define(py::module_& m) {
    using namespace py::literals;
    m.def("entropy_tree", &entropy_tree<T>, "x"_a.noconvert(), "features"_a, "distances"_a.noconvert(),
          "merges"_a.noconvert(), "costs"_a.noconvert(), "threads"_a);
    m.def("improve_tree", &improve_tree<T>, "x"_a.noconvert(), "merges"_a.noconvert(), "costs"_a.noconvert(),
          "most_sweeps"_a, "least_share"_a, "least_gain"_a, "threads"_a);
    m.def("shrink_features", &shrink_features<T>, "x"_a.noconvert(), "noise"_a, "threads"_a);
}

}  // namespace

void register_entropy_tree(py::module_& m) {
    define<float>(m);
    define<double>(m);
}

}  // namespace pyattnorg::bind
