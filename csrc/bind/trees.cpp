#include "arrays.hpp"

namespace pyattnorg::bind {
namespace {

template <class T>
void folder_averages(const Dense<T>& x, const Dense<std::int32_t>& parent, const Dense<std::int32_t>& size,
                     const Dense<std::int32_t>& leaf, Dense<T> out, int threads) {
    require(x.ndim() == 3, "x must be (outer, n, inner)");
    const std::int64_t outer = x.shape(0), n = x.shape(1), inner = x.shape(2), folders = parent.size();
    require(size.size() == folders && leaf.size() == folders, "unequal lengths");
    require(out.size() == outer * folders * inner, "out has the wrong size");
    for (std::int64_t f = 0; f < folders; ++f)
        require(parent.data()[f] < f && parent.data()[f] >= -1 && leaf.data()[f] < n && size.data()[f] > 0,
                "folders must follow their parents and hold leaves of x");
    const T* from = x.data();
    T* to = out.mutable_data();
    const std::int32_t *up = parent.data(), *sizes = size.data(), *leaves = leaf.data();
    const Unlocked unlocked;
    cpu::folder_averages(from, outer, n, inner, up, sizes, leaves, folders, to, threads, unlocked.signals());
}

Dense<std::int32_t> flexible_tree(const Dense<double>& phi, const Dense<double>& rate, double constant, int threads) {
    require(phi.ndim() == 2 && phi.shape(0) > 0 && rate.size() == phi.shape(1), "phi must be (n, m), rate (m,)");
    require(constant > 0, "constant must be positive");
    const std::int64_t n = phi.shape(0), m = phi.shape(1);
    std::vector<std::vector<std::int32_t>> levels;
    {
        const double *coordinates = phi.data(), *rates = rate.data();
        const Unlocked unlocked;
        levels = cpu::flexible_tree(coordinates, rates, n, m, constant, threads, unlocked.signals());
    }
    Dense<std::int32_t> out({static_cast<py::ssize_t>(levels.size()), static_cast<py::ssize_t>(n)});
    std::int32_t* to = out.mutable_data();
    for (auto level = levels.rbegin(); level != levels.rend(); ++level)
        to = std::copy(level->begin(), level->end(), to);
    return out;
}

std::int64_t tree_distance(const Dense<std::int32_t>& order_a, const Dense<std::int32_t>& common_a,
                           const Dense<std::int32_t>& order_b, const Dense<std::int32_t>& common_b, int threads) {
    const std::int64_t n = order_a.size();
    require(n > 0 && order_b.size() == n && common_a.size() == n - 1 && common_b.size() == n - 1, "unequal lengths");
    for (const auto* order : {&order_a, &order_b}) {
        std::vector<bool> seen(static_cast<std::size_t>(n));
        for (std::int64_t p = 0; p < n; ++p) {
            const std::int32_t leaf = order->data()[p];
            require(leaf >= 0 && leaf < n && !seen[static_cast<std::size_t>(leaf)], "order must hold every leaf once");
            seen[static_cast<std::size_t>(leaf)] = true;
        }
    }
    const OrderedTree a{order_a.data(), common_a.data()}, b{order_b.data(), common_b.data()};
    const Unlocked unlocked;
    return cpu::tree_distance(a, b, n, threads, unlocked.signals());
}

template <class T>
void krylov(const Dense<T>& k, const Dense<double>& f, Dense<double> basis, std::int64_t known, std::int64_t have,
            std::int64_t want, Dense<double> projected, Dense<double> residual, int threads) {
    require(k.ndim() == 2 && basis.ndim() == 2 && projected.ndim() == 2, "matrices expected");
    const std::int64_t n = k.shape(0), limit = projected.shape(1);
    require(k.shape(1) == n && f.size() == n && basis.shape(1) == n && basis.shape(0) >= want + cpu::krylov_vectors &&
                want <= n,
            "shapes do not fit");
    require(projected.shape(0) >= want && limit >= want, "projected is too small");
    require(residual.size() == cpu::krylov_vectors * cpu::krylov_vectors, "residual has the wrong size");
    require(known >= 0 && have >= known && want > have, "known <= have < want must hold");
    require((want - known) % cpu::krylov_vectors == 0 && (have - known) % cpu::krylov_vectors == 0,
            "blocks must be whole");
    const T* matrix = k.data();
    const double* scales = f.data();
    double *vectors = basis.mutable_data(), *h = projected.mutable_data(), *rest = residual.mutable_data();
    const Unlocked unlocked;
    cpu::krylov(matrix, scales, n, vectors, known, have, want, h, limit, rest, threads, unlocked.signals());
}

template <class T>
void products(const Dense<T>& k, const Dense<double>& vectors, Dense<double> out, int threads) {
    require(k.ndim() == 2 && k.shape(0) == k.shape(1), "k must be square");
    const std::int64_t n = k.shape(0);
    require(vectors.size() == cpu::krylov_vectors * n && out.size() == vectors.size(), "vectors and out do not fit");
    const T* matrix = k.data();
    const double* from = vectors.data();
    double* to = out.mutable_data();
    const Unlocked unlocked;
    cpu::products(matrix, n, from, to, threads, unlocked.signals());
}

template <class T>
py::tuple symmetry(const Dense<T>& x, int threads) {
    require(x.ndim() == 2 && x.shape(0) == x.shape(1) && x.shape(0) > 0, "x must be square");
    const T* values = x.data();
    const std::int64_t n = x.shape(0);
    cpu::Symmetry found;
    {
        const py::gil_scoped_release release;
        found = cpu::symmetry(values, n, threads);
    }
    return py::make_tuple(found.apart, found.least, found.largest);
}

template <class T>
T median(const Dense<T>& values) {
    require(values.size() > 0, "values must not be empty");
    const T* all = values.data();
    const std::int64_t n = values.size();
    const Unlocked unlocked;
    return cpu::median(all, n);
}

template <class T>
void define(py::module_& m) {
    using namespace py::literals;
    m.def("folder_averages", &folder_averages<T>, "x"_a.noconvert(), "parent"_a, "size"_a, "leaf"_a,
          "out"_a.noconvert(), "threads"_a);
    m.def("krylov", &krylov<T>, "k"_a.noconvert(), "f"_a.noconvert(), "basis"_a.noconvert(), "known"_a, "have"_a,
          "want"_a, "projected"_a.noconvert(), "residual"_a.noconvert(), "threads"_a);
    m.def("products", &products<T>, "k"_a.noconvert(), "vectors"_a.noconvert(), "out"_a.noconvert(), "threads"_a);
    m.def("symmetry", &symmetry<T>, "x"_a.noconvert(), "threads"_a);
    m.def("median", &median<T>, "values"_a.noconvert());
}

}  // namespace

void register_trees(py::module_& m) {
    using namespace py::literals;
    define<float>(m);
    define<double>(m);
    m.attr("krylov_vectors") = cpu::krylov_vectors;
    m.def("tree_distance", &tree_distance, "order_a"_a, "common_a"_a, "order_b"_a, "common_b"_a, "threads"_a);
    m.def("flexible_tree", &flexible_tree, "phi"_a, "rate"_a, "constant"_a, "threads"_a);
}

}  // namespace pyattnorg::bind
